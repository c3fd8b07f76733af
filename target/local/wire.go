package local

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

type prefix = netip.Prefix

// Wire is how a link is made on this machine.
type Wire string

const (
	Veth     Wire = "veth"      // a pair of virtual Ethernet devices, shaped by the kernel
	Virtual  Wire = "virtual"   // none: two embedded switches in this process
	Patch    Wire = "patch"     // patch ports between two Open vSwitch bridges: no device
	Line     Wire = "line"      // two TAP devices and the delay line of the lab's daemon
	External Wire = "interface" // a real interface of the machine, moved into the lab
)

// Lacks says whether a link must be made anew for who wants to listen at its devices, which it does not have.
func (l *Lab) Lacks(link *topology.Link) bool { return l.WireOf(link) == Patch }

// WireOf says how a link of the lab is made.
func (l *Lab) WireOf(link *topology.Link) Wire { return l.wireOf(link, l.nodes()) }

// WiresOf says how the links of a topology of the lab are made, in their order. It may be called at any time.
func (l *Lab) WiresOf(t *topology.Topology) []Wire {
	out, nodes := make([]Wire, len(t.Links)), t.NodesByName()
	for i, link := range t.Links {
		out[i] = l.wireOf(link, nodes)
	}
	return out
}

// Devices says how the kernel is used: the datapath of Open vSwitch, and what impairs links. It may be called once the lab is up.
func (l *Lab) Devices() map[string]string {
	out := map[string]string{"impairment": "delay line (this kernel has no netem)"}
	if l.Record.Netem {
		out["impairment"] = "netem"
	}
	if switches := l.ovs.Load(); switches != nil {
		out["ovs"] = string(switches.Datapath())
	}
	return out
}

// wireOf depends on the link, its nodes and the record only.
func (l *Lab) wireOf(link *topology.Link, nodes map[string]*topology.Node) Wire {
	switch {
	case link.Ends[0].External() || link.Ends[1].External():
		return External
	case !l.Record.Netem && (delayed(link.Egress(0)) || delayed(link.Egress(1))):
		return Line
	case link.Impaired() || link.Device:
		return Veth
	case isOVS(nodes[link.Ends[0].Node]) && isOVS(nodes[link.Ends[1].Node]):
		a, b := nodes[link.Ends[0].Node], nodes[link.Ends[1].Node]
		if tooDeep(a, b, nodes) || foreignDecides(a) || foreignDecides(b) {
			return Veth
		}
		return Patch
	case isEmbedded(nodes[link.Ends[0].Node]) && isEmbedded(nodes[link.Ends[1].Node]):
		return Virtual
	}
	return Veth
}

// foreignDecides says whether a switch has a controller of others. Patch ports have no state: Open vSwitch can only take them away
// when their link is down, which others than Trivet's controller may take for a port that was unplugged for good. Those of devices
// change their state, as on any other switch.
func foreignDecides(n *topology.Node) bool {
	return slices.ContainsFunc(n.Controllers, func(c string) bool { return c != topology.ControllerTrivet && c != topology.ControllerNone })
}

// patchedBridges is how many bridges patches join at most. Open vSwitch follows a packet through patches and tables up to a
// depth of 64 (MAX_DEPTH in ofproto/ofproto-dpif-xlate.c) and drops it there; a bridge takes one for each table.
const patchedBridges = 16

// tooDeep says whether a link between two bridges is to be a device, so that no way over patches gets too long. Where there are
// many bridges, those whose datapath ids are in the same sixteen are joined: neighbours mostly, and the same ones whatever
// else changes.
func tooDeep(a, b *topology.Node, nodes map[string]*topology.Node) bool {
	if a.DPID/patchedBridges == b.DPID/patchedBridges {
		return false
	}
	bridges := 0
	for _, n := range nodes {
		if isOVS(n) {
			bridges++
		}
	}
	return bridges > patchedBridges
}

func isOVS(n *topology.Node) bool {
	return n != nil && n.Datapath == topology.OVS
}

// nodes is an index of the topology's nodes by name.
func (l *Lab) nodes() map[string]*topology.Node { return l.is.Load().nodes }

func (l *Lab) node(name string) *topology.Node { return l.nodes()[name] }

// firstIndex is the index of the device at a host's port 0. The kernel takes an
// index that it is given, and what has one need not be looked up.
const firstIndex = 10

// makeVeths makes the links that are pairs of veth devices, in few requests.
func (l *Lab) makeVeths(links []plan.Link, done func()) error {
	b, err := netbatch.In(l.fabric)
	if err != nil {
		return err
	}
	defer b.Close()
	open := map[string]*os.File{}
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for _, k := range links {
		var devices [2]netbatch.Device
		for i, e := range k.Ends {
			if devices[i], err = l.device(i, e, open); err != nil {
				return err
			}
		}
		b.AddVeth(devices[0], devices[1])
		done()
	}
	return b.Flush()
}

