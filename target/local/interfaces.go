package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// Interfaces of nodes besides those of links (topology.Interface).

// interfaceKind says how the kernel makes interfaces of a kind in topology.InterfaceKinds.
type interfaceKind struct {
	module string
	// Returns what to ask the kernel for; on is the index of the device below, or 0.
	device func(i *topology.Interface, a netlink.LinkAttrs, on int) netlink.Link

	closed bool // it takes members only while they are down
}

var interfaceKinds = map[string]interfaceKind{
	"vlan": {module: "8021q", device: func(i *topology.Interface, a netlink.LinkAttrs, on int) netlink.Link {
		a.ParentIndex = on
		// Setting a device down stands for a pulled cable: VLANs on it keep their addresses and
		// routes.
		return &netlink.Vlan{LinkAttrs: a, VlanId: i.VLAN, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q,
			LooseBinding: new(true)}
	}},
	"bridge": {module: "bridge", device: func(_ *topology.Interface, a netlink.LinkAttrs, _ int) netlink.Link {
		return &netlink.Bridge{LinkAttrs: a}
	}},
	"bond": {module: "bonding", closed: true,
		device: func(i *topology.Interface, a netlink.LinkAttrs, _ int) netlink.Link {
			b := netlink.NewLinkBond(a)
			b.Mode, b.Miimon = netlink.BOND_MODE_BALANCE_RR, bondMonitor
			if i.Mode != "" {
				b.Mode = netlink.StringToBondMode(string(i.Mode))
			}
			return b
		}},
	"vrf": {module: "vrf", device: func(i *topology.Interface, a netlink.LinkAttrs, _ int) netlink.Link {
		return &netlink.Vrf{LinkAttrs: a, Table: uint32(i.Table)}
	}},
	"vxlan": {module: "vxlan", device: func(i *topology.Interface, a netlink.LinkAttrs, on int) netlink.Link {
		return &netlink.Vxlan{LinkAttrs: a, VxlanId: i.VXLAN, SrcAddr: ip(i.Local), Group: ip(i.Remote),
			VtepDevIndex: on, Port: netbatch.VXLANPort, Learning: i.Remote.IsValid(), UDPCSum: true}
	}},
	"gre": {module: "ip_gre", device: func(i *topology.Interface, a netlink.LinkAttrs, on int) netlink.Link {
		return &netlink.Gretun{LinkAttrs: a, Local: ip(i.Local), Remote: ip(i.GRE), Link: uint32(on), PMtuDisc: 1}
	}},
	"dummy": {module: "dummy", device: func(_ *topology.Interface, a netlink.LinkAttrs, _ int) netlink.Link {
		return &netlink.Dummy{LinkAttrs: a}
	}},
}

// bondMonitor is the interval, in milliseconds, at which a bond polls its members' carriers: by
// default the kernel does not.
const bondMonitor = 100

func ip(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

// checkInterfaces says which kinds of interfaces this kernel lacks. That shows only when one is
// made, as the kernel then loads the module.
func checkInterfaces(t *topology.Topology) error {
	type wants struct {
		node *topology.Node
		i    *topology.Interface
	}
	kinds := map[string]wants{} // by the kernel's name of the kind
	for _, n := range t.Nodes {
		for k := range n.Interfaces {
			i := &n.Interfaces[k]
			kind := deviceOf(i, 0).Type()
			if _, ok := kinds[kind]; !ok {
				kinds[kind] = wants{n, i}
			}
		}
	}
	if len(kinds) == 0 || os.Geteuid() != 0 {
		return nil
	}
	ns, err := inside.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	return inside.File(ns, func() error {
		var lacks []error
		for kind, w := range kinds {
			if has, err := kernelMakes(kind); err != nil {
				return err
			} else if has {
				continue
			}
			is, module := w.i.Kind(), interfaceKinds[w.i.Kind().Name].module
			if kind == "ip6gre" {
				module = "ip6_gre"
			}
			lacks = append(lacks,
				lack.New(fmt.Sprintf("%s %s: interface %s: this kernel cannot make %s (it has no devices of the kind %s)",
					w.node.Kind, w.node.Name, w.i.Name, is.Is, kind), ":  ", "modprobe "+module))
		}
		slices.SortFunc(lacks, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return errors.Join(lacks...)
	})
}

// kernelMakes says whether the kernel knows a kind of devices; it tries in a temporary namespace.
func kernelMakes(kind string) (bool, error) {
	err := netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "trivet-try"}, LinkType: kind})
	switch {
	case err == nil:
		return true, netbatch.Delete("trivet-try")
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.EPERM):
		return false, fmt.Errorf("make a device of the kind %s: %w", kind, err)
	}
	return true, nil // the kind is known, but needs parameters
}

