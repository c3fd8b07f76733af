package centre

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// Proves equations (6) to (10) by an example computed by hand, with weights of one's own.
func TestShares(t *testing.T) {
	m := Measure{Weights: Weights{0.5, 0.3, 0.2}, Most: 1000}
	got := m.Shares([]Member{{"c1", 10, 20, 500}, {"c2", 30, 0, 2500}, {"c3", 0, 20, 0}})
	for i, want := range []Share{{"c1", 0.25, 0.5, 0.5, 0.125 + 0.15 + 0.1}, {"c2", 0.75, 0, 2.5, 0.375 + 0.5}, {"c3", 0, 0.5, 0, 0.15}} {
		g := got[i]
		if g.Member != want.Member || !near(g.RM, want.RM) || !near(g.AM, want.AM) || !near(g.SF, want.SF) || !near(g.Busyness, want.Busyness) {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
	if least, err := Idlest(got); err != nil || least.Member != "c3" {
		t.Error(least, err)
	}
}

// Proves what is undefined in the paper: an empty cluster, no members, ties, and one member.
func TestUndefined(t *testing.T) {
	empty := Default.Shares([]Member{{Name: "b"}, {Name: "a"}})
	for _, s := range empty {
		if s.RM != 0 || s.AM != 0 || s.SF != 0 || s.Busyness != 0 {
			t.Errorf("a share of nothing: %+v", s)
		}
	}
	if least, err := Idlest(empty); err != nil || least.Member != "a" {
		t.Error("a tie goes to the first by name:", least, err)
	}
	if _, err := Idlest(Default.Shares(nil)); !errors.Is(err, ErrNobody) {
		t.Error(err)
	}
	if least, err := Idlest(Default.Shares([]Member{{"only", 5, 5, 5}})); err != nil || least.Member != "only" || !near(least.RM, 1) {
		t.Error(least, err)
	}
}

// Proves what cannot be computed with is refused.
func TestMeasureCheck(t *testing.T) {
	if err := Default.Check(); err != nil {
		t.Error(err)
	}
	for _, m := range []Measure{{Weights{-1, 1, 1}, 1}, {Weights{math.NaN(), 1, 1}, 1}, {Weights{math.Inf(1), 0, 0}, 1}, {Weights{}, 1}, {Weights{1, 1, 1}, 0}} {
		if m.Check() == nil {
			t.Errorf("%+v is accepted", m)
		}
	}
	for _, l := range []Limits{{-1, 1, 0}, {1, 0.1, 0.1}, {1, 0.1, 0.2}, {1, 0.5, -1}, {1, math.NaN(), 0}, {10_001, 0.5, 0.1}} {
		if l.Check() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if err := errors.Join(DefaultLimits.Check(), Limits{0, 0.5, 0}.Check()); err != nil {
		t.Error(err)
	}
}

// cluster draws members, perhaps without anything to do.
func drawMembers(t *rapid.T, least int) []Member {
	n := rapid.IntRange(least, 8).Draw(t, "members")
	out := make([]Member, n)
	for i := range out {
		out[i] = Member{fmt.Sprintf("c%d", i), rapid.IntRange(0, 1000).Draw(t, "nodes"), rapid.IntRange(0, 1000).Draw(t, "addresses"),
			rapid.Uint64Range(0, 1<<32).Draw(t, "southbound")}
	}
	return out
}

func drawMeasure(t *rapid.T) Measure {
	w := rapid.Float64Range(0, 1)
	return Measure{Weights{w.Draw(t, "w1"), w.Draw(t, "w2"), 0.01 + w.Draw(t, "w3")}, rapid.Uint64Range(1, 1<<33).Draw(t, "most")}
}

// Proves of any cluster that shares sum to one, or to nothing where there is nothing, that nobody is
// less busy than the idlest, and that whoever is given more is no less busy.
func TestSharesOfAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, m := drawMembers(t, 1), drawMeasure(t)
		shares := m.Shares(members)
		var rm, am float64
		for _, s := range shares {
			rm, am = rm+s.RM, am+s.AM
		}
		for _, sum := range []float64{rm, am} {
			if !near(sum, 1) && sum != 0 {
				t.Fatalf("shares sum to %v", sum)
			}
		}
		least, err := Idlest(shares)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shares {
			if s.Busyness < least.Busyness || s.Busyness == least.Busyness && s.Member < least.Member {
				t.Fatalf("%+v is less busy than %+v", s, least)
			}
		}
		i := rapid.IntRange(0, len(members)-1).Draw(t, "given more")
		more := append([]Member(nil), members...)
		more[i].Nodes += 10
		if after := m.Shares(more)[i]; after.Busyness < shares[i].Busyness-1e-9 {
			t.Fatalf("with more nodes %+v is %+v", shares[i], after)
		}
	})
}
