package topology

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"trivet.dev/trivet/internal/disjoint"
	"trivet.dev/trivet/internal/words"
)

// A segment is a broadcast domain: the interfaces of hosts and routers connected by switches, or by
// a single link.
type segment struct {
	ends     []*Endpoint // of hosts and routers, hosts' first, in the order of the nodes
	routers  []*Endpoint
	external bool // includes a real interface of the machine, or is somebody else's network
	prefix   [2]netip.Prefix
}

// Address families, as indices of segment.prefix.
const (
	v4 = iota
	v6
)

func family(a netip.Addr) int {
	if a.Is4() {
		return v4
	}
	return v6
}

// segments joins links at switches, in networks and in nodes' bridges and bonds (union-find) and
// lists the ends of each set, and the nodes' own interfaces there. It records which ends get their
// addresses from the network's owner, unless the topology gives some, and which are in a VRF.
func (r *resolver) segments() []*segment {
	joined := disjoint.Sets[int]{}
	atSwitch, onAir, inNetwork := map[string]int{}, map[string]int{}, map[string]int{}
	r.provided = map[*Endpoint]bool{}
	var ports []VLANPort
	vlans := VLANPorts(r.t)
	for i, l := range r.t.Links {
		for j, e := range l.Ends {
			if vlans[l][j] != (PortVLANs{}) {
				ports = append(ports, VLANPort{e.Node, i, vlans[l][j]})
			} else if n := r.nodes[e.Node]; n != nil && n.Kind == Switch {
				if first, ok := atSwitch[e.Node]; ok {
					joined.Join(i, first)
				} else {
					atSwitch[e.Node] = i
				}
			}
			if e.Network == "" {
				continue
			}
			r.provided[&r.t.Links[i].Ends[1-j]] = true
			if first, ok := inNetwork[e.Network]; ok {
				joined.Join(i, first)
			} else {
				inNetwork[e.Network] = i
			}
		}
		if l.Wifi != nil { // stations and access points of one network
			if first, ok := onAir[l.Wifi.SSID]; ok {
				joined.Join(i, first)
			} else {
				onAir[l.Wifi.SSID] = i
			}
		}
	}
	linkOf := map[[2]string]int{}
	for i, l := range r.t.Links {
		for _, e := range l.Ends {
			linkOf[[2]string{e.Node, e.Interface}] = i
		}
	}
	domains := Domains(r.t.Nodes, joined, linkOf, ports, len(r.t.Links))
	byRoot, rootOf := map[int]*segment{}, map[*Endpoint]int{}
	var all []*segment
	of := func(root int) *segment {
		if byRoot[root] == nil {
			byRoot[root] = &segment{}
			all = append(all, byRoot[root])
		}
		return byRoot[root]
	}
	for i, l := range r.t.Links {
		root := joined.Of(i)
		of(root)
		for j := range l.Ends {
			rootOf[&l.Ends[j]] = root
			byRoot[root].external = byRoot[root].external || l.Ends[j].External()
		}
	}
	r.inVRF, r.fixed = map[*Endpoint]bool{}, map[*Endpoint]bool{}
	for _, n := range r.t.Nodes {
		if n.Kind != Host && n.Kind != Router {
			continue
		}
		vrfs, passedOn := n.VRFs(), n.PassedOn()
		add := func(s *segment, e *Endpoint) {
			r.inVRF[e] = vrfs[e.Interface] != nil
			if n.Kind == Router {
				s.routers = append(s.routers, e)
			} else {
				s.ends = append(s.ends, e)
			}
		}
		for _, e := range r.ends[n.Name] {
			if !e.Unaddressed || passedOn[e.Interface] == nil {
				add(byRoot[rootOf[e]], e)
			}
		}
		for _, i := range n.Interfaces {
			if at, ok := domains[[2]string{n.Name, i.Name}]; ok && len(i.Addresses) > 0 {
				e := &Endpoint{Node: n.Name, Interface: i.Name, MAC: i.MAC, Addresses: i.Addresses, RA: i.RA}
				r.fixed[e] = true
				add(of(joined.Of(at)), e)
			}
		}
	}
	return slices.DeleteFunc(all, func(s *segment) bool { return len(s.ends)+len(s.routers) == 0 })
}

// transit is the pool for segments without hosts: links between routers.
var transit = [2]netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("fd00:ffff::/32")}