// deviceOf returns the device to ask the kernel for.
func deviceOf(i *topology.Interface, on int) netlink.Link {
	a := netlink.NewLinkAttrs()
	a.Name, a.Group, a.MTU = i.Name, netbatch.Group, i.MTU
	if i.MAC != (topology.MAC{}) {
		a.HardwareAddr = i.MAC[:]
	}
	return interfaceKinds[i.Kind().Name].device(i, a, on)
}

// makeInterfaces makes a node's interfaces, in the thread's namespace, in place of those of an old
// node, which may be nil. Interfaces that are already right stay. pulled are devices that stay
// down.
func makeInterfaces(n, old *topology.Node, pulled map[string]bool) error {
	was := map[string]*topology.Interface{}
	if old != nil {
		kept, take := map[string]bool{}, daemonsTake(n, old)
		for _, i := range n.Interfaces {
			kept[i.Name] = true
		}
		for _, i := range slices.Backward(old.InterfacesInOrder()) {
			if kept[i.Name] {
				before, theirs := *i, take[i.Name]
				before.Addresses = slices.DeleteFunc(slices.Clone(i.Addresses),
					func(p netip.Prefix) bool { return slices.Contains(theirs, p) })
				was[i.Name] = &before
				continue
			}
			if err := deleteOurs(i.Name); err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
		}
	}
	for _, i := range n.InterfacesInOrder() {
		if err := makeInterface(i, was[i.Name], pulled); err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	return nil
}

// makeInterface makes an interface, or changes an existing one. The interfaces below it exist.
func makeInterface(i, was *topology.Interface, pulled map[string]bool) error {
	on := 0
	if i.On != "" {
		var err error
		if on, err = indexOf(i.On); err != nil {
			return fmt.Errorf("find %s: %w", i.On, err)
		}
	}
	has, err := netlink.LinkByName(i.Name)
	switch {
	case errors.As(err, &netlink.LinkNotFoundError{}):
		has = nil
	case err != nil:
		return err
	case has.Attrs().Group != netbatch.Group:
		return topology.Mistaken("remove it, or give the interface another name",
			"there is a device of that name that somebody else has made")
	case was != nil && !i.SetFrom(was) || on > 0 && has.Attrs().ParentIndex > 0 && has.Attrs().ParentIndex != on:
		if err := netbatch.Delete(i.Name); err != nil {
			return err
		}
		has = nil
	}
	if has == nil {
		if err := netlink.LinkAdd(deviceOf(i, on)); err != nil {
			return fmt.Errorf("make it: %w", err)
		}
		if has, err = netlink.LinkByName(i.Name); err != nil {
			return err
		}
	} else if err := setInterface(has, i, was); err != nil {
		return err
	}
	return setMembers(has, i.Members(), interfaceKinds[i.Kind().Name].closed, pulled)
}

// setInterface sets those properties of an interface that can change in place, except its members,
// and removes the addresses of was.
func setInterface(has netlink.Link, i, was *topology.Interface) error {
	a := has.Attrs()
	if i.MTU != 0 {
		if err := setMTU(i.Name, i.MTU); err != nil {
			return err
		}
	}
	if i.MAC != (topology.MAC{}) && !slices.Equal(a.HardwareAddr, i.MAC[:]) {
		if err := netlink.LinkSetHardwareAddr(has, i.MAC[:]); err != nil {
			return fmt.Errorf("set the MAC to %s: %w", i.MAC, err)
		}
	}
	if was == nil {
		return nil
	}
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	for _, p := range was.Addresses {
		if !slices.Contains(i.Addresses, p) {
			b.DelAddress(a.Index, p)
		}
	}
	_ = b.Flush() // fails for addresses that the user has deleted already
	return nil
}

// setMembers makes these devices the only members of a master.
func setMembers(master netlink.Link, members []string, closed bool, pulled map[string]bool) error {
	all, err := netlink.LinkList()
	if err != nil {
		return err
	}
	index := master.Attrs().Index
	by := map[string]netlink.Link{}
	for _, dev := range all {
		a := dev.Attrs()
		by[a.Name] = dev
		if a.MasterIndex == index && !slices.Contains(members, a.Name) {
			if err := netlink.LinkSetNoMaster(dev); err != nil {
				return fmt.Errorf("take %s out: %w", a.Name, err)
			}
		}
	}
	for _, name := range members {
		dev := by[name]
		switch {
		case dev == nil:
			return fmt.Errorf("find %s: it is not there", name)
		case dev.Attrs().MasterIndex == index:
			continue
		}
		if closed {
			if err := netlink.LinkSetDown(dev); err != nil {
				return fmt.Errorf("set %s down: %w", name, err)
			}
		}
		if err := netlink.LinkSetMasterByIndex(dev, index); err != nil {
			return fmt.Errorf("make %s a member: %w", name, err)
		}
		if pulled[name] { // a bond sets its members up
			if err := netlink.LinkSetDown(dev); err != nil {
				return fmt.Errorf("set %s down: %w", name, err)
			}
		}
	}
	return nil
}
