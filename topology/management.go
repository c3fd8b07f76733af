package topology

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
)

// Management is the network by which the machine reaches the nodes of a lab, besides all links:
// each host and Linux router has an address in it, on a device of its own. With the zero value
// there is none.
type Management struct {
	Subnet netip.Prefix `json:"subnet,omitzero"`
	// By Resolve, or by the machine if it uses that subnet itself: the file only says true.
	Chosen bool `json:"chosen,omitempty"`
}

// ManagementDevice is a node's device in the management network.
const ManagementDevice = "mgmt0"

// ManagementTable is the routing table of a node's route in the management network.
const ManagementTable = 0x7472

// UplinkDevice is the device through which a NAT leaves the lab.
const UplinkDevice = "uplink"

// ManagementDefault is the subnet if a topology names none, and no link has addresses of it.
var ManagementDefault = netip.MustParsePrefix("172.30.0.0/24")

// managementPool is the pool of subnets if a topology names none.
var managementPool = netip.MustParsePrefix("172.30.0.0/15")

// MaxManaged is the maximum number of nodes in a management network: as many as a Linux bridge has
// ports, besides the machine's.
const MaxManaged = 1022

// ParseManagement reads the value in a file: true, false, or a subnet.
func ParseManagement(s string) (m Management, err error) {
	switch s {
	case "true", "yes", "on":
		return Management{Chosen: true}, nil
	case "false", "no", "off":
		return m, nil
	}
	if m.Subnet, err = netip.ParsePrefix(s); err != nil {
		return m, Mistaken("write true, or a subnet of its own: "+ManagementDefault.String(),
			"%q is no management network", s)
	}
	return m, nil
}

// String returns the value as written in a file.
func (m Management) String() string {
	switch {
	case m.Subnet.IsValid():
		return m.Subnet.String()
	case m.Chosen:
		return "true"
	}
	return "false"
}

// Machine is the address of the machine: the first one. The subnet must be known.
func (m Management) Machine() netip.Prefix {
	return netip.PrefixFrom(m.Subnet.Masked().Addr().Next(), m.Subnet.Bits())
}

// managementSubnet checks a topology's management network.
func (v *validator) managementSubnet() {
	switch m, p := v.t.Management, v.t.Management.Subnet; {
	case !p.IsValid():
	case !p.Addr().Is4():
		v.problems.Add(v.t.Pos, "write "+ManagementDefault.String(), "management %s is not IPv4", m)
	case p.Bits() < 8 || p.Bits() > 29 || p != p.Masked() || !assignable(p.Addr()) || p.Addr().As4()[0] == 0:
		v.problems.Add(v.t.Pos, "write "+ManagementDefault.String()+", or another of at least 8 addresses",
			"management %s is not a network for nodes", m)
	}
}

// managementAddress checks a node's management address.
func (v *validator) managementAddress(n *Node, bad func(hint, format string, args ...any)) {
	a, p := n.Management, v.t.Management.Subnet
	switch {
	case !a.IsValid():
	case n.Kind != Host && n.Kind != Router:
		bad("leave it out", "management: only hosts and routers have a management address")
	case !p.IsValid():
		bad("write it at the top of the file: management: "+ManagementDefault.String(),
			"management %s: the subnet of the management network is not given", a)
	case !p.Contains(a) || a == p.Masked().Addr() || isBroadcast(netip.PrefixFrom(a, p.Bits())):
		bad("choose one of "+p.String(), "management %s is no address for a node in %s", a, p)
	case a == v.t.Management.Machine().Addr():
		bad("choose another of "+p.String(), "management %s is the machine's own address in %s", a, p)
	}
}

