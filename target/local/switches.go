package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/topology"
)

// ovsGroup is the cgroup of the lab's Open vSwitch, beside those of the nodes (whose names start otherwise).
const ovsGroup = ".ovs"

// startSwitches starts Open vSwitch where the topology needs it and it does not run yet.
func (l *Lab) startSwitches(ctx context.Context) error {
	if l.ovs != nil || !slices.ContainsFunc(l.Topology.Nodes, isOVS) {
		return nil
	}
	if err := l.Cgroups.make(l.Name, &topology.Node{Name: ovsGroup}); err != nil {
		return err
	}
	var groups []*os.File // open until the daemons run
	var joinErr error
	cfg := ovs.Config{Dir: l.ovsDir(), NetNS: l.fabricPath(), Prepare: func(cmd *exec.Cmd) {
		dir, err := l.Cgroups.bear(cmd, l.Name, ovsGroup)
		groups, joinErr = append(groups, dir), errors.Join(joinErr, err)
	}}
	var err error
	l.ovs, err = ovs.Start(ctx, cfg)
	for _, g := range groups {
		g.Close()
	}
	if err = errors.Join(err, joinErr); err != nil {
		return err
	}
	l.Record.OVS = l.ovs.Datapath()
	return l.saveRecord()
}

func (l *Lab) ovsDir() string { return filepath.Join(l.Dir, "ovs") }

// addBridges makes the Linux bridges among the nodes.
func (l *Lab) addBridges(nodes []*topology.Node) error {
	b, err := newBatchIn(l.fabric)
	if err != nil {
		return err
	}
	defer b.close()
	for _, n := range nodes {
		if n.Kind == topology.Switch && n.Datapath == topology.Bridge {
			name := topology.DeviceName(n.Name)
			b.addBridge(name, l.newIndex(name), n.STP)
		}
	}
	return b.flush()
}

// dropBridge removes a Linux bridge; those of Open vSwitch go with the next applySwitches.
func (l *Lab) dropBridge(n *topology.Node) error {
	if n.Datapath != topology.Bridge {
		return nil
	}
	name := topology.DeviceName(n.Name)
	delete(l.index, name)
	return l.inNet(n.Name, func() error { return deleteDevice(name) })
}

// applySwitches brings up the switches' side of the lab: devices, Open vSwitch's
// bridges and ports, relays to controllers, and what must not forward.
func (l *Lab) applySwitches(ctx context.Context, done func()) error {
	blocked := topology.Blocked(l.Topology)
	if err := l.raiseDevices(blocked); err != nil {
		return err
	}
	if l.ovs != nil {
		if err := l.relays.follow(controllerAddresses(l.Topology)); err != nil {
			return err
		}
		if err := l.ovs.Apply(ctx, l.ovsBridges(blocked)); err != nil {
			return err
		}
	}
	for range l.Topology.NodesOf(topology.Switch) {
		done()
	}
	return nil
}

// raiseDevices sets up all devices of switches, and the state of bridges' ports.
func (l *Lab) raiseDevices(blocked map[*topology.Link]bool) error {
	b, err := newBatchIn(l.fabric)
	if err != nil {
		return err
	}
	defer b.close()
	b.setUp("lo", 1, true)
	bridges := map[string]bool{}
	for _, n := range l.Topology.Nodes {
		if n.Kind == topology.Switch && n.Datapath == topology.Bridge {
			bridges[n.Name] = !n.STP
			b.setUp(n.Name, l.index[topology.DeviceName(n.Name)], true)
		}
	}
	// All up first: a port's state can be set only once it has a carrier.
	var ports []func()
	for _, link := range l.Topology.Links {
		for i, e := range link.Ends {
			name := e.Interface
			node := e.Node
			if e.External() {
				node = link.Ends[1-i].Node
			}
			index := l.index[name]
			if index == 0 || link.Down {
				continue
			}
			b.setUp(name, index, true)
			if bridges[node] && len(blocked) > 0 {
				ports = append(ports, func() { b.setBridgePort(name, index, blocked[link]) })
			}
		}
	}
	if err := b.flush(); err != nil {
		return err
	}
	for _, p := range ports {
		p()
	}
	return b.flush()
}

// ovsBridges is what Open vSwitch is to be.
func (l *Lab) ovsBridges(blocked map[*topology.Link]bool) []ovs.Bridge {
	var bridges []ovs.Bridge
	at := map[string]int{}
	for _, n := range l.Topology.Nodes {
		if !isOVS(n) {
			continue
		}
		at[n.Name] = len(bridges)
		bridges = append(bridges, ovs.Bridge{Name: topology.DeviceName(n.Name), DPID: n.DPID, FailMode: n.FailMode,
			OpenFlow: n.OpenFlow, STP: n.STP, Controllers: ControllersOf(l.Topology, n)})
	}
	for _, link := range l.Topology.Links {
		wire := l.WireOf(link)
		if wire == Patch && link.Down {
			continue
		}
		for i, e := range link.Ends {
			if !isOVS(l.node(e.Node)) {
				continue
			}
			p := ovs.Port{Name: e.Interface, Number: *e.Port, Blocked: blocked[link]}
			switch wire {
			case Patch:
				p.Patch = link.Ends[1-i].Interface
			case External:
				p.Name = link.Ends[1-i].Interface
			}
			b := &bridges[at[e.Node]]
			b.Ports = append(b.Ports, p)
		}
	}
	return bridges
}

