package mininet

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
)

// hold returns what a Mininet program can represent of a topology, in the one form in which reading
// the program gives it back.
func hold(t *topology.Topology) *topology.Topology {
	h := t.Clone()
	*h = topology.Topology{
		Name: h.Name, Subnet: h.Subnet, Datapath: heldDatapath(h.Datapath), Controllers: h.Controllers,
		Nodes: h.Nodes, Links: h.Links,
	}
	for i, n := range h.Nodes {
		h.Nodes[i] = heldNode(n)
	}
	holdControllers(h)
	holdLinks(h)
	holdRoutes(h, t.Routes)
	for _, n := range h.Nodes {
		holdDefault(n)
	}
	number(h)
	holdUnaddressed(h)
	holdDPIDs(h)
	holdAddresses(h)
	return h
}

// holdRoutes makes explicit, if there are routers, the addresses, gateways and routes that Trivet
// would assign: Mininet assigns none.
func holdRoutes(t *topology.Topology, mode topology.RoutesMode) {
	if len(t.NodesOf(topology.Router)) == 0 {
		return
	}
	t.Routes = topology.RoutesAsWritten
	if mode == topology.RoutesAsWritten {
		return
	}
	open := topology.Unadvertised(t)
	open.Routes = ""
	resolved, _ := topology.Resolve(open,
		topology.Defaults{Datapath: topology.OVS, Controlled: topology.OVS, Controller: topology.ControllerTrivet})
	if resolved == nil {
		return // a topology that cannot come up can still be written
	}
	for i, n := range resolved.Nodes {
		if n.Kind == topology.Host || n.Kind == topology.Router {
			t.Nodes[i].Gateways, t.Nodes[i].Routes = n.Gateways, n.Routes
			for j := range n.Routes {
				n.Routes[j].Computed = false
			}
			t.Nodes[i].Addresses = nil
		}
	}
	for i, l := range resolved.Links {
		for j, e := range l.Ends {
			t.Links[i].Ends[j].Addresses = e.Addresses
		}
	}
}

