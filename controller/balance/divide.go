package balance

import (
	"maps"
	"time"

	"trivet.dev/trivet/topology"
)

// division is a destination whose traffic is divided into parts.
type division[K comparable] struct {
	parts []K
	last  time.Time // when its traffic was last large enough to be divided
}

const (
	// maxDivided limits the destinations that are divided at a time: each has an entry per part in
	// each router.
	maxDivided = 64
	// keepDivided is for how many periods a destination stays divided after its traffic has become
	// small.
	keepDivided = 8
)

// divide chooses the destinations to divide: those that load some link on their path beyond the
// hysteresis, so that their own parts compete. If the reading is incomplete, it only ends
// divisions. large is the traffic per destination. mu must be held.
func (a *Balancer[K]) divide(c Config, r *reading[K], large map[K]map[uint64]float64) (changed bool) {
	if !c.divides() {
		return false
	}
	now := time.Now()
	for k, rates := range large {
		d := a.divided[k]
		switch m := a.moved[k]; {
		case r.share(k, rates) <= c.Hysteresis, m != nil && m.User:
		case d != nil:
			d.last = now
		case r.complete && len(a.divided) < maxDivided:
			if list := a.domain.Parts(k, c.Per == topology.PerFlow); len(list) > 0 {
				a.divided[k], changed = &division[K]{list, now}, true
			}
		}
	}
	for k, d := range a.divided {
		if now.Sub(d.last) > keepDivided*c.Period && !a.isPartAway(k) {
			a.unite(k)
			changed = true
		}
	}
	return changed
}

func (c *Config) divides() bool { return c.Per == topology.PerPart || c.Per == topology.PerFlow }

// isPartAway reports whether a part of the traffic to a destination passes a datapath that is
// disconnected.
func (a *Balancer[K]) isPartAway(k K) bool {
	for p, m := range a.moved {
		if p != k && a.domain.Whole(p) == k && a.isAway(m) {
			return true
		}
	}
	return false
}

// large returns, for destinations that may be divided, what datapaths send to all their parts:
// those that could load a link beyond the hysteresis.
func (a *Balancer[K]) large(c Config, r *reading[K]) map[K]map[uint64]float64 {
	if !c.divides() {
		return nil
	}
	least := map[uint64]float64{} // the smallest bandwidth of a datapath's links
	for i, e := range r.order {
		if b, old := r.network.Links[i].Bandwidth, least[e.From]; b > 0 && (old == 0 || b < old) {
			least[e.From] = b
		}
	}
	sent := map[K]map[uint64]float64{} // by datapath
	for dpid, rates := range r.carried {
		for k, rate := range rates {
			k = a.domain.Whole(k)
			if sent[k] == nil {
				sent[k] = map[uint64]float64{}
			}
			sent[k][dpid] += rate
		}
	}
	maps.DeleteFunc(sent, func(_ K, rates map[uint64]float64) bool {
		for dpid, rate := range rates {
			if b := least[dpid]; b > 0 && rate > c.Hysteresis*b {
				return false
			}
		}
		return true
	})
	return sent
}

// share returns the highest share of any link's bandwidth that the traffic to a destination would
// take on its shortest path.
func (r *reading[K]) share(k K, rates map[uint64]float64) (most float64) {
	d := r.to[k]
	if d == nil {
		return 0
	}
	for dpid, rate := range rates {
		if l, known := r.edges[d.Home[dpid]]; known && r.network.Links[l].Bandwidth > 0 {
			most = max(most, rate/r.network.Links[l].Bandwidth)
		}
	}
	return most
}

// unite ends the division of a destination. mu must be held.
func (a *Balancer[K]) unite(k K) {
	if a.divided[k] == nil {
		return
	}
	delete(a.divided, k)
	a.forgetChoices(k)
	for p := range a.moved {
		if p != k && a.domain.Whole(p) == k {
			delete(a.moved, p)
			a.rests.Forget(p)
		}
	}
}