// ControllersOf returns the addresses of a switch's controllers; none where it forwards by learning.
func ControllersOf(t *topology.Topology, n *topology.Node) []string {
	var out []string
	for _, c := range n.Controllers {
		if c == topology.ControllerNone {
			continue
		}
		if node := t.Node(c); node != nil {
			c = node.Address
		}
		if c != "" {
			out = append(out, c)
		}
	}
	return out
}

func controllerAddresses(t *topology.Topology) []string {
	var out []string
	for _, n := range t.Nodes {
		if n.Kind == topology.Switch {
			for _, c := range ControllersOf(t, n) {
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// Controllers says, for each switch that has one, whether it is connected. Only Open vSwitch has controllers.
func (l *Lab) Controllers(ctx context.Context) ([]ovs.BridgeStatus, error) {
	if l.ovs == nil {
		return nil, nil
	}
	return l.ovs.Status(ctx)
}

// WaitControllers waits until every switch with a controller is connected to one;
// the error, once ctx ends, names those that are not and why.
func (l *Lab) WaitControllers(ctx context.Context) error {
	var bridges []string
	for _, n := range l.Topology.Nodes {
		if isOVS(n) && len(ControllersOf(l.Topology, n)) > 0 {
			bridges = append(bridges, topology.DeviceName(n.Name))
		}
	}
	if len(bridges) == 0 {
		return nil
	}
	return l.ovs.WaitConnected(ctx, bridges)
}

// external is a real interface of the machine, as it was before it became an end of a link.
type external struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses,omitempty"`
	Up        bool     `json:"up"`
}

// takeExternal moves an interface of the machine into the namespace of the link's node.
func (l *Lab) takeExternal(link *topology.Link) error {
	inside, outside := link.Ends[0], link.Ends[1]
	if inside.External() {
		inside, outside = outside, inside
	}
	dev, err := netlink.LinkByName(outside.Interface)
	if err != nil {
		return fmt.Errorf("link %s: the machine has no interface %s: %w", link.Name(), outside.Interface, err)
	}
	was := external{Name: outside.Interface, Up: dev.Attrs().Flags&1 != 0}
	addresses, err := netlink.AddrList(dev, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			was.Addresses = append(was.Addresses, a.IPNet.String())
		}
	}
	l.Record.External = append(l.Record.External, was)
	if err := l.saveRecord(); err != nil {
		return err
	}
	ns, err := l.netnsOf(inside.Node)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := netlink.LinkSetNsFd(dev, int(ns.Fd())); err != nil {
		return fmt.Errorf("move interface %s into the lab: %w", outside.Interface, err)
	}
	return inNamespace(ns, func() error {
		dev, err := netlink.LinkByName(outside.Interface)
		if err != nil {
			return err
		}
		return l.plug(inside.Node, dev)
	})
}

// releaseExternal moves an interface back and gives it what it had.
func (l *Lab) releaseExternal(link *topology.Link) error {
	for i, e := range link.Ends {
		if !e.External() {
			continue
		}
		at := slices.IndexFunc(l.Record.External, func(x external) bool { return x.Name == e.Interface })
		if at < 0 {
			continue
		}
		ns, err := l.netnsOf(link.Ends[1-i].Node)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := inNamespace(ns, func() error { return sendHome(e.Interface) }); err != nil {
			return err
		}
		if err := l.Record.External[at].restore(); err != nil {
			return err
		}
		l.Record.External = slices.Delete(l.Record.External, at, at+1)
		delete(l.index, e.Interface)
	}
	return l.saveRecord()
}

// sendHome moves a device from the namespace of the thread to the machine's. One that is not there is no error.
func sendHome(name string) error {
	dev, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	home, err := os.Open("/proc/self/ns/net") // of the process' first thread, which never leaves
	if err != nil {
		return err
	}
	defer home.Close()
	return errors.Join(netlink.LinkSetNoMaster(dev), netlink.LinkSetNsFd(dev, int(home.Fd())))
}

// restore gives an interface that is back its addresses and its state.
func (x external) restore() error {
	dev, err := netlink.LinkByName(x.Name)
	if err != nil {
		return nil // it is gone from the machine altogether
	}
	for _, a := range x.Addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(dev, addr); err != nil {
			return err
		}
	}
	if x.Up {
		return netlink.LinkSetUp(dev)
	}
	return nil
}
