package local

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// NeedsDevices says whether a link has no devices and must be made anew, with devices, for a
// capture.
func (l *Lab) NeedsDevices(link *topology.Link) bool {
	_, shows := l.fabricOf(l.node(link.Ends[0].Node)).(datapath.Mirror)
	return l.WireOf(link).Inner() && !shows
}

// WireOf says how a link of the lab is made.
func (l *Lab) WireOf(link *topology.Link) datapath.Wire { return l.wireOf(link, l.is.Load()) }

// WiresOf says how the links of a topology of the lab are made, in order. It may be called at any
// time.
func (l *Lab) WiresOf(t *topology.Topology) []datapath.Wire {
	out, in := make([]datapath.Wire, len(t.Links)), l.indexing(t)
	for i, link := range t.Links {
		out[i] = l.wireOf(link, in)
	}
	return out
}

// Devices says which kernel features are used: Open vSwitch's datapath, and what impairs links. It
// may be called once the lab is up.
func (l *Lab) Devices() map[string]string {
	out := map[string]string{"impairment": "delay line (this kernel has no netem)"}
	if l.Record.Netem {
		out["impairment"] = "netem"
	}
	if slices.ContainsFunc(l.Topology().Links,
		func(k *topology.Link) bool { return k.Egress(0).Managed() || k.Egress(1).Managed() }) {
		out["queues"] = "delay lines manage them (this kernel has no such disciplines)"
		if len(l.Record.Disciplines) > 0 {
			out["queues"] = "the kernel manages them, but for those of delay lines"
		}
	}
	for _, f := range l.fabrics {
		if d, ok := f.Fabric.(datapath.Described); ok {
			maps.Copy(out, d.About())
		}
	}
	_ = eachKind(l, func(_ string, d datapath.Described) error { maps.Copy(out, d.About()); return nil })
	return out
}

// Accelerators says, by node, how the processors of virtual machines are emulated.
func (l *Lab) Accelerators() map[string]string {
	out := map[string]string{}
	for _, n := range l.Topology().Nodes {
		ask := func(of any) {
			if d, ok := of.(datapath.Accelerated); ok {
				if how := d.AcceleratorOf(n); how != "" {
					out[n.Name] = how
				}
			}
		}
		for _, f := range l.fabrics {
			ask(f.Fabric)
		}
		if n.Kind != topology.Controller {
			ask(l.nodesOf(n))
		}
	}
	return out
}

// lacks returns the queueing discipline or the link option that the kernel lacks for a direction of
// a link; "" if it has all.
func (r *Record) lacks(i topology.Impairment) string {
	switch option := i.Unknown(kernelOptions); {
	case option != "":
		return option
	case delayed(i) && !r.Netem:
		return "netem"
	case i.Managed() && !slices.Contains(r.Disciplines, i.Queue.Discipline):
		return string(i.Queue.Discipline)
	}
	return ""
}

// wireOf depends only on the link, its nodes, whether others take larger packets, and the record.
func (l *Lab) wireOf(link *topology.Link, in *indexed) datapath.Wire {
	far := carried(link)
	switch {
	case far >= 0 && (l.Record.lacks(link.Egress(1-far)) != "" || served(link, in.nodes)):
		return datapath.Line
	case link.Ends[0].External() || link.Ends[1].External():
		return datapath.External
	case l.Record.lacks(link.Egress(0)) != "" || l.Record.lacks(link.Egress(1)) != "" || served(link, in.nodes):
		return datapath.Line
	case link.Impaired() || link.Device || link.Named || in.jumbo: // a device looks at how large packets are
		return datapath.Veth
	case joined(link, in.nodes) != nil:
		return joined(link, in.nodes).Inner
	}
	return datapath.Veth
}

// joined returns the kind of datapath inside which an unimpaired link runs, or nil if it needs
// devices.
func joined(link *topology.Link, nodes map[string]*topology.Node) *datapath.Kind {
	a, b := nodes[link.Ends[0].Node], nodes[link.Ends[1].Node]
	kind := datapath.Of(a.Datapath)
	if kind == nil || kind.Joins == nil || kind != datapath.Of(b.Datapath) || !kind.Joins(a, b, nodes) {
		return nil
	}
	return kind
}

// nodes is an index of the topology's nodes by name.
func (l *Lab) nodes() map[string]*topology.Node { return l.is.Load().nodes }

func (l *Lab) node(name string) *topology.Node { return l.nodes()[name] }

// firstIndex is the index of the device at a host's port 0. The kernel accepts indexes that it is
// given, so they need not be looked up.
const firstIndex = 10

// makeVeths makes the links that are pairs of veth devices, in a few requests.
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
			devices[i].MTU = uint32(k.Egress(i).MTU)
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
	// The two ends of a pair get different indexes: if they are equal, Linux takes the device for
	// one whose carrier events may be delayed by up to a second, and which sends nothing until
	// then.
	if !n.Made().Whole {
		d.Index = firstIndex + 2**e.Port + end
	}
	if open[n.Name] == nil {
		f, err := l.netnsOf(n.Name)
		if err != nil {
			return d, err
		}
		open[n.Name] = f
	}
	d.NS = open[n.Name]
	return d, nil
}

