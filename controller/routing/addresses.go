package routing

import (
	"maps"
	"net/netip"
	"slices"
)

// addresses are the facts about a configuration's routers that do not depend on what is up. They
// are computed once.
type addresses struct {
	index   map[uint64]int           // index of routers by datapath id
	owners  map[netip.Prefix][]owner // who has which subnet
	subnets []netip.Prefix           // all of them, sorted
	known   map[netip.Addr]owner     // who has an address
	v6      bool                     // there are IPv6 subnets
	lengths [2]lengths               // of subnets
}

func newAddresses(c *Config) *addresses {
	a := &addresses{index: make(map[uint64]int, len(c.Routers)), owners: map[netip.Prefix][]owner{},
		known: map[netip.Addr]owner{}}
	for i := range c.Routers {
		r := &c.Routers[i]
		a.index[r.DPID] = i
		for j := range r.Interfaces {
			f := &r.Interfaces[j]
			for _, p := range f.Prefixes {
				a.add(p, p.Masked(), owner{i, f})
			}
		}
		for _, p := range r.Loopback {
			a.add(p, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), owner{i, nil})
		}
	}
	a.subnets = slices.SortedFunc(maps.Keys(a.owners), netip.Prefix.Compare)
	return a
}

func (a *addresses) add(p, subnet netip.Prefix, o owner) {
	a.known[p.Addr()] = o
	a.v6 = a.v6 || !p.Addr().Is4()
	a.lengths[family(subnet.Addr())][subnet.Bits()] = true
	a.owners[subnet] = append(a.owners[subnet], o)
}
