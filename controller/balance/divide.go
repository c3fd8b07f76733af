package balance

import (
	"time"
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
)

// divide finds the destinations that are to be led in parts: of which some link on the way carries
// more than the hysteresis, so that parts of them are what others of them avoid. mu must be held.
func (a *Balancer[K]) divide(c Config, r *reading[K]) (changed bool) {
	now, sent := time.Now(), map[K]float64{}
	for dpid, rates := range r.carried {
		whole := map[K]float64{}
		for k, rate := range rates {
			if p, is := a.partOf[k]; is {
				k = p
			}
			whole[k] += rate
		}
		for k, rate := range whole {
			d, is := a.ground.Destination(k)
			l, known := r.edges[d.Home[dpid]]
			if !is || !known || r.network.Links[l].Bandwidth <= 0 {
				continue
			}
			sent[k] = max(sent[k], rate/r.network.Links[l].Bandwidth)
		}
	}
	for k, share := range sent {
		d := a.divided[k]
		switch m := a.moved[k]; {
		case share <= c.Hysteresis, m != nil && m.User:
		case d != nil:
			d.last = now
		case len(a.divided) < maxDivided:
			if list := a.ground.Parts(k); len(list) > 0 {
				a.divided[k] = &division[K]{list, now}
				for _, p := range list {
					a.partOf[p] = k
				}
				changed = true
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

// unite ends that a destination is led in parts. mu must be held.
func (a *Balancer[K]) unite(k K) {
	d := a.divided[k]
	if d == nil {
		return
	}
	for _, p := range d.parts {
		delete(a.partOf, p)
		delete(a.moved, p)
	}
	delete(a.divided, k)
}