// addresses moves the nodes' addresses to their first interfaces and assigns the others.
//
// Without routers (other than a NAT), all hosts share the pool and are numbered in order, as in
// Mininet: the first host of 10.0.0.0/8 is 10.0.0.1/8. With routers, each segment is a subnet: that
// of a given address, or else, with hosts, the next /24 of the pool (or a larger one if needed)
// and, without hosts, a /30 of 172.16.0.0/12. In IPv6 each is a /64.
func (r *resolver) addresses() {
	for _, n := range r.t.Nodes {
		r.ownAddresses(n)
		r.ownInterfaces(n)
		r.withoutIPv6(n)
	}
	r.advertisers()
	segs := r.segments()
	r.assign(v4, segs)
	if r.t.IPv6.Addressed() {
		r.assign(v6, segs)
	}
	r.autoconfigure(segs)
	r.duplicates(segs)
	r.gateways(segs)
	r.segs = segs
}

// ownAddresses moves a node's own addresses to its interfaces.
func (r *resolver) ownAddresses(n *Node) {
	for i, e := range r.ends[n.Name] {
		switch {
		case i == 0 && len(n.Addresses) > 0 && e.Unaddressed:
			r.problems.Add(n.Pos, "keep one of them",
				"%s %s: its link says that its first interface, %s, has no address, and it is given %s",
				n.Kind, n.Name, e.Interface, n.Addresses[0])
		case i == 0 && len(n.Addresses) > 0:
			e.Addresses = append(e.Addresses, n.Addresses...)
			n.Addresses = nil
		case n.Unaddressed && len(e.Addresses) == 0:
			e.Unaddressed = true
		}
		if e.Unaddressed && n.RoutingNode() {
			r.problems.Warn(n.Pos, "use datapath kernel, or give it an address",
				"router %s: nothing can give %s an address, as a routing node runs no programs",
				n.Name, e.Interface)
		}
	}
	if len(r.ends[n.Name]) > 0 {
		n.Unaddressed = false
	}
}

// withoutIPv6 leaves out addresses that a kernel without IPv6 would refuse.
func (r *resolver) withoutIPv6(n *Node) {
	if r.t.IPv6 != IPv6Off || !n.Made().Open() {
		return
	}
	out := func(all []netip.Prefix) []netip.Prefix {
		for _, p := range all {
			if p.Addr().Is6() {
				r.problems.Warn(n.Pos, "ipv6: assigned, or --ipv6 assigned",
					"%s %s: address %s is left out, as the lab has no IPv6", n.Kind, n.Name, p)
			}
		}
		return slices.DeleteFunc(all, func(p netip.Prefix) bool { return p.Addr().Is6() })
	}
	n.Loopback = out(n.Loopback)
	for _, e := range r.ends[n.Name] {
		e.Addresses = out(e.Addresses)
	}
	for i := range n.Interfaces {
		n.Interfaces[i].Addresses = out(n.Interfaces[i].Addresses)
	}
}

// hasSubnets says whether each segment is a subnet of its own.
func (t *Topology) hasSubnets() bool {
	return slices.ContainsFunc(t.Nodes, func(n *Node) bool { return n.Kind == Router && !n.NAT })
}

func (r *resolver) assign(fam int, segs []*segment) {
	p := newPool(fam, r.t, segs)
	if !r.t.hasSubnets() {
		r.assignFlat(fam, p)
		return
	}
	written := map[string]bool{} // routers that keep the addresses given, and get no others
	for _, n := range r.t.Nodes {
		written[n.Name] = r.t.Routes == RoutesAsWritten && n.Kind == Router &&
			slices.ContainsFunc(r.ends[n.Name], func(e *Endpoint) bool { return has(e.Addresses, fam) })
	}
	for _, s := range segs {
		r.assignSegment(fam, p, s, written)
	}
}

// assignFlat numbers the first interface of each host and NAT.
func (r *resolver) assignFlat(fam int, p *pool) {
	next := p.base.Addr()
	if next == p.base.Masked().Addr() {
		next = next.Next()
	}
	for _, n := range r.t.Nodes {
		ends := r.ends[n.Name]
		if n.Kind == Switch || n.Kind == Controller || len(ends) == 0 {
			continue
		}
		if !ends[0].Unaddressed && !has(ends[0].Addresses, fam) && !r.provided[ends[0]] && !ends[0].learns(fam) {
			for p.used[next] {
				next = next.Next()
			}
			if !p.base.Contains(next) || isBroadcast(netip.PrefixFrom(next, p.base.Bits())) {
				r.problems.Add(r.t.Pos, "choose a larger subnet", "subnet %s has too few addresses for all hosts",
					p.base)
				return
			}
			ends[0].Addresses = append(ends[0].Addresses, netip.PrefixFrom(next, p.base.Bits()))
		}
		next = next.Next() // even if the address was given: the n-th host gets the n-th address, as in Mininet
	}
}

