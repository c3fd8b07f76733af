package ovs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Patch is a link between bridges that needs no devices.
const Patch datapath.Wire = "patch"

// name is what users call it.
const name = "Open vSwitch"

func init() {
	datapath.Register(datapath.Kind{Names: []topology.Datapath{topology.OVS},
		New:   func(s datapath.Site) datapath.Fabric { return &fabric{site: s} },
		Inner: Patch, Joins: joins, Irreplaceable: name, Lacks: lacks})
}

// fabric is the Open vSwitch of a lab.
type fabric struct {
	datapath.Base
	site     datapath.Site
	switches atomic.Pointer[Switches] // nil if there are none
	relays   *relays
	decided  map[string]string // addresses of the switches' controllers, by bridge
	limit    topology.CPU      // of its processes; see slow

	counted time.Time                    // when Carried read the counters of ports last,
	ports   map[string]map[string]uint64 // by port
}

func is(n *topology.Node) bool { return n != nil && n.Datapath == topology.OVS }

func (f *fabric) dir() string { return filepath.Join(f.site.Dir(), "ovs") }

// group is the cgroup of the lab's Open vSwitch, beside those of the nodes (no node's name starts
// with a dot).
const group = ".ovs"

// Make starts Open vSwitch if the topology needs it and it is not running yet.
func (f *fabric) Make(ctx context.Context, _ plan.Steps) error {
	if f.switches.Load() != nil || !slices.ContainsFunc(f.site.Topology().Nodes, is) {
		return nil
	}
	prepare, started, err := f.site.Group(group)
	if err != nil {
		return err
	}
	switches, err := Start(ctx, Config{Dir: f.dir(), NetNS: f.site.Namespace().Name(), Prepare: prepare})
	f.has(switches)
	return errors.Join(err, started())
}

// Resume takes over the Open vSwitch that another process has started.
func (f *fabric) Resume(ctx context.Context) error {
	if !slices.ContainsFunc(f.site.Topology().Nodes, is) {
		return nil
	}
	switches, err := Attach(ctx, f.dir())
	if err != nil {
		return err
	}
	f.has(switches)
	f.limit, _ = f.slow()
	return switches.Took(ctx, f.bridges(topology.Blocked(f.site.Topology())))
}

// has records the running Open vSwitch, which may be nil, and reports when one of its programs ends
// while the lab is up.
func (f *fabric) has(switches *Switches) {
	if switches == nil {
		return
	}
	f.switches.Store(switches)
	f.relays = newRelays(f.site.Namespace())
	for _, pid := range switches.Pids() {
		cmd, err := process.Command(pid)
		if err != nil {
			continue
		}
		go func() {
			process.Wait(cmd)
			f.site.Ended("a program of " + name + " has ended; its logs are in " + f.dir())
		}()
	}
}

// Dead reports whether one of the two programs has ended.
func (f *fabric) Dead() []string {
	if switches := f.switches.Load(); switches != nil && len(switches.Pids()) < 2 {
		return []string{name}
	}
	return nil
}

// Check returns an error if Open vSwitch has ended, with what to do: restarting it would lose its
// state.
func (f *fabric) Check() error {
	if len(f.Dead()) == 0 {
		return nil
	}
	return fmt.Errorf("%s has ended (its logs are in %s): take the lab down, then bring it up again", name, f.dir())
}

// Close leaves Open vSwitch running.
func (f *fabric) Close() {
	if switches := f.switches.Load(); switches != nil {
		switches.Close()
		f.relays.close()
	}
}

// Hold excludes links that must not forward any more, or not yet, from forwarding by learning, and
// makes the existing bridges forget what they have learned.
func (f *fabric) Hold(ctx context.Context, forwarding plan.Forwarding) error {
	if f.switches.Load() == nil || !forwarding.Stale || !f.learns() {
		return nil
	}
	if err := f.switches.Load().Apply(ctx, f.former(f.bridges(forwarding.Held))); err != nil {
		return err
	}
	return f.switches.Load().ForgetAddresses(ctx)
}

// former returns those bridges that existed already, without their patches to new ones.
func (f *fabric) former(bridges []Bridge) []Bridge {
	bridges = slices.DeleteFunc(bridges, func(b Bridge) bool {
		_, was := f.decided[b.Name]
		return !was
	})
	there := map[string]bool{}
	for _, b := range bridges {
		for _, p := range b.Ports {
			there[p.Name] = true
		}
	}
	for i, b := range bridges {
		bridges[i].Ports = slices.DeleteFunc(b.Ports, func(p Port) bool { return p.Patch != "" && !there[p.Patch] })
	}
	return bridges
}

// Apply makes Open vSwitch match the topology.
func (f *fabric) Apply(ctx context.Context, forwarding plan.Forwarding) error {
	if f.switches.Load() == nil {
		return nil
	}
	if err := f.relays.follow(controllerAddresses(f.site.Topology())); err != nil {
		return err
	}
	if err := f.slowDown(); err != nil {
		return err
	}
	bridges := f.bridges(forwarding.Blocked)
	if err := f.handOver(ctx, bridges); err != nil {
		return err
	}
	return f.switches.Load().Apply(ctx, bridges)
}