// holdDefault turns default routes through a neighbour into gateways.
func holdDefault(n *topology.Node) {
	n.Routes = slices.DeleteFunc(n.Routes, func(r topology.Route) bool {
		if r.To.Bits() > 0 || !r.Via.IsValid() {
			return false
		}
		if !slices.ContainsFunc(n.Gateways, func(g netip.Addr) bool { return g.Is4() == r.Via.Is4() }) {
			n.Gateways = append(n.Gateways, r.Via)
		}
		return true
	})
	slices.SortStableFunc(n.Gateways, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
}

// relevant returns t without the controllers of Linux bridges, which cannot have any: they mean
// nothing, so it is no loss.
//
// Nor does it matter whether interfaces that Mininet gives no address are written to have none: a
// router's, and a host's but the first.
func relevant(t *topology.Topology) *topology.Topology {
	t = t.Clone()
	holdUnaddressed(t)
	for _, n := range t.Nodes {
		if bridged(t, n) {
			n.Controllers = nil
		}
	}
	if !slices.ContainsFunc(t.Nodes,
		func(n *topology.Node) bool { return n.Kind == topology.Switch && !bridged(t, n) }) {
		t.Controllers = nil
	}
	return t
}

// holdUnaddressed has hosts alone say that they have no address, of their first interface.
func holdUnaddressed(t *topology.Topology) {
	for _, n := range t.Nodes {
		e := firstEnd(t, n)
		n.Unaddressed = n.Kind == topology.Host && len(n.Addresses) == 0 &&
			(n.Unaddressed && (e == nil || len(e.Addresses) == 0) || e != nil && e.Unaddressed)
	}
	for _, l := range t.Links {
		l.Ends[0].Unaddressed, l.Ends[1].Unaddressed = false, false
	}
}

func bridged(t *topology.Topology, n *topology.Node) bool {
	return n.Kind == topology.Switch &&
		(n.Datapath == topology.Bridge || n.Datapath == "" && t.Datapath == topology.Bridge)
}

// heldDatapath: Mininet has two kinds of switches; if none is named, Trivet's own is read.
func heldDatapath(d topology.Datapath) topology.Datapath {
	if d == topology.OVS || d == topology.Bridge {
		return d
	}
	return ""
}

func heldNode(n *topology.Node) *topology.Node {
	out := &topology.Node{Name: n.Name, Kind: n.Kind, Start: n.Start, StartMayFail: n.Start != "", Stop: n.Stop}
	switch n.Kind {
	case topology.Controller:
		return &topology.Node{Name: n.Name, Kind: n.Kind, Address: n.Address}
	case topology.Switch:
		out.DPID, out.Datapath, out.Controllers, out.STP = n.DPID, heldDatapath(n.Datapath), n.Controllers, n.STP
		out.FailMode, out.OpenFlow = n.FailMode, n.OpenFlow
		return out
	case topology.Router:
		out.Datapath, out.NAT, out.Masquerade = topology.Kernel, n.NAT, n.Masquerade
	default:
		out.CPU.Share, out.Cores = n.CPU.Share, n.Cores
	}
	out.Addresses, out.MAC, out.Loopback, out.Gateways = n.Addresses, n.MAC, n.Loopback, n.Gateways
	out.Routes, out.Dirs, out.Unaddressed = slices.DeleteFunc(slices.Clone(n.Routes), topology.Route.OnlyKernels),
		n.Dirs, n.Unaddressed
	return out
}

// holdControllers makes a node for every address, and writes the lists in Mininet's way: all
// controllers for all switches, unless a switch has its own.
func holdControllers(t *topology.Topology) {
	drop, builtin := map[string]bool{}, map[string]bool{}
	for _, n := range t.Nodes {
		builtin[n.Name] = t.IsBuiltin(n.Name)
	}
	own := func(list []string) []string {
		list = slices.Clone(list)
		for i, c := range list {
			if builtin[c] {
				list[i] = topology.ControllerTrivet
			}
		}
		return list
	}
	t.Controllers = own(t.Controllers)
	for _, n := range t.Nodes {
		n.Controllers = own(n.Controllers)
	}
	t.Nodes = slices.DeleteFunc(t.Nodes, func(n *topology.Node) bool {
		_, _, _, ok := splitAddress(n.Address)
		drop[n.Name] = n.Kind == topology.Controller && !ok
		return drop[n.Name]
	})
	*t = *relevant(t)
	var everyone []string
	lists := map[*topology.Node][]string{}
	for _, n := range t.Nodes {
		if n.Kind != topology.Switch || bridged(t, n) {
			continue
		}
		list := n.Controllers
		if len(list) == 0 {
			list = t.Controllers
		}
		if len(list) == 0 {
			list = []string{topology.ControllerTrivet}
		}
		lists[n] = heldList(t, list, drop)
		for _, c := range lists[n] {
			if c == topology.ControllerTrivet && !slices.Contains(everyone, c) {
				everyone = append(everyone, c)
			}
		}
	}
	if remote := t.NodesOf(topology.Controller); len(remote) > 0 { // they do not share switches with Trivet's
		everyone = nil
		for _, n := range remote {
			everyone = append(everyone, n.Name)
		}
	}
	if len(everyone) == 0 {
		everyone = []string{topology.ControllerNone}
	}
	for n, list := range lists {
		n.Controllers = list
		if slices.Equal(list, everyone) {
			n.Controllers = nil
		}
	}
	t.Controllers = everyone
	if len(lists) == 0 || slices.Equal(everyone, []string{topology.ControllerTrivet}) {
		t.Controllers = nil
	}
}

// heldList is a list of controllers by the names of their nodes; missing nodes are made.
func heldList(t *topology.Topology, list []string, drop map[string]bool) (out []string) {
	for _, c := range list {
		_, _, _, isAddress := splitAddress(c)
		switch {
		case c == topology.ControllerNone || drop[c]:
		case c == topology.ControllerTrivet || !isAddress && t.Node(c) != nil:
			out = append(out, c)
		case isAddress:
			out = append(out, controllerAt(t, c))
		}
	}
	if others := slices.DeleteFunc(slices.Clone(out),
		func(c string) bool { return c == topology.ControllerTrivet }); len(others) > 0 {
		out = others
	}
	if len(out) == 0 {
		return []string{topology.ControllerNone}
	}
	return slices.Compact(out)
}

// controllerAt returns the name of the controller node with that address.
func controllerAt(t *topology.Topology, address string) string {
	for _, n := range t.NodesOf(topology.Controller) {
		if n.Address == address {
			return n.Name
		}
	}
	n := t.AddNode(topology.Controller, freeName(t))
	n.Address = address
	return n.Name
}

func freeName(t *topology.Topology) string {
	for i := 0; ; i++ {
		if name := "c" + strconv.Itoa(i); t.Node(name) == nil {
			return name
		}
	}
}

// splitAddress splits "tcp:192.0.2.1:6653". Mininet cannot represent an IPv6 address here.
func splitAddress(s string) (protocol, host string, port int, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 || parts[0] != "tcp" && parts[0] != "ssl" || parts[1] == "" {
		return "", "", 0, false
	}
	port, err := strconv.Atoi(parts[2])
	return parts[0], parts[1], port, err == nil && strconv.Itoa(port) == parts[2]
}

// maxBandwidth is the maximum that Mininet's TCIntf accepts; it ignores more.
const maxBandwidth = topology.Rate(1e9)

func holdLinks(t *topology.Topology) {
	t.Links = slices.DeleteFunc(t.Links, func(l *topology.Link) bool {
		return l.Ends[0].External() && l.Ends[1].External() ||
			slices.ContainsFunc(l.Ends[:], func(e topology.Endpoint) bool {
				return e.Network != "" || !e.External() && t.Node(e.Node) == nil
			})
	})
	for _, l := range t.Links {
		if l.Ends[0].External() {
			l.Ends[0], l.Ends[1] = l.Ends[1], l.Ends[0]
		}
		leaves := [2]topology.Impairment{l.Egress(0), l.Egress(1)}
		for i := range leaves {
			if leaves[i].Bandwidth > maxBandwidth {
				leaves[i].Bandwidth = 0
			}
			if q := leaves[i].Queue; q.Managed() && (leaves[i].Bandwidth == 0 || q != topology.MininetRED(q.ECN)) {
				leaves[i].Queue = topology.Queue{}
			}
			if l.Ends[1].External() {
				leaves[i] = topology.Impairment{}
			}
			e := leaves[i]
			leaves[i] = topology.Impairment{Bandwidth: e.Bandwidth, Delay: e.Delay, Jitter: e.Jitter, Loss: e.Loss,
				Queue: e.Queue, MTU: e.MTU}
			l.Ends[i].Egress, l.Ends[i].Protocols, l.Ends[i].VLAN, l.Ends[i].Trunk, l.Ends[i].MPLS = nil, nil, 0,
				"", false
		}
		l.Protocols, l.Wifi, l.VLAN, l.Trunk, l.MPLS = nil, nil, 0, "", false
		l.Impairment = leaves[0]
		if leaves[1] != leaves[0] {
			l.Ends[1].Egress = &leaves[1]
		}
		if l.Ends[1].External() {
			l.Ends[1] = topology.Endpoint{Interface: l.Ends[1].Interface}
			l.Ends[0].Interface, l.Ends[0].MAC = "", topology.MAC{}
		}
		for i := range l.Ends {
			if n := t.Node(l.Ends[i].Node); n != nil && n.Kind != topology.Host && n.Kind != topology.Router {
				l.Ends[i].Addresses = nil
			}
		}
		l.Foreign = nil
	}
}

// number numbers all ports of nodes on which some have a number, as topology.Resolve does, since
// Mininet would count differently there.
func number(t *topology.Topology) {
	for _, n := range t.Nodes {
		ends := endsOf(t, n)
		given := map[int]bool{}
		for _, e := range ends {
			if e.Port != nil {
				given[*e.Port] = true
			}
		}
		if len(given) == 0 {
			continue
		}
		next := 0
		if n.Kind == topology.Switch {
			next = 1
		}
		for _, e := range ends {
			if e.Port == nil {
				for given[next] {
					next++
				}
				port := next
				e.Port = &port
			}
			next = max(next, *e.Port+1)
		}
	}
}

func endsOf(t *topology.Topology, n *topology.Node) (ends []*topology.Endpoint) {
	for _, l := range t.Links {
		for i := range l.Ends {
			if l.Ends[i].Node == n.Name {
				ends = append(ends, &l.Ends[i])
			}
		}
	}
	return ends
}

// firstEnd is the end with the lowest port, which has the node's own address; nil for a node
// without links.
func firstEnd(t *topology.Topology, n *topology.Node) *topology.Endpoint {
	ends := endsOf(t, n)
	if len(ends) == 0 {
		return nil
	}
	return slices.MinFunc(ends, func(a, b *topology.Endpoint) int {
		if a.Port == nil || b.Port == nil {
			return 0 // no end has a number: they are in order
		}
		return *a.Port - *b.Port
	})
}

// holdDPIDs gives a datapath id to switches from whose names Mininet cannot derive a unique one.
func holdDPIDs(t *topology.Topology) {
	used := map[topology.DPID]bool{0: true}
	for _, n := range t.Nodes {
		used[n.DPID] = true
	}
	spare := topology.DPID(1) << 32
	for _, n := range t.NodesOf(topology.Switch) {
		if bridged(t, n) {
			n.FailMode, n.OpenFlow = "", nil
		}
		if n.DPID != 0 {
			continue
		}
		derived := derivedDPID(n.Name)
		if used[derived] {
			for ; used[spare]; spare++ {
			}
			n.DPID, derived = spare, spare
		}
		used[derived] = true
	}
}

// derivedDPID is the first number in the name, which Mininet uses; 0 if there is none.
func derivedDPID(name string) topology.DPID {
	digits := strings.TrimLeftFunc(name, func(r rune) bool { return r < '0' || r > '9' })
	end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		digits = digits[:end]
	}
	v, _ := strconv.ParseUint(digits, 10, 63)
	return topology.DPID(v)
}