func (r *resolver) assignSegment(fam int, p *pool, s *segment, written map[string]bool) {
	all := slices.Concat(s.routers, s.ends)
	all = slices.DeleteFunc(all, func(e *Endpoint) bool {
		return (written[e.Node] || r.provided[e] || r.fixed[e] || e.learns(fam)) && !has(e.Addresses, fam)
	})
	if !slices.ContainsFunc(all, func(e *Endpoint) bool { return !e.Unaddressed }) {
		return
	}
	prefix := givenPrefix(all, fam)
	if !prefix.IsValid() && !slices.ContainsFunc(all, func(e *Endpoint) bool { return !r.fixed[e] }) {
		return // has only one address, as that of a loopback device
	}
	if !prefix.IsValid() {
		var ok bool
		if prefix, ok = p.take(len(all), len(s.ends) > 0 || s.external); !ok {
			r.problems.Add(r.t.Pos, "choose a larger subnet", "subnet %s has too few addresses for all segments",
				p.base)
			return
		}
	}
	s.prefix[fam] = prefix
	next := prefix.Addr()
	if prefix.Bits() < prefix.Addr().BitLen()-1 { // two routers' network has no other addresses (RFC 3021, RFC 6164)
		next = next.Next()
	}
	for _, e := range all {
		if has(e.Addresses, fam) {
			continue
		}
		for p.used[next] {
			next = next.Next()
		}
		address := netip.PrefixFrom(next, prefix.Bits())
		if !prefix.Contains(next) || isBroadcast(address) {
			r.problems.Add(r.t.Pos, "give the segment a larger one",
				"subnet %s has too few addresses for %d interfaces, %s is one too many", prefix, len(all), e.Node)
			return
		}
		if p.used[next] = true; !e.Unaddressed { // else left free, so that other hosts' addresses do not depend on it
			e.Addresses = append(e.Addresses, address)
		}
	}
}

func has(addresses []netip.Prefix, fam int) bool {
	return slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return family(p.Addr()) == fam })
}

// givenPrefix is the subnet of the first given address.
func givenPrefix(ends []*Endpoint, fam int) netip.Prefix {
	for _, e := range ends {
		for _, p := range e.Addresses {
			if family(p.Addr()) == fam && !p.IsSingleIP() {
				return p.Masked()
			}
		}
	}
	return netip.Prefix{}
}

func isBroadcast(p netip.Prefix) bool {
	if !p.Addr().Is4() || p.Bits() >= 31 {
		return false
	}
	a := p.Addr().As4()
	host := uint32(1)<<(32-p.Bits()) - 1
	return binary.BigEndian.Uint32(a[:])&host == host
}

// pool hands out subnets that do not overlap a given one, and knows the addresses in use.
type pool struct {
	fam   int
	base  netip.Prefix // for hosts
	next  [2]netip.Addr
	given []netip.Prefix
	used  map[netip.Addr]bool
}

func newPool(fam int, t *Topology, segs []*segment) *pool {
	p := &pool{fam: fam, used: map[netip.Addr]bool{}}
	if fam == v4 {
		p.base = t.Subnet
		if !p.base.IsValid() {
			p.base = netip.MustParsePrefix("10.0.0.0/8")
		}
	} else {
		p.base = t.Subnet6
		if !p.base.IsValid() {
			p.base = netip.MustParsePrefix("fd00::/64")
		}
	}
	seen := map[netip.Prefix]bool{}
	for _, s := range segs {
		for _, e := range slices.Concat(s.ends, s.routers) {
			for _, a := range e.Addresses {
				p.used[a.Addr()] = true
				if m := a.Masked(); family(a.Addr()) == fam && !seen[m] {
					seen[m] = true
					p.given = append(p.given, m)
				}
			}
		}
	}
	return p
}

// take returns the next subnet for n interfaces: from the hosts' pool, or else the routers'.
func (p *pool) take(n int, hosts bool) (netip.Prefix, bool) {
	from, bits, which := p.hostPool(), 64, 0
	if p.fam == v4 {
		for bits = max(24, from.Bits()); bits > 2 && 1<<(32-bits)-2 < n; bits-- {
		}
	}
	if !hosts {
		from, which = transit[p.fam], 1
		if p.fam == v4 {
			for bits = 30; bits > 2 && 1<<(32-bits)-2 < n; bits-- {
			}
		}
	}
	candidate := p.next[which]
	if !candidate.IsValid() {
		candidate = from.Masked().Addr()
		if hosts && p.fam == v4 && from.Bits() < bits { // begin with 10.0.1.0/24: people count from 1
			candidate = after(netip.PrefixFrom(candidate, bits))
		}
	}
	for {
		c := netip.PrefixFrom(candidate, bits)
		if c.Masked().Addr() != candidate { // a larger subnet than the last one: align
			candidate = after(c)
			continue
		}
		if !from.Contains(candidate) {
			return c, false
		}
		i := slices.IndexFunc(p.given, c.Overlaps)
		if i < 0 {
			p.next[which] = after(c)
			return c, true
		}
		if p.given[i].Bits() < c.Bits() { // skip all of it at once: it may contain 2^50 candidates
			c = p.given[i]
		}
		candidate = after(c)
	}
}

