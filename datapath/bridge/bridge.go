// Package bridge is the datapath of Linux bridges: switches that learn by themselves.
package bridge

import (
	"context"
	"slices"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

func init() {
	datapath.Register(datapath.Kind{Names: []topology.Datapath{topology.Bridge}, Lacks: lacks,
		New: func(s datapath.Site) datapath.Fabric {
			return &fabric{site: s, member: map[string]int{}, apart: map[string]int{}}
		}})
}

type fabric struct {
	datapath.Base
	site   datapath.Site
	member map[string]int // indexes of the devices that have joined a bridge, by name
	apart  map[string]int // indexes of the bridges with VLAN filtering, by name
}

func is(n *topology.Node) bool { return n != nil && n.Datapath == topology.Bridge }

// port is a device that belongs to a bridge.
type port struct {
	link   *topology.Link
	name   string
	index  int
	of     string // the bridge
	bridge int    // its index
	vlans  topology.PortVLANs
}

func (f *fabric) ports() (out []port) {
	vlans := topology.VLANPorts(f.site.Topology())
	for _, link := range f.site.Topology().Links {
		for i, e := range link.Ends {
			n := f.site.Node(e.Node)
			if e.External() {
				// A real interface serves as the device of the node at the other end.
				n = f.site.Node(link.Ends[1-i].Node)
			}
			if index := f.site.Device(e.Interface); index != 0 && is(n) {
				at := i
				if e.External() {
					at = 1 - i
				}
				bridge := topology.DeviceName(n.Name)
				out = append(out, port{link, e.Interface, index, bridge, f.site.Device(bridge), vlans[link][at]})
			}
		}
	}
	return out
}

// Make makes bridges.
func (f *fabric) Make(_ context.Context, s plan.Steps) error {
	return f.tell(func(b *netbatch.Batch) {
		for _, n := range s.AddNodes {
			if is(n) {
				name := topology.DeviceName(n.Name)
				b.AddBridge(name, f.site.NewDevice(name), n.STP)
			}
		}
	})
}

// Drop removes a bridge.
func (f *fabric) Drop(n *topology.Node) error {
	name := topology.DeviceName(n.Name)
	f.site.ForgetDevice(name)
	delete(f.apart, name)
	return inside.File(f.site.Namespace(), func() error { return netbatch.Delete(name) })
}

// Resume finds out which devices are in bridges that another process has made.
func (f *fabric) Resume(context.Context) error {
	return inside.File(f.site.Namespace(), func() error {
		list, err := netlink.LinkList()
		for _, dev := range list {
			if b, ok := dev.(*netlink.Bridge); ok && b.VlanFiltering != nil && *b.VlanFiltering {
				f.apart[b.Name] = b.Index
			}
			if a := dev.Attrs(); a.MasterIndex != 0 {
				f.member[a.Name] = a.Index
			}
		}
		return err
	})
}

// Hold removes the devices of blocked links from their bridges. Setting the port's state instead
// would not last: a bridge without spanning tree makes all its ports forward again whenever one of
// them has an event. Links that did not forward before need no such step: they are not up yet, or
// not in their bridges. Bridges are set up here.
func (f *fabric) Hold(_ context.Context, forwarding plan.Forwarding) error {
	return f.tell(func(b *netbatch.Batch) {
		f.each(func(name string, index int) { b.SetUp(name, index, true) })
		for _, p := range f.ports() {
			if forwarding.Blocked[p.link] && f.member[p.name] == p.index {
				delete(f.member, p.name)
				b.SetMaster(p.name, p.index, 0)
			}
		}
	})
}

// Apply adds devices to their bridges, and sets their VLANs. If what bridges have learned may be
// stale, it flushes that.
func (f *fabric) Apply(_ context.Context, forwarding plan.Forwarding) error {
	if err := f.tellApart(); err != nil {
		return err
	}
	var joining []port
	err := f.tell(func(b *netbatch.Batch) {
		for _, p := range f.ports() {
			if !forwarding.Blocked[p.link] && f.member[p.name] != p.index {
				joining = append(joining, p)
				b.SetMaster(p.name, p.index, p.bridge)
			}
		}
		if forwarding.Stale {
			f.each(b.FlushBridge)
		}
	})
	if err == nil { // after an error the state is unknown; adding a device twice does no harm
		for _, p := range joining {
			f.member[p.name] = p.index
		}
		err = f.setVLANs()
	}
	return err
}

// each calls do for all bridges.
func (f *fabric) each(do func(name string, index int)) {
	for _, n := range f.site.Topology().Nodes {
		if name := topology.DeviceName(n.Name); is(n) {
			do(name, f.site.Device(name))
		}
	}
}

// tell sends the kernel the batch that add fills, if the lab has bridges at all.
func (f *fabric) tell(add func(*netbatch.Batch)) error {
	if !slices.ContainsFunc(f.site.Topology().Nodes, is) {
		return nil
	}
	b, err := netbatch.In(f.site.Namespace())
	if err != nil {
		return err
	}
	defer b.Close()
	add(b)
	return b.Flush()
}
