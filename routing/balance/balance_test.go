package balance

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
)

const gbit = 1e9

// square is four routers in a ring, 0-1-2-3: two ways from 0 to 2 of two hops each. Links 2i and
// 2i+1 are the two directions of the ring's link i, from i to i+1.
func square(bandwidth float64) *Network {
	n := &Network{Entries: []int{5, 5, 5, 5}}
	for i := range int32(4) {
		j := (i + 1) % 4
		n.Links = append(n.Links, Link{From: i, To: j, Bandwidth: bandwidth}, Link{From: j, To: i, Bandwidth: bandwidth})
	}
	return n
}

// to2 is a demand from router 0 to router 2 over router 1.
func to2(rate float64) Demand {
	next := []int32{0, 2, None, 5}
	return Demand{Ends: []int32{2}, Next: next, Home: slices.Clone(next), Rate: []float64{rate, rate, 0, 0}}
}

// Equations 1 to 5 with figures that were computed by hand, in both readings of equation 2.
func TestModel(t *testing.T) {
	for _, c := range []struct{ got, want float64 }{
		{Bandwidth(100, 10), 10}, {Bandwidth(0, 10), 10}, {Bandwidth(0, 0), 0},
		{Model{}.BandwidthLoad(Link{Bandwidth: 10, Used: 4}, 100), 0.4},
		{Model{}.BandwidthLoad(Link{Bandwidth: 10, Used: 40}, 100), 1},
		{Model{}.BandwidthLoad(Link{Used: 4}, 100), 0},
		{Model{ByLargest: true}.BandwidthLoad(Link{Bandwidth: 10, Used: 4}, 100), 0.04},
		{EntryLoad(4, 8, 10), 0.6}, {EntryLoad(0, 0, 0), 0},
		{DefaultModel.Load(0.5, 1), 0.6},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}

// Of two demands on one full link one takes the idle way round, and says why; then nothing moves
// any more, though both links are full of elastic traffic.
func TestTwoElasticDemandsSettle(t *testing.T) {
	n := square(gbit)
	n.Links[0].Used, n.Links[2].Used = gbit, gbit
	demands := []Demand{to2(0.7 * gbit), to2(0.3 * gbit)}
	moves := Step(n, demands, Defaults())
	if len(moves) != 1 || moves[0].Demand != 1 || !slices.Equal(moves[0].Path, []int32{7, 5}) || moves[0].Busy != 0 || math.Abs(moves[0].Used-0.7) > 1e-9 {
		t.Fatalf("moves are %+v, not that of the demand with most to gain over 3", moves)
	}
	demands[1].Next = []int32{7, 2, None, 5}
	demands[1].Rate = []float64{gbit, 0, 0, gbit}
	demands[0].Rate = []float64{gbit, gbit, 0, 0}
	n.Links[7].Used, n.Links[5].Used = gbit, gbit
	if again := Step(n, demands, Defaults()); len(again) > 0 {
		t.Errorf("moved again: %+v", again)
	}
}

// A demand alone does not flee from its own traffic; nor does one where others use less than the
// hysteresis.
func TestNothingMovesWithoutNeed(t *testing.T) {
	n := square(gbit)
	n.Links[0].Used, n.Links[2].Used = gbit, gbit
	if moves := Step(n, []Demand{to2(gbit)}, Defaults()); len(moves) > 0 {
		t.Errorf("it fled from itself: %+v", moves)
	}
	n.Links[0].Used, n.Links[2].Used = 0.5*gbit, 0.42*gbit
	if moves := Step(n, []Demand{to2(0.42 * gbit)}, Defaults()); len(moves) > 0 {
		t.Errorf("8 %% of a link by others: %+v", moves)
	}
}

// A link of which nobody knows what it carries looks idle, and is no way: neither to move to nor to
// go home by.
func TestNothingMovesToTheUnknown(t *testing.T) {
	n := square(gbit)
	n.Links[0].Used, n.Links[2].Used = gbit, gbit
	demands := []Demand{to2(0.7 * gbit), to2(0.3 * gbit)}
	n.Links[5].Unknown = true
	if moves := Step(n, demands, Defaults()); len(moves) > 0 {
		t.Errorf("it moved to a link that is not known: %+v", moves)
	}
	n = square(gbit)
	away := to2(0.3 * gbit)
	away.Next = []int32{7, 2, None, 5}
	away.Rate = []float64{0.3 * gbit, 0, 0, 0.3 * gbit}
	n.Links[7].Used, n.Links[5].Used = 0.3*gbit, 0.3*gbit
	if moves := Step(n, []Demand{away}, Defaults()); len(moves) != 1 || len(moves[0].Path) != 0 {
		t.Errorf("it does not go home: %+v", moves)
	}
	n.Links[2].Unknown = true
	if moves := Step(n, []Demand{away}, Defaults()); len(moves) > 0 {
		t.Errorf("it went home by a link that is not known: %+v", moves)
	}
}

// What has moved goes home when the traffic that it avoided is gone, and not before.
func TestGoesHome(t *testing.T) {
	n := square(gbit)
	d := to2(0)
	d.Next = []int32{7, 2, None, 5}
	d.Rate = []float64{0.3 * gbit, 0, 0, 0.3 * gbit}
	n.Links[7].Used, n.Links[5].Used = 0.3*gbit, 0.3*gbit
	n.Links[0].Used = 0.9 * gbit
	if moves := Step(n, []Demand{d}, Defaults()); len(moves) > 0 {
		t.Fatalf("home is full: %+v", moves)
	}
	n.Links[0].Used = 0.02 * gbit
	if moves := Step(n, []Demand{d}, Defaults()); len(moves) != 1 || moves[0].Path != nil {
		t.Errorf("home is idle: %+v", moves)
	}
	d.Rate = make([]float64, 4)
	n.Links[0].Used = gbit
	if moves := Step(n, []Demand{d}, Defaults()); len(moves) != 1 || moves[0].Path != nil {
		t.Errorf("nothing is sent any more, so nothing has to be elsewhere: %+v", moves)
	}
}

// A way that has less left over than the demand gets now is none: neither a slow link nor a full
// one; and a router whose route is fixed is not passed.
func TestWaysThatAreNone(t *testing.T) {
	full := func() (*Network, []Demand) {
		n := square(gbit)
		n.Links[0].Used, n.Links[2].Used = gbit, gbit
		return n, []Demand{to2(0.7 * gbit), to2(0.3 * gbit)}
	}
	n, d := full()
	n.Links[5].Bandwidth = 0.1 * gbit
	if moves := Step(n, d, Defaults()); len(moves) > 0 {
		t.Errorf("over a link of 100 Mbit/s: %+v", moves)
	}
	n, d = full()
	n.Links[7].Used = 0.8 * gbit
	if moves := Step(n, d, Defaults()); len(moves) > 0 {
		t.Errorf("over a link with 200 Mbit/s left: %+v", moves)
	}
	n, d = full()
	for i := range d {
		d[i].Next[3], d[i].Home[3] = Fixed, Fixed
	}
	if moves := Step(n, d, Defaults()); len(moves) > 0 {
		t.Errorf("through a router that has another route: %+v", moves)
	}
}

// One step moves no more than it may.
func TestMovesAreBounded(t *testing.T) {
	n := square(gbit)
	n.Links[0].Used, n.Links[2].Used = gbit, gbit
	var d []Demand
	for range 20 {
		d = append(d, to2(gbit/20))
	}
	o := Defaults()
	o.Moves = 3
	if moves := Step(n, d, o); len(moves) != 3 {
		t.Errorf("%d moves", len(moves))
	}
	o.Moves = 100
	moves := Step(n, d, o)
	if len(moves) < 8 || len(moves) > 11 { // 10 would be half; the hysteresis is two of them
		t.Errorf("%d of 20 equal demands moved", len(moves))
	}
}

// Best lists paths by their load without loops, and tells parallel links apart; none leads on from
// a router that has the destination, or that is fixed. When nobody waits any more it ends.
func TestBest(t *testing.T) {
	n := square(gbit)
	n.Links = append(n.Links, Link{From: 0, To: 1, Bandwidth: gbit, Used: 0.5 * gbit})
	n.Links[7].Used = 0.9 * gbit
	none := func(int32) bool { return false }
	for _, c := range []struct {
		to    []int32
		fixed func(int32) bool
		want  [][]int32
	}{
		{[]int32{2}, none, [][]int32{{0, 2}, {8, 2}, {7, 5}}},
		{[]int32{2}, func(r int32) bool { return r == 1 }, [][]int32{{7, 5}}},
		{[]int32{1, 2}, none, [][]int32{{0}, {8}, {7, 5}}},
		{[]int32{0}, none, nil},
	} {
		got, err := Model{K1: 1}.Best(t.Context(), n, 0, c.to, 5, 0.01, c.fixed)
		if err != nil || !slices.EqualFunc(got, c.want, slices.Equal[[]int32]) {
			t.Errorf("to %v: %v (%v), want %v", c.to, got, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := (Model{K1: 1}).Best(ctx, n, 0, []int32{2}, 5, 0.01, none); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("when nobody waits: %v (%v)", got, err)
	}
}