// device plans one end of a link.
func (l *Lab) device(end int, e topology.Endpoint, open map[string]*os.File) (netbatch.Device, error) {
	d := netbatch.Device{Name: e.Interface, MAC: e.MAC}
	n := l.node(e.Node)
	if !ownsNamespaces(n) {
		d.Index = l.newIndex(e.Interface)
		return d, nil
	}
	// The ends of a pair differ in their index: Linux takes a veth device for one that may wait,
	// up to a second, to hear of its carrier (and to send until then) where they are the same.
	d.Index = firstIndex + 2**e.Port + end
	if open[n.Name] == nil {
		f, err := os.Open(l.nsPath("net", n.Name))
		if err != nil {
			return d, err
		}
		open[n.Name] = f
	}
	d.NS = open[n.Name]
	return d, nil
}

// ownIndexes is where the indexes begin that are given to devices in the switches' namespace:
// above those that the kernel counts out from 1 to devices made without, as TAP devices are.
const ownIndexes = 1 << 16

func (l *Lab) newIndex(name string) int {
	l.next++
	l.index[name] = l.next
	return l.next
}

// netPath is the network namespace in which a node's devices are.
func (l *Lab) netPath(node string) string {
	if n := l.node(node); n != nil && ownsNamespaces(n) {
		return l.nsPath("net", node)
	}
	return l.fabricPath()
}

// netnsOf opens the network namespace in which a node's devices are.
func (l *Lab) netnsOf(node string) (*os.File, error) { return os.Open(l.netPath(node)) }

// inNet runs f on a thread in the network namespace of a node's devices.
func (l *Lab) inNet(node string, f func() error) error {
	ns, err := l.netnsOf(node)
	if err != nil {
		return err
	}
	defer ns.Close()
	return inside.File(ns, f)
}

// makeLine makes a link of two TAP devices, held by the delay line.
func (l *Lab) makeLine(k plan.Link) error {
	if l.engine == nil {
		var err error
		if l.engine, err = delayline.NewEngine(0); err != nil {
			return err
		}
	}
	var fds, indexes [2]int
	for i, e := range k.Ends {
		err := l.inNet(e.Node, func() (err error) {
			fds[i], err = delayline.OpenTap(e.Interface, true)
			if err != nil {
				return err
			}
			if err := l.adopt(e); err != nil {
				return err
			}
			indexes[i], err = indexOf(e.Interface)
			return err
		})
		if err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
	}
	line, err := l.engine.Add(fds[0], fds[1], k.Egress(0), k.Egress(1), delayline.Options{Plain: [2]bool{l.plain(k.Ends[0]), l.plain(k.Ends[1])}})
	if err != nil {
		return fmt.Errorf("link %s: %w", k.Name(), err)
	}
	l.lines[k.Key] = line
	for i, e := range k.Ends {
		if err := l.power.watch(l.netPath(e.Node), indexes[i], line, i); err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
	}
	return nil
}

// plain says whether an end needs complete frames.
func (l *Lab) plain(e topology.Endpoint) bool {
	return l.ovs.Load() != nil && l.ovs.Load().NeedsChecksums() && isOVS(l.node(e.Node))
}

// adopt makes a device that others made one of the lab's: its MAC, its group. It runs in the device's namespace.
func (l *Lab) adopt(e topology.Endpoint) error {
	dev, err := netlink.LinkByName(e.Interface)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetGroup(dev, netbatch.Group); err != nil {
		return err
	}
	if e.MAC != (topology.MAC{}) {
		if err := netlink.LinkSetHardwareAddr(dev, e.MAC[:]); err != nil {
			return fmt.Errorf("set the MAC of %s: %w", e.Interface, err)
		}
	}
	l.note(e.Node, dev)
	return nil
}

// addLinks makes links.
func (l *Lab) addLinks(s plan.Steps, done func()) error {
	var veths []plan.Link
	for _, k := range s.AddLinks {
		var err error
		switch l.WireOf(k.Link) {
		case Veth:
			veths = append(veths, k)
			continue
		case Line:
			err = l.makeLine(k)
		case External:
			err = l.takeExternal(k.Link)
		case Patch, Virtual: // applySwitches makes it
		}
		if err != nil {
			return err
		}
		done()
	}
	return l.makeVeths(veths, done)
}

// dropLinks removes links' devices, as far as they were made; patch ports go with the next applySwitches.
func (l *Lab) dropLinks(links []plan.Link) error {
	var errs []error
	for _, k := range links {
		switch l.WireOf(k.Link) {
		case Veth, Line:
			if line := l.lines[k.Key]; line != nil {
				l.power.forget(line)
				_, err := line.Close()
				errs = append(errs, err)
				delete(l.lines, k.Key)
			}
			for _, e := range k.Ends {
				errs = append(errs, inNamespaceFile(l.netPath(e.Node), func() error { return netbatch.Delete(e.Interface) }))
				l.forgetDevice(e.Interface)
			}
		case External:
			errs = append(errs, l.releaseExternal(k.Link))
		}
	}
	return errors.Join(errs...)
}

