// Package centre is the scheduling centre of a cluster: it says which member has the least to do,
// counts what it has placed there, and says which switches move when members come, go or have too
// much. It is a role that any member can have: whoever holds it by a lease in the store.
//
// The paper has its equations (6) to (10) and its Algorithm 2 as pictures that its text lacks: what
// is here is our reading. Where they are undefined (0/0, ties, nobody) it is decided here.
package centre

import (
	"errors"
	"fmt"
	"math"
)

// Member is how much a member has to do.
type Member struct {
	Name       string
	Nodes      int    // routing nodes
	Addresses  int    // that it answers for
	Southbound uint64 // bytes of OpenFlow in the last 30 s, both directions: ST, equation (8)
}

// Weights are those of equation (10). No weights are named in the paper: equal ones are its literal
// reading.
type Weights struct{ Nodes, Addresses, Southbound float64 }

// Measure is what busyness is computed by.
type Measure struct {
	Weights Weights
	Most    uint64 // SF_max of equation (9): bytes of OpenFlow in 30 s that a member is thought to bear
}

// Default has equal weights that sum to one, and 100 Mbit/s for 30 s.
var Default = Measure{Weights: Weights{1. / 3, 1. / 3, 1. / 3}, Most: 375_000_000}

// Check says what cannot be computed with.
func (m Measure) Check() error {
	sum := 0.
	for _, w := range []float64{m.Weights.Nodes, m.Weights.Addresses, m.Weights.Southbound} {
		if !(w >= 0) || math.IsInf(w, 1) {
			return fmt.Errorf("the weight %v is not a number from 0", w)
		}
		sum += w
	}
	if sum == 0 {
		return errors.New("all weights are 0: then no member is less busy than another")
	}
	if m.Most == 0 {
		return errors.New("the most southbound traffic that a member bears is 0")
	}
	return nil
}

// Share is how busy a member is beside the others.
type Share struct {
	Member   string
	RM       float64 // of all routing nodes, equation (6)
	AM       float64 // of all addresses, equation (7)
	SF       float64 // of the most southbound traffic, equation (9): of no others', and above 1 where there is more
	Busyness float64 // equation (10)
}

// Shares computes equations (6) to (10) for members, in their order. Nobody has a share of nothing:
// where there are no nodes, or no addresses, each has 0.
func (m Measure) Shares(members []Member) []Share {
	sum := m.totals(members, nil)
	out := make([]Share, len(members))
	for i, x := range members {
		out[i] = sum.share(x)
	}
	return out
}

// totals are what shares are of.
type totals struct {
	Measure
	nodes, addresses float64
}

func (m Measure) totals(members []Member, switches []Switch) totals {
	t := totals{Measure: m}
	for _, x := range members {
		t.nodes += float64(x.Nodes)
		t.addresses += float64(x.Addresses)
	}
	for _, s := range switches {
		t.nodes += float64(s.Nodes)
		t.addresses += float64(s.Addresses)
	}
	return t
}

func (t totals) share(x Member) Share {
	s := Share{Member: x.Name, SF: float64(x.Southbound) / float64(t.Most)}
	if t.nodes > 0 {
		s.RM = float64(x.Nodes) / t.nodes
	}
	if t.addresses > 0 {
		s.AM = float64(x.Addresses) / t.addresses
	}
	s.Busyness = t.Weights.Nodes*s.RM + t.Weights.Addresses*s.AM + t.Weights.Southbound*s.SF
	return s
}

// ErrNobody is that there is no member to choose.
var ErrNobody = errors.New("no member of the cluster is there")

// Idlest is Algorithm 2, once the shares are computed: the one that is least busy, of several the
// first by name.
func Idlest(shares []Share) (Share, error) {
	if len(shares) == 0 {
		return Share{}, ErrNobody
	}
	least := shares[0]
	for _, s := range shares[1:] {
		if s.Busyness < least.Busyness || s.Busyness == least.Busyness && s.Member < least.Member {
			least = s
		}
	}
	return least, nil
}