// ownIndexes is the first index that we give to devices in the switches' namespace. It is above
// those that the kernel assigns, from 1 upwards, to devices made without one, such as TAP devices.
const ownIndexes = 1 << 16

func (l *Lab) newIndex(name string) int {
	l.next++
	l.index[name] = l.next
	return l.next
}

// netPath is the network namespace in which a node's devices are.
func (l *Lab) netPath(node string) string {
	n := l.node(node)
	return l.nodesOf(n).Network(n)
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

// makeLine makes a link of two TAP devices, held by the delay line; see also openCarried.
func (l *Lab) makeLine(k plan.Link) error {
	if l.engine == nil {
		var err error
		if l.engine, err = delayline.NewEngine(0); err != nil {
			return err
		}
	}
	var fds, indexes [2]int
	for i, e := range k.Ends {
		if e.Carrier != nil {
			var err error
			if fds[i], err = l.openCarried(*e.Carrier, max(k.MTUAt(0), k.MTUAt(1))); err != nil {
				return fmt.Errorf("link %s: %w", k.Name(), err)
			}
			continue
		}
		err := l.inNet(e.Node, func() (err error) {
			fds[i], err = delayline.OpenTap(e.Interface, true)
			if err != nil {
				return err
			}
			if err := l.adopt(e); err != nil {
				return err
			}
			if err := setMTU(e.Interface, k.Egress(i).MTU); err != nil {
				return err
			}
			indexes[i], err = indexOf(e.Interface)
			return err
		})
		if err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
	}
	impair := egresses(k.Link)
	line, err := l.engine.Add(fds[0], fds[1], impair[0], impair[1], delayline.Options{
		Plain: [2]bool{l.plain(k.Ends[0]), l.plain(k.Ends[1])}, Devices: l.devicesOf(k.Link)})
	if err != nil {
		return fmt.Errorf("link %s: %w", k.Name(), err)
	}
	l.lines[k.Key] = line
	for i, e := range k.Ends {
		if e.Carrier != nil {
			continue // that device is ours alone
		}
		if err := l.power.watch(l.netPath(e.Node), indexes[i], line, i); err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
	}
	return nil
}

// plain says whether an end needs complete frames, without super-packets or missing checksums.
func (l *Lab) plain(e topology.Endpoint) bool {
	if e.Carrier != nil {
		return false
	}
	return needsChecksums(l.fabricOf(l.node(e.Node)))
}

// adopt makes a device that others made the lab's: it sets its MAC address and its group. It runs
// in the device's namespace.
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
		case datapath.Veth:
			veths = append(veths, k)
			continue
		case datapath.Line:
			err = l.makeLine(k)
		case datapath.External:
			err = l.takeExternal(k.Link)
		default: // its fabric makes the link
		}
		if err != nil {
			return err
		}
		done()
	}
	return l.makeVeths(veths, done)
}

// dropLinks removes links' devices, as far as they exist; patch ports disappear with the next
// applySwitches.
func (l *Lab) dropLinks(links []plan.Link) error {
	var errs []error
	for _, k := range links {
		delete(l.past, k.Key)
		errs = append(errs, l.forgetPulled(k))
		switch l.WireOf(k.Link) {
		case datapath.Veth, datapath.Line:
			if line := l.lines[k.Key]; line != nil {
				l.power.forget(line)
				_, err := line.Close()
				errs = append(errs, err)
				delete(l.lines, k.Key)
			}
			for _, e := range k.Ends {
				if e.Carrier != nil {
					errs = append(errs, l.closeCarried(*e.Carrier))
					continue
				}
				errs = append(errs, inNamespaceFile(l.netPath(e.Node), func() error { return deleteOurs(e.Interface) }))
				l.forgetDevice(e.Interface)
			}
		case datapath.External:
			errs = append(errs, l.releaseExternal(k.Link))
		}
	}
	return errors.Join(errs...)
}

// forgetDevice forgets a device that is no longer in the switches' namespace: another may get its
// index.
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

// shapeLinks sets links' impairments, offloads, and whether they are up.
func (l *Lab) shapeLinks(s plan.Steps, done func()) error {
	if err := l.setChecksums(s.AddLinks); err != nil {
		return err
	}
	if err := l.keepPulled(s); err != nil {
		return err
	}
	l.keepCounts(s)
	links := lists.Filter(s.AddLinks, func(k plan.Link) bool { return k.Impaired() || k.Down })
	shape := func(k plan.Link, impair, plug bool) error {
		defer done()
		var err error
		if s.Resized[k.Key] {
			err = l.resize(k)
		}
		if err == nil && impair { // otherwise its queues stay, which may be the user's
			err = l.impair(k)
		}
		if err == nil && plug {
			err = l.setLinkUp(k)
		}
		if err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
		return nil
	}
	err := errors.Join(
		parallel.Each(links, func(k plan.Link) error { return shape(k, true, true) }),
		parallel.Each(s.SetLinks, func(k plan.Link) error { return shape(k, s.Impaired[k.Key], s.Plugged[k.Key]) }),
	)
	if err != nil {
		return err
	}
	return l.forgetPulled(slices.DeleteFunc(slices.Clone(s.SetLinks), func(k plan.Link) bool { return k.Down })...)
}