// forgetDevice forgets a device that is not in the switches' namespace any more: another one may have its index.
func (l *Lab) forgetDevice(name string) {
	delete(l.index, name)
	delete(l.raised, name)
}

func indexOf(name string) (int, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return dev.Attrs().Index, nil
}

// shapeLinks sets impairments, offloads and whether links are up.
func (l *Lab) shapeLinks(s plan.Steps, done func()) error {
	if err := l.setChecksums(s.AddLinks); err != nil {
		return err
	}
	var links []plan.Link
	for _, k := range s.AddLinks {
		if k.Impaired() || k.Down {
			links = append(links, k)
		}
	}
	shape := func(k plan.Link, plug bool) error {
		defer done()
		err := l.impair(k)
		if err == nil && plug {
			err = l.setLinkUp(k)
		}
		if err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
		return nil
	}
	return errors.Join(
		parallel.Each(links, func(k plan.Link) error { return shape(k, true) }),
		parallel.Each(s.SetLinks, func(k plan.Link) error { return shape(k, s.Plugged[k.Key]) }),
	)
}

// setChecksums makes hosts compute checksums where Open vSwitch forwards in user space.
func (l *Lab) setChecksums(links []plan.Link) error {
	if l.ovs.Load() == nil || !l.ovs.Load().NeedsChecksums() {
		return nil
	}
	return parallel.Each(links, func(k plan.Link) error {
		for _, e := range k.Ends {
			if e.External() || !ownsNamespaces(l.node(e.Node)) {
				continue
			}
			err := l.inNet(e.Node, func() error { return setOffloads(e.Interface, []uint32{unix.ETHTOOL_STXCSUM}, false) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// impair shapes a link as it is in the topology.
func (l *Lab) impair(k plan.Link) error {
	if line := l.lines[k.Key]; line != nil {
		return line.Set(k.Egress(0), k.Egress(1))
	}
	if wire := l.WireOf(k.Link); wire == Patch || wire == Virtual {
		return nil // applySwitches does it
	}
	for i, e := range k.Ends {
		if e.External() {
			continue
		}
		name := e.Interface
		if k.Ends[1-i].External() {
			name = k.Ends[1-i].Interface
		}
		err := l.inNet(e.Node, func() error {
			index, err := indexOf(name)
			if err != nil {
				return err
			}
			if err := shape(index, k.Egress(i)); err != nil {
				return err
			}
			whole := wholeSegments(k.Egress(0)) && wholeSegments(k.Egress(1))
			return errors.Join(setOffloads(name, segmentation, whole), setOffloads(name, joining, false))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setLinkUp pulls or plugs the cable: one end is set down, so that the other loses its carrier and keeps its addresses and
// routes. The routes of a node at the end that was down are set anew when it is up.
func (l *Lab) setLinkUp(k plan.Link) error {
	if line := l.lines[k.Key]; line != nil {
		return line.Up(!k.Down)
	}
	if wire := l.WireOf(k.Link); wire == Patch || wire == Virtual {
		return nil // applySwitches does it
	}
	e := l.cableEnd(k.Link)
	n := l.node(e.Node)
	if !k.Down && ownsNamespaces(n) {
		return l.configureNode(n, nil, topology.EndsOf(l.Topology())[n.Name])
	}
	if !k.Down && l.shut(e.Node, e) {
		return nil
	}
	return l.inNet(e.Node, func() error {
		dev, err := netlink.LinkByName(e.Interface)
		if err != nil {
			return err
		}
		if k.Down {
			return netlink.LinkSetDown(dev)
		}
		return netlink.LinkSetUp(dev)
	})
}

// cableEnd is the end of a link that is set down while the link is: a switch's if there is one, else the second node's. Where the link is a real
// interface that is the device at its only node.
func (l *Lab) cableEnd(k *topology.Link) topology.Endpoint {
	for i, e := range k.Ends {
		if e.External() {
			inside := k.Ends[1-i]
			inside.Interface = e.Interface
			return inside
		}
	}
	if ownsNamespaces(l.node(k.Ends[1].Node)) && !ownsNamespaces(l.node(k.Ends[0].Node)) {
		return k.Ends[0]
	}
	return k.Ends[1]
}

// pulled are the interfaces of a node that are down because their links are.
func (l *Lab) pulled(node string) map[string]bool {
	out := map[string]bool{}
	for _, k := range l.Topology().Links {
		if wire := l.WireOf(k); k.Down && (wire == Veth || wire == External) {
			if e := l.cableEnd(k); e.Node == node {
				out[e.Interface] = true
			}
		}
	}
	return out
}
