package ospf

import (
	"slices"

	"trivet.dev/trivet/routing/spf"
)

// resolver returns a function that returns the next hops to a vertex of the tree (section 16.1.1).
// Vertices with the same first hops share the result.
func (c *calculation) resolver(g *graph, tree *spf.Tree) func(v int32) []NextHop {
	sets := map[hopsKey][]NextHop{}
	return func(v int32) []NextHop {
		first := tree.FirstHops(v)
		if len(first) == 0 {
			return nil
		}
		key := hopsKey{&first[0], len(first)}
		hops, ok := sets[key]
		if !ok {
			for _, edge := range first {
				hops = append(hops, c.nextHops(g, edge)...)
			}
			slices.SortFunc(hops, NextHop.compare)
			hops = slices.Compact(hops)
			sets[key] = hops
		}
		return hops
	}
}

// nextHops returns the next hops for one first hop of the tree: a network or router at the other
// end of one of the router's links, or a router on such a network. For a virtual link they are
// those of the path through its transit area.
func (c *calculation) nextHops(g *graph, edge int32) []NextHop {
	from, to := g.Ends(edge)
	if g.lsas[from].Type == TypeNetwork {
		return c.acrossNetwork(g.lsas[from], g.lsas[to])
	}
	link := g.link(edge)
	if link.Type == LinkVirtual {
		for _, v := range c.r.virtual {
			if r := c.borderRoute(link.ID, v.transit.id); v.peer == link.ID && r != nil {
				return r.NextHops
			}
		}
		return nil
	}
	for _, i := range c.r.interfaces {
		if i.area != g.area || !i.isUp() || i.addr != link.Data && (i.addr != 0 || i.index != uint32(link.Data)) {
			continue
		}
		hop := NextHop{Interface: i, Addr: ID(0).Addr()}
		if link.Type == LinkPointToPoint {
			for _, p := range i.peers() {
				if p.id == link.ID {
					hop.Addr = p.addr.Addr()
				}
			}
		}
		return []NextHop{hop}
	}
	return nil
}

// acrossNetwork returns the hop to a router on an attached network: its address is in its
// router-LSA (section 16.1.1).
func (c *calculation) acrossNetwork(network, router LSA) []NextHop {
	net := keyOf(network.ID, bodyMask(network.Body))
	for _, i := range c.r.interfaces {
		if i.typ != Broadcast || !i.isUp() || i.network() != net {
			continue
		}
		var hops []NextHop
		for l := range router.links() {
			if l.Type == LinkTransit && l.ID == network.ID {
				hops = append(hops, NextHop{i, l.Data.Addr()})
			}
		}
		return hops
	}
	return nil
}