// holdAddresses moves the addresses of a node's first end to the node, and gives hosts without an
// address the one that Mininet would assign, unless plain counting from one gives the same.
func holdAddresses(t *topology.Topology) {
	var hosts []*topology.Node
	plain := true
	for _, n := range t.Nodes {
		if n.Kind != topology.Host && n.Kind != topology.Router {
			continue
		}
		hosts = append(hosts, n)
		if e := firstEnd(t, n); e != nil {
			n.Addresses = append(e.Addresses, n.Addresses...)
			e.Addresses = nil
			if e.MAC != (topology.MAC{}) {
				n.MAC = e.MAC
			}
			e.MAC = topology.MAC{}
		} else if i := slices.IndexFunc(n.Addresses, is4); i >= 0 {
			n.Addresses = n.Addresses[i : i+1]
		} else {
			n.Addresses = nil
		}
		fourFirst(n.Addresses)
		plain = plain && n.Kind == topology.Host && !n.Unaddressed && !slices.ContainsFunc(n.Addresses, is4)
	}
	for _, l := range t.Links {
		fourFirst(l.Ends[0].Addresses)
		fourFirst(l.Ends[1].Addresses)
	}
	first := counter(t, len(hosts))
	for i, n := range hosts {
		if n.Kind == topology.Host && !n.Unaddressed && !slices.ContainsFunc(n.Addresses, is4) &&
			!(plain && first.host == 1) {
			n.Addresses = append([]netip.Prefix{first.at(i)}, n.Addresses...)
		}
	}
}

