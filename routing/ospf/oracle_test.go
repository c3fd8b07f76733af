package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// The oracle computes what routes must be from the simulation's interfaces alone, by relaxing edges
// until nothing changes. It knows neither LSAs nor databases nor heaps.

type oracleNode struct {
	router *Router
	link   *simLink // of a broadcast network
}

// oracleEdges lists the edges of an area: from node to node, with cost.
func (s *sim) oracleEdges(area ID) map[oracleNode]map[oracleNode]uint32 {
	edges := map[oracleNode]map[oracleNode]uint32{}
	add := func(a, b oracleNode, cost uint32) {
		if edges[a] == nil {
			edges[a] = map[oracleNode]uint32{}
		}
		if old, ok := edges[a][b]; !ok || cost < old {
			edges[a][b] = cost
		}
	}
	for _, l := range s.links {
		var up []*Interface
		for _, i := range l.ends {
			if i.isUp() && i.area.id == area && !l.down && !i.router.removed {
				up = append(up, i)
			}
		}
		if len(up) < 2 {
			continue
		}
		for _, i := range up {
			if i.typ == Broadcast {
				add(oracleNode{router: i.router}, oracleNode{link: l}, uint32(i.cost))
				add(oracleNode{link: l}, oracleNode{router: i.router}, 0)
				continue
			}
			for _, j := range up {
				if i != j {
					add(oracleNode{router: i.router}, oracleNode{router: j.router}, uint32(i.cost))
				}
			}
		}
	}
	return edges
}

// oracleDist returns the distances of all nodes of an area from one.
func oracleDist(edges map[oracleNode]map[oracleNode]uint32, from oracleNode) map[oracleNode]uint32 {
	dist := map[oracleNode]uint32{from: 0}
	for changed := true; changed; {
		changed = false
		for a, out := range edges {
			da, ok := dist[a]
			if !ok {
				continue
			}
			for b, cost := range out {
				if old, ok := dist[b]; !ok || da+cost < old {
					dist[b], changed = da+cost, true
				}
			}
		}
	}
	return dist
}

// oracleNets returns the costs of an area's networks from a router.
func (s *sim) oracleNets(area ID, r *Router) map[netip.Prefix]uint32 {
	dist := oracleDist(s.oracleEdges(area), oracleNode{router: r})
	nets := map[netip.Prefix]uint32{}
	better := func(p netip.Prefix, cost uint32) {
		if old, ok := nets[p]; !ok || cost < old {
			nets[p] = cost
		}
	}
	for _, l := range s.links {
		for _, i := range l.ends {
			if d, ok := dist[oracleNode{router: i.router}]; ok && i.isUp() && i.area.id == area && !i.router.removed && i.addr != 0 {
				cost := d + uint32(i.cost)
				if n, ok := dist[oracleNode{link: l}]; ok && i.typ == Broadcast {
					cost = n
				}
				better(i.Address().Masked(), cost)
			}
		}
	}
	return nets
}

// oracleHops returns the next hops to each node of an area, as addresses: a neighbour is one when
// the path through it is as short as the shortest.
func (s *sim) oracleHops(area ID, r *Router) map[oracleNode][]netip.Addr {
	edges := s.oracleEdges(area)
	dist := oracleDist(edges, oracleNode{router: r})
	hops := map[oracleNode][]netip.Addr{}
	for _, l := range s.links {
		for _, i := range l.ends {
			if i.router != r || !i.isUp() || l.down || i.area.id != area {
				continue
			}
			for _, j := range l.ends {
				if i == j || !j.isUp() || j.router.removed {
					continue
				}
				for v, d := range oracleDist(edges, oracleNode{router: j.router}) {
					// A path that comes back to r, or to the network we share, is no shortest one.
					if uint32(i.cost)+d == dist[v] && v.router != r && v.link != l {
						hops[v] = append(hops[v], j.Address().Addr())
					}
				}
			}
		}
	}
	for v := range hops {
		slices.SortFunc(hops[v], netip.Addr.Compare)
		hops[v] = slices.Compact(hops[v])
	}
	return hops
}

// wantIntraArea fails unless every router has exactly the oracle's networks of the area, with their
// costs and next hops.
func (s *sim) wantIntraArea(area ID, routers []*Router) {
	s.t.Helper()
	for _, r := range routers {
		if r.removed {
			continue
		}
		if diff := s.compareIntraArea(area, r); diff != "" {
			s.t.Fatalf("router %v: %s", r.id, diff)
		}
	}
}