// handOver removes the controllers of switches whose controllers change for a moment: otherwise
// Open vSwitch would keep the flow entries of the old controllers, which the new ones do not know.
func (f *fabric) handOver(ctx context.Context, bridges []Bridge) error {
	before, change := f.decided, false
	f.decided = map[string]string{}
	without := slices.Clone(bridges)
	for i, b := range bridges {
		now := strings.Join(b.Controllers, " ")
		f.decided[b.Name] = now
		if was := before[b.Name]; was != "" && now != "" && was != now {
			without[i].Controllers, change = nil, true
		}
	}
	if !change {
		return nil
	}
	return f.switches.Load().Apply(ctx, without)
}

// learns reports whether a switch forwards by learning.
func (f *fabric) learns() bool {
	return slices.ContainsFunc(f.site.Topology().Nodes, func(n *topology.Node) bool {
		return is(n) && slices.Contains(n.Controllers, topology.ControllerNone)
	})
}

// Leave unplugs ports whose devices are about to be made anew: Open vSwitch would otherwise hold
// the old device as long as a port of its name exists.
func (f *fabric) Leave(ctx context.Context, s plan.Steps) error {
	anew := map[string]bool{}
	for _, k := range s.DropLinks {
		for _, e := range k.Ends {
			if is(f.site.Node(e.Node)) { // the other end of a link to another site has the same interface
				anew[e.Interface] = true
			}
		}
	}
	again := func(k plan.Link) bool { return anew[k.Ends[0].Interface] || anew[k.Ends[1].Interface] }
	if f.switches.Load() == nil || !slices.ContainsFunc(s.AddLinks, again) {
		return nil
	}
	bridges := f.bridges(topology.Blocked(f.site.Topology()))
	for i := range bridges {
		for j, p := range bridges[i].Ports {
			bridges[i].Ports[j].Unplugged = p.Unplugged || anew[p.Name]
		}
	}
	return f.switches.Load().Apply(ctx, bridges)
}

// bridges returns the bridges that Open vSwitch should have.
func (f *fabric) bridges(blocked map[*topology.Link]bool) []Bridge {
	var bridges []Bridge
	at := map[string]int{}
	for _, n := range f.site.Topology().Nodes {
		if !is(n) {
			continue
		}
		at[n.Name] = len(bridges)
		bridges = append(bridges, Bridge{Name: topology.DeviceName(n.Name), DPID: n.DPID, FailMode: n.FailMode,
			OpenFlow: n.OpenFlow, STP: n.STP, Controllers: f.site.Controllers(n)})
	}
	vlans := topology.VLANPorts(f.site.Topology())
	for _, link := range f.site.Topology().Links {
		wire := f.site.Wire(link)
		for i, e := range link.Ends {
			n := f.site.Node(e.Node)
			if !is(n) {
				continue
			}
			p := Port{Name: e.Interface, Number: int(n.OpenFlowPort(e)), Blocked: blocked[link], VLANs: vlans[link][i]}
			switch wire {
			case Patch:
				p.Patch, p.Unplugged = link.Ends[1-i].Interface, link.Down
			case datapath.External:
				p.Name = link.Ends[1-i].Interface
			}
			b := &bridges[at[e.Node]]
			b.Ports = append(b.Ports, p)
		}
	}
	return bridges
}

// carriedEvery is how often the counters of patches are read: Open vSwitch adds to them what it has
// forwarded by cached flows every half second, and writes those of all ports for it.
const carriedEvery = 500 * time.Millisecond

// Carried returns what patches have carried, as of half a second ago or less, and by Open vSwitch's
// own account half a second before that.
func (f *fabric) Carried(ctx context.Context) (map[*topology.Link][2]datapath.Carried, error) {
	patches := lists.Filter(f.site.Topology().Links, func(l *topology.Link) bool { return f.site.Wire(l) == Patch })
	switches := f.switches.Load()
	if switches == nil || len(patches) == 0 {
		return nil, nil
	}
	if time.Since(f.counted) > carriedEvery {
		now := time.Now()
		err := switches.refresh(ctx)
		if err == nil {
			f.ports, err = switches.counters(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("read Open vSwitch's counters: %w", err)
		}
		f.counted = now
	}
	out := map[*topology.Link][2]datapath.Carried{}
	for _, link := range patches {
		var both [2]datapath.Carried
		there := true
		for i := range link.Ends {
			own, far := f.ports[link.Ends[i].Interface], f.ports[link.Ends[1-i].Interface]
			there = there && own != nil
			both[i] = datapath.Carried{Packets: far["rx_packets"], Bytes: far["rx_bytes"],
				Dropped: own["tx_dropped"] + far["rx_dropped"]}
		}
		if there {
			out[link] = both
		}
	}
	return out, nil
}

// Drops returns the drops that Open vSwitch counts.
func (f *fabric) Drops(ctx context.Context) ([]datapath.Drop, error) {
	switches := f.switches.Load()
	if switches == nil {
		return nil, nil
	}
	return switches.Drops(ctx)
}

// NeedsChecksums reports whether packets sent through it must have complete checksums.
func (f *fabric) NeedsChecksums() bool {
	switches := f.switches.Load()
	return switches != nil && switches.NeedsChecksums()
}

// Tell makes ovs-vsctl and ovs-ofctl find the lab's Open vSwitch.
func (f *fabric) Tell(cmd *exec.Cmd) { cmd.Env = append(cmd.Environ(), "OVS_RUNDIR="+f.dir()) }

// About says where it forwards: "system" or "netdev".
func (f *fabric) About() map[string]string {
	switches := f.switches.Load()
	if switches == nil {
		return nil
	}
	return map[string]string{"ovs": string(switches.Datapath())}
}