func is4(p netip.Prefix) bool { return p.Addr().Is4() }

// fourFirst moves the first IPv4 address to the front, where Mininet's is.
func fourFirst(list []netip.Prefix) {
	if i := slices.IndexFunc(list, is4); i > 0 {
		p := list[i]
		copy(list[1:i+1], list[:i])
		list[0] = p
	}
}

// pool describes how Mininet assigns addresses.
type pool struct {
	network netip.Prefix
	host    uint32 // part of the first address
}

// counter returns the topology's pool; it drops one that is too small for Mininet, which counts
// given addresses, too.
func counter(t *topology.Topology, hosts int) pool {
	if t.Subnet.IsValid() && is4(t.Subnet) {
		a := t.Subnet.Addr().As4()
		mask := uint32(uint64(1)<<(32-t.Subnet.Bits()) - 1)
		host := max(1, (uint32(a[0])<<24|uint32(a[1])<<16|uint32(a[2])<<8|uint32(a[3]))&mask)
		if uint64(host)+uint64(hosts) <= uint64(mask) {
			return pool{t.Subnet.Masked(), host}
		}
	}
	t.Subnet = netip.Prefix{}
	return pool{netip.MustParsePrefix("10.0.0.0/8"), 1}
}

func (p pool) at(i int) netip.Prefix {
	a := p.network.Addr().As4()
	v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	v |= p.host + uint32(i)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}),
		p.network.Bits())
}
