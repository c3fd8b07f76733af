// Package local brings a topology up on this machine: hosts and Linux routers are sets of
// namespaces, switches share one namespace of the lab, links are veth pairs, patch ports or delay
// lines.
//
// Everything a lab makes can be found again from its name and its directory
// alone, so Remove cleans up whatever a killed process left behind.
package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// Lab is a topology on this machine. Its methods must not be called concurrently, except Start,
// OnNode and those that say so.
type Lab struct {
	Name    string
	Dir     string // of the lab's files: <run directory>/<name>
	Cgroups cgroup.Hierarchies
	Record  Record
	Secure  *lab.Secure // the encrypted network of the lab's tunnels; nil: the machine's network

	// Owner is the user who asked for the lab. A user's private files, such as keys for logins, are
	// read only with that user's rights.
	Owner int

	// Management is the address of this machine's SSH server, if the machine may be a host itself.
	Management netip.AddrPort

	is atomic.Pointer[indexed] // what Topology returns

	owner      lab.Hooks
	listening  sync.Map // addresses of controllers for switches, by name: see Listens
	controller struct { // the lab's own; see Control
		socket string
		meet   func(name string, join func(datapath.Peer) datapath.Session) error
	}

	fabrics []fabric
	kinds   map[string]Nodes // by the name of the kind
	binder  *binder
	fabric  *os.File
	index   map[string]int // of the devices in the switches' namespace
	next    int            // index of the next one
	raised  map[string]int // indexes of devices that were set up once: users may set them down
	tree    plan.Tree

	engine *delayline.Engine
	lines  map[string]*delayline.Line // by link key
	// servers are the modelled devices, by node; see setModels.
	servers map[string]*delayline.Server
	past    map[string][2]*lab.Backlog // dropped by earlier queues of links, by their keys: see keepCounts
	power   power

	sys     uint64     // the file system that is the machine's /sys
	root    uint64     // the mount that is the machine's /
	showing sync.Mutex // see showDevices

	wireless wireless
	notes    notes
	covered  covers

	again string // the node that is being made anew as it had ended; "": none
	// The nodes at the other ends of its links; programs of all other nodes do not start meanwhile.
	beside map[string]bool
	bare   map[string]bool // nodes that have only their network: see Restarted

	published   published
	advertisers advertisers

	closing atomic.Bool // set when processes that end are ended by the lab
}

// Record is what later processes must know about how the lab was made. It is written before what it
// describes is made.
type Record struct {
	// The kernel has netem; otherwise delay lines impair links.
	Netem       bool                  `json:"netem"`
	Disciplines []topology.Discipline `json:"disciplines,omitempty"` // that the kernel has
	Guarded     bool                  `json:"guarded,omitempty"`     // the firewall protects its tunnels to other sites
	External    []external            `json:"external,omitempty"`
	Plugged     []string              `json:"plugged,omitempty"` // devices in the machine's Open vSwitch
	Native      *native               `json:"native,omitempty"`  // the machine is a host itself
	Uplinks     map[string]uplink     `json:"uplinks,omitempty"` // of NAT routers
	Managed     *managementNet        `json:"managed,omitempty"` // the management network
	// Ends of links at nodes that are set down because the links are down.
	Pulled map[string]pulledEnd `json:"pulled,omitempty"`
	Dirs   []string             `json:"dirs,omitempty"` // of the machine, which nodes are shown
	// Directories that labs have made, and their parents if labs made these too, outermost first.
	Made []string `json:"made,omitempty"`
}

func (l *Lab) recordFile() string { return filepath.Join(l.Dir, "local.json") }
func (l *Lab) saveRecord() error  { return saveJSON(l.recordFile(), l.Record) }

func init() {
	lab.Targets[lab.OnThisMachine] = lab.Maker{
		Begin: func(s lab.State, owner lab.Hooks) (lab.Target, error) {
			l, err := New(s.Name, lab.Dir(s.Name), owner)
			if err == nil {
				l.Owner = s.Owner
			}
			if err == nil && s.Part != nil {
				l.Secure, l.Management = s.Part.Secure, s.Part.Management
			}
			return l, err
		},
		Remove: func(s lab.State, progress lab.Stage, lost func(string)) error {
			return Remove(s.Name, lab.Dir(s.Name), progress, lost)
		},
		Check: check,
		Room:  roomForManagement,
	}
}

// New prepares a lab in an existing directory without files of another lab.
func New(name, dir string, owner lab.Hooks) (*Lab, error) {
	cgroups, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	sys, err := fileSystem("/sys")
	if err != nil {
		return nil, err
	}
	root, err := mountOf("/")
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: name, Dir: dir, Cgroups: cgroups, sys: sys, root: root, owner: owner, kinds: map[string]Nodes{},
		index: map[string]int{}, next: ownIndexes, raised: map[string]int{}, lines: map[string]*delayline.Line{},
		past: map[string][2]*lab.Backlog{}}
	l.published.passing, l.published.dialling = make(chan struct{}, mostPassed), make(chan struct{}, mostDialled)
	l.published.senders = newClients(mostClients)
	l.fabrics = l.newFabrics()
	for name, k := range kinds {
		l.kinds[name] = k.New(l)
	}
	l.setTopology(&topology.Topology{})
	return l, nil
}

// indexed is an immutable topology, with its nodes by name.
type indexed struct {
	topology *topology.Topology
	nodes    map[string]*topology.Node
	jumbo    bool // some links carry larger packets than the rest
	window   int  // see windowFor

	pulled map[string]map[string]bool // interfaces that are down because their links are, by node
}

