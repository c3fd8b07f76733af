package balance

import (
	"math"
	"slices"
)

// behind is how far, as a share, counters of traffic may be behind those of the link that carries
// it while it begins: Open vSwitch adds to its entries' counters once a second or so.
const behind = 0.25

// Choose returns paths by algorithm 1 of the paper and nothing else: for the traffic that enters
// the network at a router, the path whose links have the least load in sum (equation 5), with no
// hysteresis, limit of moves, or regard for room. A link whose use is unknown is not taken.
//
// With own, each link's use is taken as it is, the traffic's own included, and only what leaves its
// path is returned. Without, the use of all traffic that a path is chosen for is left out, and what
// is then left of a link's use where that is little beside it (behind), so that links are as they
// were before it began; there is a Move for each path, also for one that stays,
// and none for traffic that enters at a router in Demand.Kept, whose next hops other paths join.
func Choose(n *Network, demands []Demand, o Options, own bool) (out []Move) {
	o.HopCost = 0
	s := newState(n, demands, o)
	type entry struct {
		demand int
		source
		path []int32
	}
	var list []entry
	for d := range demands {
		for _, from := range s.flows[d].sources {
			path := s.walk(d, s.flows[d].next, from.router)
			if len(path) > 0 && !demands[d].keeps(from.router) {
				list = append(list, entry{d, from, path})
			}
		}
	}
	if !own {
		left := map[int32]float64{} // out of a link's use, by link
		for _, e := range list {
			for _, l := range e.path {
				rate := min(e.rate, s.flows[e.demand].own[l])
				s.flows[e.demand].own[l] -= rate // which several share, where it is less than they send
				s.used[l] = max(0, s.used[l]-rate)
				left[l] += rate
			}
		}
		for l, rate := range left {
			if s.used[l] < behind*rate {
				s.used[l] = 0
			}
		}
	}
	for d := range s.flows {
		clear(s.flows[d].own) // all that is left counts
	}
	for _, e := range list {
		f := &s.flows[e.demand]
		path := s.graph.best(s, e.demand, e.router, 0)
		was, _, busiest, share := s.along(f, e.path, 0)
		will, _, _, _ := s.along(f, path, 0)
		if len(path) > 0 && math.Round(scale*will) >= math.Round(scale*was) {
			path, will = e.path, was // of several that which it has
		}
		if len(path) == 0 || own && slices.Equal(path, e.path) {
			continue
		}
		out = append(out, Move{e.demand, e.router, path, was, will, busiest, share})
	}
	return out
}

// keeps reports whether the next hop of a router was chosen before, and stays.
func (d *Demand) keeps(router int32) bool { return d.Kept != nil && d.Kept[router] }