func (s *sim) compareIntraArea(area ID, r *Router) string {
	want := s.oracleNets(area, r)
	hops := s.oracleHops(area, r)
	dist := oracleDist(s.oracleEdges(area), oracleNode{router: r})
	var diff []string
	for _, route := range r.Routes().Routes {
		if route.Area != area || route.Type != IntraArea {
			continue
		}
		cost, ok := want[route.Prefix]
		if !ok || cost != route.Cost {
			diff = append(diff, fmt.Sprintf("%v, want cost %d (%v)", route, cost, ok))
		}
		delete(want, route.Prefix)
		var via []netip.Addr
		for _, l := range s.links {
			for _, i := range l.ends {
				if i.addr == 0 || i.Address().Masked() != route.Prefix || i.area.id != area || !i.isUp() {
					continue
				}
				v := oracleNode{router: i.router}
				if d, ok := dist[v]; ok && d+uint32(i.cost) == cost && i.router != r {
					via = append(via, hops[v]...)
				}
				if d, ok := dist[oracleNode{link: l}]; ok && d == cost {
					via = append(via, hops[oracleNode{link: l}]...)
				}
				if i.router == r && uint32(i.cost) == cost {
					via = append(via, ID(0).Addr())
				}
			}
		}
		slices.SortFunc(via, netip.Addr.Compare)
		via = slices.Compact(via)
		var got []netip.Addr
		for _, h := range route.NextHops {
			got = append(got, h.Addr)
		}
		if !slices.Equal(got, via) {
			diff = append(diff, fmt.Sprintf("%v, want next hops %v", route, via))
		}
	}
	for p, cost := range want {
		diff = append(diff, fmt.Sprintf("no route to %v, want cost %d", p, cost))
	}
	return strings.Join(diff, "\n")
}

// randomNetwork joins n routers by random point-to-point links and broadcast networks, connected,
// with few different costs so that many paths are equal.
func (s *sim) randomNetwork(area ID, routers []*Router) {
	cost := func(e end) end { return e.cost(1 + s.rnd.IntN(4)) }
	for i, r := range routers {
		s.stub(area, cost(at(r)), fmt.Sprintf("172.16.%d.1/24", i))
		if i > 0 {
			s.p2p(area, cost(at(r)), cost(at(routers[s.rnd.IntN(i)])))
		}
	}
	for range len(routers) / 2 {
		if a, b := s.rnd.IntN(len(routers)), s.rnd.IntN(len(routers)); a != b {
			s.p2p(area, cost(at(routers[a])), cost(at(routers[b])))
		}
	}
	for range len(routers) / 8 {
		var ends []end
		for _, i := range s.rnd.Perm(len(routers))[:3+s.rnd.IntN(3)] {
			ends = append(ends, cost(at(routers[i])))
		}
		s.lan(area, ends...)
	}
}

// connected tells whether all routers of an area reach each other.
func (s *sim) connected(area ID, routers []*Router) bool {
	dist := oracleDist(s.oracleEdges(area), oracleNode{router: routers[0]})
	return !slices.ContainsFunc(routers, func(r *Router) bool { _, ok := dist[oracleNode{router: r}]; return !ok })
}

// Fifty routers in random topologies with point-to-point links, broadcast networks and equal-cost
// paths have the oracle's routes; and again after a link has failed, and after a router has died.
func TestRandomTopologies(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, seed)
			routers := s.routers(50)
			s.randomNetwork(0, routers)
			s.run(80 * time.Second)
			s.wantSame()
			s.wantIntraArea(0, routers)

			for range 5 {
				s.fail(s.links[s.rnd.IntN(len(s.links))])
			}
			s.run(60 * time.Second)
			if s.connected(0, routers) {
				s.wantSame()
			}
			s.wantIntraArea(0, routers)

			dead := routers[s.rnd.IntN(50)]
			for _, i := range dead.Interfaces() {
				i.Down(s.now)
			}
			s.run(100 * time.Second)
			s.wantIntraArea(0, slices.DeleteFunc(routers, func(r *Router) bool { return r == dead }))
		})
	}
}
