package balance

import (
	"slices"

	"trivet.dev/trivet/controller/steer"
	engine "trivet.dev/trivet/routing/balance"
	"trivet.dev/trivet/topology"
)

// choice is how traffic to a destination goes, with choose: once: of each datapath of a path that
// was chosen, the next hop, also where that is the shortest path's.
type choice struct {
	ways   steer.Ways
	silent int // consecutive readings without traffic
}

// literal reports whether paths are chosen as the paper has it, without regard to whether that is
// of use.
func (c *Config) literal() bool {
	return c.Choose == topology.ChooseOnce || c.Choose == topology.ChooseAlways
}

// choose returns what moves according to a reading, by the configured rule.
func (c *Config) choose(n *engine.Network, demands []engine.Demand) []engine.Move {
	if c.literal() {
		return engine.Choose(n, demands, c.Options, c.Choose == topology.ChooseAlways)
	}
	return engine.Step(n, demands, c.Options)
}

// isKept reports whether a datapath's next hop to a destination was chosen. mu must be held.
func (a *Balancer[K]) isKept(k K, dpid uint64) bool {
	c := a.chosen[k]
	if c == nil {
		return false
	}
	_, ok := c.ways[dpid]
	return ok
}

// keep records a path that is chosen once, and reports whether it is another one than packets take.
// mu must be held.
func (a *Balancer[K]) keep(r *reading[K], k K, path []int32) (moves bool) {
	c := a.chosen[k]
	if c == nil {
		c = &choice{ways: steer.Ways{}}
		a.chosen[k] = c
	}
	for _, l := range path {
		e := r.order[l]
		c.ways[e.From] = e
		moves = moves || r.to[k].Next[e.From] != e
	}
	return moves
}

// void ends choices whose path has lost a link: what goes there is chosen for anew. Where no link
// is known, or a datapath of the path cannot be asked, it is not known whether it has. mu must be
// held.
func (a *Balancer[K]) void(r *reading[K]) {
	if len(r.edges) == 0 {
		return
	}
	for k, c := range a.chosen {
		if a.isUnheard(r, c.ways) {
			continue
		}
		for _, e := range c.ways {
			if _, there := r.edges[e]; !there {
				delete(a.chosen, k)
			}
		}
	}
}

// endChoices ends those of destinations to which nothing has been sent for a while, and takes such
// destinations home. mu must be held.
func (a *Balancer[K]) endChoices(r *reading[K]) (ended bool) {
	end := func(k K) {
		delete(a.chosen, k)
		if m := a.moved[k]; m != nil && !m.User {
			delete(a.moved, k)
			ended = true
		}
	}
	for k, c := range a.chosen {
		switch {
		case r.sent(k) > 0:
			c.silent = 0
		case !a.isUnheard(r, c.ways):
			c.silent++
		}
		if c.silent >= goneSilent {
			end(k)
		}
	}
	for k, m := range a.moved {
		if m.silent >= goneSilent {
			end(k)
		}
	}
	return ended
}

// forgetChoices ends the choices for a destination and its parts. mu must be held.
func (a *Balancer[K]) forgetChoices(of K) {
	for k := range a.chosen {
		if a.domain.Whole(k) == of {
			delete(a.chosen, k)
		}
	}
}

// kept lists by router, in the order of a reading, whose next hops to a destination were chosen.
// mu must be held.
func (a *Balancer[K]) kept(r *reading[K], k K) (out []bool) {
	if a.chosen[k] == nil {
		return nil
	}
	out = slices.Repeat([]bool{false}, len(r.index))
	for dpid := range a.chosen[k].ways {
		if i, known := r.index[dpid]; known {
			out[i] = true
		}
	}
	return out
}
