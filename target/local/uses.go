package local

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/topology"
)

// elsewhere says whether a node is at another site than this part's.
func elsewhere(t *topology.Topology, n *topology.Node) bool {
	return t.Site != "" && n != nil && n.Sited() != t.Site
}

// checkExternals says which interfaces of the machine a topology must not take: those that are part
// of something on the machine which could not be restored and, unless the file says that this is
// intended, those that the machine uses.
func checkExternals(t *topology.Topology) error {
	nodes := t.NodesByName()
	var p topology.Problems
	for _, link := range t.Links {
		for i, e := range link.Ends {
			if !e.External() || e.Carrier != nil || e.Network != "" || elsewhere(t, nodes[link.Ends[1-i].Node]) {
				continue
			}
			dev, err := netlink.LinkByName(e.Interface)
			if errors.As(err, &netlink.LinkNotFoundError{}) {
				continue // the lab has it already; or it does not exist, which taking it will report
			}
			if err != nil {
				return err
			}
			part, hint, err := partOf(dev)
			if err != nil {
				return err
			}
			if part != "" {
				p.Add(link.Pos, hint, "link %s: interface %s %s", link.Name(), e.Interface, part)
			}
			uses, err := usesOf(dev)
			if err != nil {
				return err
			}
			if len(uses) > 0 && !e.Take {
				p.Add(link.Pos,
					fmt.Sprintf("if you mean that, say so in the link's options: {%s: {take: true}}",
						[2]string{"from", "to"}[i]),
					"link %s: the machine uses %s: it has %s. The lab would take it away until the lab is down, also from anyone logged in through it",
					link.Name(), e.Interface, strings.Join(uses, " and "))
			}
		}
	}
	return p.Err()
}

// partOf says which device of the machine an interface is part of.
func partOf(dev netlink.Link) (what, hint string, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", "", err
	}
	a := dev.Attrs()
	for _, other := range links {
		o := other.Attrs()
		switch {
		case a.MasterIndex != 0 && o.Index == a.MasterIndex:
			return "is part of " + o.Name, fmt.Sprintf("take it out first:  sudo ip link set %s nomaster", a.Name), nil
		case o.ParentIndex == a.Index && o.NetNsID < 0 && other.Type() != "veth": // a veth's parent is its peer
			return "carries " + o.Name, fmt.Sprintf("remove %s first", o.Name), nil
		}
	}
	return "", "", nil
}

// usesOf lists what the machine uses an interface for: its addresses, and the default route.
func usesOf(dev netlink.Link) (uses []string, err error) {
	addresses, err := netlink.AddrList(dev, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var with []string
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.IsLinkLocalUnicast() {
			with = append(with, a.IPNet.String())
		}
	}
	switch {
	case len(with) > 2:
		uses = []string{fmt.Sprintf("the addresses %s, %s and %d more", with[0], with[1], len(with)-2)}
	case len(with) > 0:
		uses = []string{"the address " + strings.Join(with, " and ")}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		byIt := r.LinkIndex == dev.Attrs().Index
		for _, hop := range r.MultiPath {
			byIt = byIt || hop.LinkIndex == dev.Attrs().Index
		}
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		if byIt && ones == 0 {
			return append([]string{"the default route"}, uses...), nil
		}
	}
	return uses, nil
}