// indexing visits each link once and records what is later asked about each node.
func (l *Lab) indexing(t *topology.Topology) *indexed {
	in := &indexed{topology: t, nodes: t.NodesByName(), jumbo: slices.ContainsFunc(t.Links, (*topology.Link).Jumbo),
		window: windowFor(t), pulled: map[string]map[string]bool{}}
	for _, k := range t.Links {
		if !k.Down {
			continue
		}
		if wire := l.wireOf(k, in); wire != datapath.Veth && wire != datapath.External {
			continue
		}
		e := cableEnd(k, in.nodes)
		if in.pulled[e.Node] == nil {
			in.pulled[e.Node] = map[string]bool{}
		}
		in.pulled[e.Node][e.Interface] = true
	}
	return in
}

// Topology is what the lab is; in the middle of a change, what it was or will be. It may be called
// at any time. What it returns is never modified.
func (l *Lab) Topology() *topology.Topology { return l.is.Load().topology }

func (l *Lab) setTopology(t *topology.Topology) { l.is.Store(l.indexing(t)) }

// Up brings a resolved topology up. After an error, Remove cleans up.
func (l *Lab) Up(ctx context.Context, t *topology.Topology, progress lab.Stage) error {
	if err := NoNetworks(t); err != nil {
		return err
	}
	l.Record.Netem, l.Record.Disciplines = kernelHas() // they decide how links are made
	l.setTopology(t)
	if err := l.saveRecord(); err != nil {
		return err
	}
	if err := errors.Join(l.raiseLimits(), hurry(l.Dir)); err != nil {
		return fmt.Errorf("raise the machine's limits: %w", err)
	}
	defer func() { _ = relax(l.Dir) }()
	if err := raiseOpenFiles(); err != nil {
		return err
	}
	if err := errors.Join(l.writeHosts(), l.writeResolver()); err != nil {
		return err
	}
	if err := errors.Join(l.makeNamespaceDir(), l.Cgroups.MakeLab(l.Name)); err != nil {
		return err
	}
	l.binder = newBinder()
	if err := l.prepare(ctx, t.Nodes, progress); err != nil {
		return err
	}
	if l.Secure != nil {
		if err := l.makeSecure(); err != nil {
			return err
		}
	}
	if err := l.makeFabric(); err != nil {
		return err
	}
	if err := l.open(); err != nil {
		return err
	}
	if err := l.owner.OnFabric(ctx); err != nil {
		return err
	}
	return l.change(ctx, l.plan(&topology.Topology{}, t), progress)
}

// open opens the switches' namespace; from now on programs there can communicate over its loopback
// device.
func (l *Lab) open() (err error) {
	if l.fabric, err = os.Open(l.fabricPath()); err != nil {
		return err
	}
	b, err := netbatch.In(l.fabric)
	if err != nil {
		return err
	}
	defer b.Close()
	b.SetUp("lo", 1, true)
	return errors.Join(b.Flush(), l.writeTools())
}

// Close releases the lab and leaves it running.
func (l *Lab) Close() {
	l.closing.Store(true)
	l.power.close()
	l.closePorts()
	l.closeAdvertisers(l.Topology().Nodes)
	for _, nodes := range l.kinds {
		if b, ok := nodes.(background); ok {
			b.LetGo()
		}
	}
	if l.engine != nil {
		l.engine.Close()
	}
	for _, f := range l.fabrics {
		f.Close()
	}
	if l.fabric != nil {
		l.fabric.Close()
	}
	if l.binder != nil {
		l.binder.close()
	}
}

func raiseOpenFiles() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	const enough = 1 << 20
	if limit.Cur >= enough {
		return nil
	}
	limit.Cur, limit.Max = enough, max(limit.Max, enough)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = limit.Max
		return nil // we have to make do with what the machine allows
	}
	return nil
}

// NamesFile is a file that nodes see in /etc. Everybody in a node may read it; on the machine only
// root can, as nobody else may learn the names of a lab's nodes.
func (l *Lab) NamesFile(name string) string { return filepath.Join(l.Dir, "names", name) }

func (l *Lab) writeNames(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Join(l.Dir, "names"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(l.NamesFile(name), text, 0o644)
}

// writeHosts writes the lab's /etc/hosts in place, as it is mounted in nodes.
func (l *Lab) writeHosts() error {
	ends := topology.EndsOf(l.Topology())
	var text []byte
	add := func(name string, list []netip.Prefix) {
		for _, p := range list {
			text = append(append(append(p.Addr().AppendTo(text), ' '), name...), '\n')
		}
	}
	for _, n := range l.Topology().Nodes {
		for _, e := range ends[n.Name] {
			add(n.Name, e.Addresses)
		}
		for _, i := range n.Interfaces {
			add(n.Name, i.Addresses)
		}
		add(n.Name, n.Loopback)
	}
	for _, n := range l.Topology().Elsewhere {
		text = append(append(append(n.Address.AppendTo(text), ' '), n.Name...), '\n')
	}
	if nativeOf(l.Topology()) != nil {
		if err := l.writeNativeHosts(text); err != nil {
			return err
		}
	}
	text = append([]byte("127.0.0.1 localhost\n::1 localhost ip6-localhost\n"), text...)
	was, err := os.ReadFile(l.NamesFile("hosts"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := l.writeNames("hosts", text); err != nil {
		return err
	}
	return eachKind(l, func(_ string, k named) error { return k.NamesChanged("hosts", was, text) })
}

// writeResolver gives nodes the machine's name servers if they reach these through NAT; otherwise
// none, as programs would wait for answers in vain.
func (l *Lab) writeResolver() error {
	text := []byte("# this lab has no way to the outside, so no name server\n")
	if slices.ContainsFunc(l.Topology().Nodes, func(n *topology.Node) bool { return n.NAT }) {
		for _, file := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
			if b, err := os.ReadFile(file); err == nil {
				text = b
				break
			}
		}
	}
	return l.writeNames("resolv.conf", text)
}