// management gives each node that can have one its address: the n-th such node gets the n-th
// address after the machine's, so that a file has the same addresses everywhere.
func (r *resolver) management() {
	m := &r.t.Management
	var nodes []*Node
	taken := map[netip.Addr]*Node{}
	for _, n := range r.t.Nodes {
		switch {
		case n.Made().Open():
			nodes = append(nodes, n)
		case n.Management.IsValid():
			r.problems.Add(n.Pos, "leave it out", "%s %s: management: only hosts and Linux routers in namespaces of this machine have a management address", n.Kind, n.Name)
		case *m != Management{} && n.Made().Guest:
			r.problems.Warn(n.Pos, "use trivet exec "+n.Name, "%s %s is %s: it has no management address", n.Kind,
				n.Name, n.Made().Is)
		}
		if other := taken[n.Management]; other != nil && n.Management.IsValid() {
			r.problems.Add(n.Pos, "give one of them another", "%s %s: management %s is also the address of %s", n.Kind,
				n.Name, n.Management, other.Name)
		}
		taken[n.Management] = n
	}
	if (*m == Management{}) {
		return
	}
	if len(nodes) > MaxManaged {
		r.problems.Add(r.t.Pos, "leave management out",
			"management: %d nodes are too many: a management network has at most %d", len(nodes), MaxManaged)
		return
	}
	if !m.Subnet.IsValid() {
		for m.Subnet = range r.t.ManagementSubnets() {
			break
		}
	}
	if p := r.t.usesAddressesOf(m.Subnet); p.IsValid() {
		r.problems.Add(r.t.Pos, "write another: management: SUBNET, or true",
			"management %s: the lab's links have addresses of %s", m.Subnet, p)
		return
	}
	next := m.Machine().Addr()
	for _, n := range nodes {
		next = next.Next() // even if the address is given, as for hosts
		if n.Management.IsValid() {
			continue
		}
		for taken[next] != nil {
			next = next.Next()
		}
		if !m.Subnet.Contains(next) || isBroadcast(netip.PrefixFrom(next, m.Subnet.Bits())) {
			r.problems.Add(r.t.Pos, "write a larger one: management: SUBNET",
				"management %s has too few addresses for %d nodes", m.Subnet, len(nodes))
			return
		}
		n.Management, taken[next] = next, n
	}
	for _, n := range nodes {
		if i := slices.IndexFunc(r.ends[n.Name],
			func(e *Endpoint) bool { return e.Interface == ManagementDevice }); i >= 0 {
			r.problems.Add(n.Pos, "call it otherwise",
				"%s %s: its device for the management network is called %s, as one of its interfaces", n.Kind, n.Name,
				ManagementDevice)
		}
	}
}

// ManagementSubnets are the candidates for a resolved topology's subnet, in order: large enough for
// its nodes, and without addresses of its links.
func (t *Topology) ManagementSubnets() iter.Seq[netip.Prefix] {
	bits := ManagementDefault.Bits()
	for len(t.Nodes) > nodesIn(bits) && bits > 22 {
		bits--
	}
	return func(yield func(netip.Prefix) bool) {
		for a := managementPool.Addr(); managementPool.Contains(a); {
			p := netip.PrefixFrom(a, bits)
			if !t.usesAddressesOf(p).IsValid() && !yield(p) {
				return
			}
			a = after(p)
		}
	}
}

// nodesIn returns how many nodes fit into a subnet, without the network, broadcast and machine's
// addresses.
func nodesIn(bits int) int { return 1<<(32-bits) - 3 }

// usesAddressesOf returns a network of the topology's links, nodes or routes that overlaps p.
func (t *Topology) usesAddressesOf(p netip.Prefix) (other netip.Prefix) {
	look := func(list []netip.Prefix) {
		if i := slices.IndexFunc(list, p.Overlaps); i >= 0 {
			other = list[i].Masked()
		}
	}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			look(e.Addresses)
		}
	}
	for _, n := range t.Nodes {
		look(n.Addresses)
		look(n.Loopback)
		for _, list := range n.interfaceAddresses() {
			look(list)
		}
		for _, route := range n.Routes {
			if route.To.Bits() > 0 {
				look([]netip.Prefix{route.To})
			}
		}
	}
	return other
}

// WithManagement returns a resolved topology with its management network moved to another subnet of
// the same size.
func (t *Topology) WithManagement(subnet netip.Prefix) (*Topology, error) {
	was := t.Management.Subnet
	if was.Bits() != subnet.Bits() {
		return nil, fmt.Errorf("management: %s and %s have different sizes", was, subnet)
	}
	t = t.Clone()
	t.Management.Subnet = subnet
	from, to := asNumber(was.Masked().Addr()), asNumber(subnet.Masked().Addr())
	for _, n := range t.Nodes {
		if n.Management.IsValid() {
			n.Management = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, to+asNumber(n.Management)-from)))
		}
	}
	return t, nil
}

func asNumber(a netip.Addr) uint32 { return binary.BigEndian.Uint32(a.AsSlice()) }

// inheritManagement keeps the management network of a lab, and the addresses of the nodes in it.
func inheritManagement(t, resolved *Topology) {
	m, was := &t.Management, resolved.Management
	switch {
	case m.Chosen && !m.Subnet.IsValid() && was.Chosen && len(t.Nodes) <= nodesIn(was.Subnet.Bits()) &&
		!t.usesAddressesOf(was.Subnet).IsValid():
		m.Subnet = was.Subnet
	case m.Subnet != was.Subnet || !m.Subnet.IsValid():
		return
	}
	before, taken := byName(resolved), map[netip.Addr]bool{}
	for _, n := range t.Nodes {
		taken[n.Management] = true
	}
	for _, n := range t.Nodes {
		if old := before[n.Name]; old != nil && old.Kind == n.Kind && !n.Management.IsValid() &&
			!taken[old.Management] {
			n.Management = old.Management
		}
	}
}
