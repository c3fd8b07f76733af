package balance

import (
	"cmp"
	"slices"
	"time"

	"trivet.dev/trivet/topology"
)

// division is a destination to which packets are led in parts.
type division[K comparable] struct {
	parts []K
	last  time.Time // when so much went there that it was to be divided
}

const (
	// maxDivided is how many destinations are divided at a time: each has an entry for each part in
	// each router.
	maxDivided = 64
	// keepDivided is for how many periods a destination stays divided to which little goes.
	keepDivided = 8
	// maxParts is how many parts that have not moved are looked at in a period.
	maxParts = 64
)

// divide finds the destinations that are to be led in parts: of which some link on the way carries
// more than the hysteresis, so that parts of them are what others of them avoid. mu must be held.
func (a *Balancer[K]) divide(c Config, r *reading[K]) (changed bool) {
	if c.Per != topology.PerPart && c.Per != topology.PerFlow {
		return false
	}
	now := time.Now()
	for k, share := range a.shares(r) {
		d := a.divided[k]
		switch m := a.moved[k]; {
		case share <= c.Hysteresis, m != nil && m.User:
		case d != nil:
			d.last = now
		case len(a.divided) < maxDivided:
			if list := a.ground.Parts(k, c.Per == topology.PerFlow); len(list) > 0 {
				a.divided[k], changed = &division[K]{list, now}, true
			}
		}
	}
	for k, d := range a.divided {
		if now.Sub(d.last) > keepDivided*c.Period {
			a.unite(k)
			changed = true
		}
	}
	return changed
}

// shares returns the most that any link would carry of what goes to each destination, in all its
// parts, if it took its shortest path: as a share of the link.
func (a *Balancer[K]) shares(r *reading[K]) map[K]float64 {
	sent := map[K]map[uint64]float64{} // by datapath
	for dpid, rates := range r.carried {
		for k, rate := range rates {
			k = a.ground.Whole(k)
			if sent[k] == nil {
				sent[k] = map[uint64]float64{}
			}
			sent[k][dpid] += rate
		}
	}
	out := map[K]float64{}
	for k, rates := range sent {
		d, _ := a.ground.Destination(k)
		for dpid, rate := range rates {
			if l, known := r.edges[d.Home[dpid]]; known && r.network.Links[l].Bandwidth > 0 {
				out[k] = max(out[k], rate/r.network.Links[l].Bandwidth)
			}
		}
	}
	return out
}

// unite ends that a destination is led in parts. mu must be held.
func (a *Balancer[K]) unite(k K) {
	if a.divided[k] == nil {
		return
	}
	delete(a.divided, k)
	for p := range a.moved {
		if p != k && a.ground.Whole(p) == k {
			delete(a.moved, p)
			a.rests.Forget(p)
		}
	}
}

// largest leaves out all parts but those to which most goes: where many flows are led one by one,
// the few that fill links are worth looking at.
func (a *Balancer[K]) largest(r *reading[K], list []K) (out []K) {
	var parts []K
	for _, k := range list {
		if a.ground.Whole(k) == k || a.moved[k] != nil {
			out = append(out, k)
		} else {
			parts = append(parts, k)
		}
	}
	slices.SortStableFunc(parts, func(x, y K) int { return -cmp.Compare(r.sent(x), r.sent(y)) })
	return append(out, parts[:min(len(parts), maxParts)]...)
}