// resize sets the MTU of an existing link as the topology says.
func (l *Lab) resize(k plan.Link) error {
	if l.WireOf(k.Link).Inner() {
		return nil // one that has an MTU has devices
	}
	for i, e := range k.Ends {
		if e.External() {
			continue
		}
		name, mtu := e.Interface, k.MTUAt(i)
		if far := k.Ends[1-i]; far.External() {
			name, mtu = far.Interface, cmp.Or(k.Egress(i).MTU, l.usualMTU(far.Interface))
		}
		if err := l.inNet(e.Node, func() error { return setMTU(name, mtu) }); err != nil {
			return err
		}
	}
	return nil
}

// usualMTU returns the MTU that an interface of the machine had before the lab took it.
func (l *Lab) usualMTU(name string) int {
	if at := slices.IndexFunc(l.Record.External, func(x external) bool { return x.Name == name }); at >= 0 {
		return l.Record.External[at].MTU
	}
	return MTU
}

// setMTU sets the MTU of a device in the caller's namespace; 0 leaves it as it is.
func setMTU(name string, mtu int) error {
	if mtu == 0 {
		return nil
	}
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(dev, mtu); err != nil {
		return fmt.Errorf("set the MTU of %s to %d: %w", name, mtu, err)
	}
	return nil
}

// setChecksums makes hosts compute checksums if a fabric needs them.
func (l *Lab) setChecksums(links []plan.Link) error {
	if !l.needChecksums() {
		return nil
	}
	return parallel.Each(links, func(k plan.Link) error {
		for _, e := range k.Ends {
			if e.External() || !ownsNamespaces(l.node(e.Node)) {
				continue
			}
			err := l.inNet(e.Node,
				func() error { return setOffloads(e.Interface, []uint32{unix.ETHTOOL_STXCSUM}, false) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// impair shapes a link as the topology says.
func (l *Lab) impair(k plan.Link) error {
	if line := l.lines[k.Key]; line != nil {
		impair := egresses(k.Link)
		for i, e := range k.Ends {
			if option := impair[i].Unknown(delayline.LinkOptions); option != "" {
				return topology.Mistaken("leave it out", "link %s: a delay line cannot do %s", k.Name(), option)
			}
			if e.Carrier != nil {
				continue
			}
			if err := l.inNet(e.Node,
				func() error { return claimSpeed(e.Interface, k.Egress(i).Bandwidth) }); err != nil {
				return err
			}
		}
		return line.Set(impair[0], impair[1])
	}
	if l.WireOf(k.Link).Inner() {
		return nil // its fabric does it
	}
	for i, e := range k.Ends {
		if e.External() {
			continue
		}
		name := k.DeviceAt(i)
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

// setLinkUp pulls or plugs the cable: one end is set down, so that the other loses its carrier but
// keeps its addresses and routes. When the link comes up, a node at the end that was down gets back
// what it had, or what the topology gives it if that end has never been up.
func (l *Lab) setLinkUp(k plan.Link) error {
	if line := l.lines[k.Key]; line != nil {
		return line.Up(!k.Down)
	}
	if l.WireOf(k.Link).Inner() {
		return nil // its fabric does it
	}
	e := l.cableEnd(k.Link)
	n := l.node(e.Node)
	if was, kept := l.Record.Pulled[pulledKey(e)]; !k.Down && kept {
		return l.putBack(n, e, was)
	}
	if !k.Down && ownsNamespaces(n) {
		return l.configureNode(n, nil, topology.EndsOf(l.Topology())[n.Name], nil)
	}
	if !k.Down && l.port(e).Shut {
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

// cableEnd is the end of a link that is set down while the link is down: a switch's if there is
// one, else the second node's. If the link is a real interface, it is that device, at the link's
// only node.
func (l *Lab) cableEnd(k *topology.Link) topology.Endpoint { return cableEnd(k, l.nodes()) }

func cableEnd(k *topology.Link, nodes map[string]*topology.Node) topology.Endpoint {
	for i, e := range k.Ends {
		if e.External() {
			inside := k.Ends[1-i]
			inside.Interface = e.Interface
			return inside
		}
	}
	if ownsNamespaces(nodes[k.Ends[1].Node]) && !ownsNamespaces(nodes[k.Ends[0].Node]) {
		return k.Ends[0]
	}
	return k.Ends[1]
}