// hostPool widens the default IPv6 pool, one /64, to the /48 around it.
func (p *pool) hostPool() netip.Prefix {
	if p.fam == v6 && p.base.Bits() >= 64 {
		wide, _ := p.base.Addr().Prefix(48)
		return wide
	}
	return p.base
}

// after returns the first address after a prefix.
func after(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits() - 1; bit >= 0; bit-- {
		mask := byte(1) << (7 - bit%8)
		b[bit/8] ^= mask
		if b[bit/8]&mask != 0 {
			a, _ := netip.AddrFromSlice(b)
			return a
		}
	}
	return netip.Addr{}
}

// duplicates finds addresses that two interfaces share, and MAC addresses used twice in one
// segment.
func (r *resolver) duplicates(segs []*segment) {
	for _, s := range segs {
		owner := map[MAC]*Endpoint{}
		for _, e := range slices.Concat(s.ends, s.routers) {
			if other := owner[e.MAC]; other != nil && e.MAC != (MAC{}) {
				r.problems.Add(r.nodes[e.Node].Pos, "MACs must be unique within a switched segment",
					"%s of %s is also the MAC of %s", e.MAC, e.Node, other.Node)
			}
			owner[e.MAC] = e
		}
	}
	owner := map[netip.Addr]*Endpoint{}
	once := func(pos Position, e *Endpoint) {
		for _, a := range e.Addresses {
			if other := owner[a.Addr()]; other != nil && other != e {
				r.problems.Warn(pos, "give one of them another address", "%s of %s is also the address of %s", a.Addr(),
					e.Node, other.Node)
			}
			owner[a.Addr()] = e
		}
	}
	for _, l := range r.t.Links {
		once(l.Pos, &l.Ends[0])
		once(l.Pos, &l.Ends[1])
	}
	for _, n := range r.t.Nodes {
		for _, i := range n.Interfaces {
			once(i.at(n), &Endpoint{Node: n.Name, Addresses: i.Addresses})
		}
	}
}

// gateways gives each host without one the first router of its segment as default route.
func (r *resolver) gateways(segs []*segment) {
	if r.t.Routes == RoutesAsWritten {
		return
	}
	var lonely []string
	for _, s := range segs {
		unknown := slices.ContainsFunc(s.routers, func(e *Endpoint) bool { return e.Unaddressed })
		for _, e := range s.ends {
			n := r.nodes[e.Node]
			for fam := range 2 {
				if slices.ContainsFunc(n.Gateways, func(a netip.Addr) bool { return family(a) == fam }) ||
					!has(e.Addresses, fam) ||
					fam == v6 && slices.ContainsFunc(r.ends[n.Name], (*Endpoint).AcceptsRA) { // it learns of one

					continue
				}
				if gw := gatewayFor(e, s.routers, fam); gw.IsValid() {
					n.Gateways = append(n.Gateways, gw)
				}
			}
			if unknown && has(e.Addresses, v4) && len(n.Gateways)+len(n.Routes) == 0 {
				lonely = append(lonely, n.Name)
			}
		}
	}
	if len(lonely) > 0 {
		r.problems.Warn(r.t.Pos, "write gateway: ADDRESS",
			"%s: there is no gateway, as the router there is given no address", words.Some(lonely))
	}
	for _, n := range r.t.Nodes {
		slices.SortStableFunc(n.Gateways, func(a, b netip.Addr) int { return cmp.Compare(family(a), family(b)) })
	}
}

// gatewayFor returns the address of the first router that shares a subnet with the host.
func gatewayFor(host *Endpoint, routers []*Endpoint, fam int) netip.Addr {
	for _, router := range routers {
		for _, a := range router.Addresses {
			for _, own := range host.Addresses {
				if family(a.Addr()) == fam && own.Contains(a.Addr()) {
					return a.Addr()
				}
			}
		}
	}
	return netip.Addr{}
}
