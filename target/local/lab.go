// Package local brings a topology up on this machine: hosts and Linux routers
// are sets of namespaces, switches live in one namespace of the lab, links are
// veth pairs, patch ports or delay lines.
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
	"sync/atomic"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// Progress is told how far a stage is. It is called from several goroutines.
type Progress func(stage string, done, total int)

// Lab is a topology on this machine. Its methods must not be called at the same time,
// except Start, OnNode and those that say so.
type Lab struct {
	Name    string
	Dir     string // of the lab's files: <run directory>/<name>
	Cgroups cgroup.Hierarchies
	Record  Record

	is atomic.Pointer[indexed] // what Topology returns

	owner      Owner
	listening  map[string]string // addresses of controllers that the lab runs beside its switches, in their namespace, by name
	controller struct {          // the lab's own; see Control
		socket string
		meet   func(name string, join func(datapath.Peer) datapath.Session) error
	}

	fabrics []fabric
	binder  *binder
	fabric  *os.File
	index   map[string]int // of the devices in the switches' namespace
	next    int            // index of the next one
	raised  map[string]int // indexes of those that have been set up: who sets one down afterwards may
	tree    plan.Tree

	engine *delayline.Engine
	lines  map[string]*delayline.Line // by link key
	power  power

	closing atomic.Bool // what ends now does not end by itself
}

// Owner is what a lab tells who has it.
type Owner struct {
	// OnFabric is called when the switches' namespace is there and no switches are: programs can be
	// started beside them.
	OnFabric func(context.Context) error

	// OnUndo is called before a change that has failed is undone.
	OnUndo func()

	// OnEnd is told when a routing daemon or Open vSwitch has ended by itself, in a goroutine of
	// its own; OnLoop when packets come back to an embedded switch: it must return soon, and not
	// call the lab.
	OnEnd, OnLoop func(what string)
}

// Record is what later processes must know about how the lab was made. It is written
// before what it speaks of is made.
type Record struct {
	Netem    bool              `json:"netem"` // the kernel has netem; else delay lines impair links
	External []external        `json:"external,omitempty"`
	Uplinks  map[string]uplink `json:"uplinks,omitempty"` // of NAT routers
	Dirs     []string          `json:"dirs,omitempty"`    // of the machine that nodes have mounts at, or show
	Made     []string          `json:"made,omitempty"`    // those that were not there before a lab, and what is above them, outermost first
}

func (l *Lab) recordFile() string { return filepath.Join(l.Dir, "local.json") }
func (l *Lab) saveRecord() error  { return saveJSON(l.recordFile(), l.Record) }

// New prepares a lab in a directory that exists and holds nothing of another lab.
func New(name, dir string, owner Owner) (*Lab, error) {
	cgroups, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: name, Dir: dir, Cgroups: cgroups, owner: owner, listening: map[string]string{},
		index: map[string]int{}, next: ownIndexes, raised: map[string]int{}, lines: map[string]*delayline.Line{}}
	l.fabrics = l.newFabrics()
	l.setTopology(&topology.Topology{})
	return l, nil
}

// indexed is a topology that does not change any more, with its nodes by name.
type indexed struct {
	topology *topology.Topology
	nodes    map[string]*topology.Node
}

// Topology is what the lab is; in the middle of a change, what it was or is to be. It may be called
// at any time. What it returns is not changed by anybody.
func (l *Lab) Topology() *topology.Topology { return l.is.Load().topology }

func (l *Lab) setTopology(t *topology.Topology) { l.is.Store(&indexed{t, t.NodesByName()}) }

// Up brings a resolved topology up. After an error, Remove cleans up.
func (l *Lab) Up(ctx context.Context, t *topology.Topology, progress Progress) error {
	l.setTopology(t)
	l.Record.Netem = hasNetem()
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

// open takes hold of what a lab is made with: the switches' namespace and the delay lines' engine.
func (l *Lab) open() (err error) {
	l.fabric, err = os.Open(l.fabricPath())
	return err
}

// Close lets go of the lab and leaves it running.
func (l *Lab) Close() {
	l.closing.Store(true)
	l.power.close()
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
		return nil // what the machine allows must do
	}
	return nil
}

// writeHosts writes the lab's /etc/hosts, in place: nodes have it mounted.
func (l *Lab) writeHosts() error {
	ends := topology.EndsOf(l.Topology())
	text := []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
	add := func(name string, list []netip.Prefix) {
		for _, p := range list {
			text = append(append(append(p.Addr().AppendTo(text), ' '), name...), '\n')
		}
	}
	for _, n := range l.Topology().Nodes {
		for _, e := range ends[n.Name] {
			add(n.Name, e.Addresses)
		}
		add(n.Name, n.Loopback)
	}
	return os.WriteFile(filepath.Join(l.Dir, "hosts"), text, 0o644)
}

// writeResolver gives nodes the machine's name servers where a NAT reaches them,
// and none where they could only wait for answers.
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
	return os.WriteFile(filepath.Join(l.Dir, "resolv.conf"), text, 0o644)
}
