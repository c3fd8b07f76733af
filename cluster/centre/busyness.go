// Package centre is the scheduling centre of a cluster: it determines the least busy member, counts
// what it has placed there, and moves switches when members join, leave or are overloaded. Any
// member can be the centre: it is the one that holds a lease in the store.
//
// The text of the paper lacks its equations (6) to (10) and Algorithm 2, which are pictures: this
// is our reading. Cases that they leave undefined (0/0, ties, no members) are decided here.
package centre

import (
	"errors"
	"fmt"
	"math"
)

// Member is the load of a member.
type Member struct {
	Name       string
	Nodes      int    // routing nodes
	Addresses  int    // that it answers for
	Southbound uint64 // bytes of OpenFlow in the last 30 s, both directions: ST, equation (8)
}

// Weights are those of equation (10). The paper gives no weights: equal ones are its literal
// reading.
type Weights struct{ Nodes, Addresses, Southbound float64 }

// Measure holds the parameters of busyness.
type Measure struct {
	Weights Weights
	Most    uint64 // SF_max of equation (9): bytes of OpenFlow in 30 s that a member is assumed to sustain
}

// Default has equal weights that sum to one, and 100 Mbit/s for 30 s.
var Default = Measure{Weights: Weights{1. / 3, 1. / 3, 1. / 3}, Most: 375_000_000}

// Check reports invalid parameters.
func (m Measure) Check() error {
	sum := 0.
	for _, w := range []float64{m.Weights.Nodes, m.Weights.Addresses, m.Weights.Southbound} {
		if !(w >= 0) || math.IsInf(w, 1) {
			return fmt.Errorf("the weight %v is not a number from 0", w)
		}
		sum += w
	}
	if sum == 0 {
		return errors.New("all weights are 0: no member would be less busy than another")
	}
	if m.Most == 0 {
		return errors.New("the maximum southbound traffic of a member is 0")
	}
	return nil
}

// Share is a member's share of the load.
type Share struct {
	Member   string
	RM       float64 // of all routing nodes, equation (6)
	AM       float64 // of all addresses, equation (7)
	SF       float64 // of Most, equation (9): independent of other members, and above 1 beyond that
	Busyness float64 // equation (10)
}

// Shares computes equations (6) to (10) for members, in their order. If there are no nodes, or no
// addresses, all shares of them are 0.
func (m Measure) Shares(members []Member) []Share {
	sum := m.totals(members, nil)
	out := make([]Share, len(members))
	for i, x := range members {
		out[i] = sum.share(x)
	}
	return out
}

// totals are the denominators of shares.
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

// ErrNobody means that there is no member to choose.
var ErrNobody = errors.New("no member of the cluster is there")

// Idlest is Algorithm 2 after the shares have been computed: it returns the least busy member; ties
// are broken by name.
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
