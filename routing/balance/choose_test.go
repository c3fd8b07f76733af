package balance

import (
	"slices"
	"testing"
)

// figure18 is the network of the paper's figure 18 as experiments have it: two ways from router 0
// to router 3, over 1, and over 2 and 4; hosts C1 and C2 (5, 6) at router 0, C3 and C4 (7, 8) at
// router 3. C1 sends to C3, and C2 to C4, as much as there is room for.
func figure18() *fluid {
	f := &fluid{Network: &Network{Entries: slices.Repeat([]int{10}, 9)}}
	join := func(a, b int32, bandwidth float64) {
		f.Links = append(f.Links, Link{From: a, To: b, Bandwidth: bandwidth}, Link{From: b, To: a, Bandwidth: bandwidth})
	}
	for _, l := range [][2]int32{{0, 1}, {1, 3}, {0, 2}, {2, 4}, {4, 3}} {
		join(l[0], l[1], gbit)
	}
	for _, l := range [][2]int32{{0, 5}, {0, 6}, {3, 7}, {3, 8}} {
		join(l[0], l[1], 10*gbit)
	}
	f.pairs = []pair{{5, 7, 0}, {6, 8, 0}}
	f.route()
	return f
}

// takes is the way of a pair: the short or the long one.
func (f *fluid) takes(pair int) string {
	if slices.Contains(f.ways()[pair], 0) {
		return "short"
	}
	return "long"
}

// choosing lets C1 begin at once and C2 at a step, moves traffic by a rule at each of 30 steps, and
// returns how often something moved in the last 20.
func (f *fluid) choosing(second int, rule func() []Move) (late int) {
	exact := func() float64 { return 1 }
	for step := range 30 {
		f.pairs[0].wants = 2 * gbit
		if step >= second {
			f.pairs[1].wants = 2 * gbit
		}
		f.measure(exact)
		moves := rule()
		f.follow(moves)
		if step >= 10 {
			late += len(moves)
		}
	}
	f.measure(exact)
	return late
}

// Proves that paths chosen again and again by loads with the traffic's own, as the paper can be
// read, never come to rest: one flow alone moves at every step, and two that fill the short way
// move together, so that one way is always idle. By our rule one flow stays, of two one moves,
// once.
func TestAlwaysOscillates(t *testing.T) {
	for name, c := range map[string]struct {
		second       int // the step at which C2 begins
		always, busy int // moves in 20 steps
		apart        bool
	}{
		"one flow":          {second: 100, always: 20, busy: 0},
		"two flows at once": {second: 0, always: 40, busy: 0, apart: true},
	} {
		f := figure18()
		if got := f.choosing(c.second, func() []Move { return Choose(f.Network, f.demands, Defaults(), true) }); got != c.always {
			t.Errorf("%s, chosen always: %d moves in 20 steps, want %d", name, got, c.always)
		}
		if c.apart && f.takes(0) != f.takes(1) {
			t.Errorf("%s, chosen always: they are apart", name)
		}
		f = figure18()
		if got := f.choosing(c.second, func() []Move { return Step(f.Network, f.demands, Defaults()) }); got != c.busy {
			t.Errorf("%s, by our rule: %d moves in 20 steps, want %d", name, got, c.busy)
		}
		if c.apart != (f.takes(0) != f.takes(1)) {
			t.Errorf("%s, by our rule: C1 takes the %s way, C2 the %s one", name, f.takes(0), f.takes(1))
		}
	}
}

// once is Choose for traffic that is new, which keeps what it has chosen.
func (f *fluid) once() []Move {
	moves := Choose(f.Network, f.demands, Defaults(), false)
	for _, m := range moves {
		d := &f.demands[m.Demand]
		if d.Kept == nil {
			d.Kept = make([]bool, len(f.Entries))
		}
		for _, l := range m.Path {
			d.Kept[f.Links[l].From] = true
		}
	}
	return moves
}

// Proves that paths chosen once stay: C1 takes the short way, and keeps it; C2, which begins later,
// takes the long one, which is idle, and keeps it, too. Where both begin at once neither sees the
// other, and both take the short way.
func TestOnceStays(t *testing.T) {
	for second, want := range map[int]string{5: "long", 0: "short"} {
		f := figure18()
		if late := f.choosing(second, f.once); late > 0 {
			t.Errorf("C2 begins at %d: %d moves after step 10", second, late)
		}
		if f.takes(0) != "short" || f.takes(1) != want {
			t.Errorf("C2 begins at %d: C1 takes the %s way, C2 the %s one, want short and %s", second, f.takes(0), f.takes(1), want)
		}
	}
}

// Proves that a path that is chosen for new traffic joins one that was chosen before for the same
// destination, and does not change it, though another way has become idle since; and that nothing
// is led over a link of which nobody knows what it carries.
func TestOnceJoins(t *testing.T) {
	n := square(gbit)
	n.Links[2].Used = 0.9 * gbit // from 1 to 2
	d := to2(0)
	d.Rate = []float64{0.1 * gbit, 0.9 * gbit, 0, 0} // 1 has sent before, now 0 does too
	d.Kept = []bool{false, true, false, false}
	n.Links[7].Used = gbit // the other way is full
	n.Links[0].Used = 0.1 * gbit
	moves := Choose(n, []Demand{d}, Defaults(), false)
	if len(moves) != 1 || moves[0].From != 0 || !slices.Equal(moves[0].Path, []int32{0, 2}) {
		t.Errorf("with the other way full: %+v", moves)
	}
	n.Links[7].Used = 0
	n.Links[0].Used = 0.9 * gbit
	d.Rate[0] = 0.001 * gbit
	if moves := Choose(n, []Demand{d}, Defaults(), false); len(moves) != 1 || !slices.Equal(moves[0].Path, []int32{7, 5}) {
		t.Errorf("with the other way idle: %+v", moves)
	}
	n.Links[5].Unknown = true
	if moves := Choose(n, []Demand{d}, Defaults(), false); len(moves) != 1 || !slices.Equal(moves[0].Path, []int32{0, 2}) {
		t.Errorf("with the other way unknown: %+v", moves)
	}
	// 3 sends for the first time: the way over 0 would join the one chosen there, over 1.
	d = to2(0.1 * gbit)
	d.Rate[3] = 0.1 * gbit
	d.Kept = []bool{true, true, false, false}
	n = square(gbit)
	n.Links[5].Used = gbit // from 3 to 2
	if moves := Choose(n, []Demand{d}, byBandwidth(), false); len(moves) != 1 || !slices.Equal(moves[0].Path, []int32{6, 0, 2}) {
		t.Errorf("from 3: %+v", moves)
	}
	d.Next[0], d.Rate[3] = 7, 0.2*gbit // then the way over 0 would come back
	if moves := Choose(n, []Demand{d}, byBandwidth(), false); len(moves) != 1 || !slices.Equal(moves[0].Path, []int32{5}) {
		t.Errorf("from 3, when 0 sends over 3: %+v", moves)
	}
}

// Proves that of a full link, where a demand of several routers gets less through than they send,
// not more than that is taken for its own: what another demand sends there counts.
func TestOnceLeavesOthers(t *testing.T) {
	n := square(gbit)
	n.Links[0].Used = 0.5 * gbit // from 0 to 1
	n.Links[2].Used = 0.8 * gbit // from 1 to 2: half of it is the other demand's
	n.Links[7].Used = 0.2 * gbit // from 0 to 3
	d, other := to2(0.5*gbit), to2(0)
	d.Rate[1] = gbit // half of it from 0
	other.Rate[1], other.Kept = gbit, []bool{false, true, false, false}
	for _, m := range Choose(n, []Demand{d, other}, byBandwidth(), false) {
		if m.From == 0 && !slices.Equal(m.Path, []int32{7, 5}) {
			t.Errorf("from 0, beside what another demand sends: %+v", m)
		}
	}
}

// byBandwidth are options that weigh bandwidth alone.
func byBandwidth() Options {
	o := Defaults()
	o.K1, o.K2 = 1, 0
	return o
}

// Proves that what counters of new traffic are behind those of its links is taken for its own, and
// that others' traffic beside it is not.
func TestOnceCountersBehind(t *testing.T) {
	for others, want := range map[float64][]int32{0.19: {0, 2}, 0.9: {7, 5}} { // of the traffic's rate
		n := square(gbit)
		d := to2(0.4 * gbit)
		n.Links[0].Used = 0.4 * (1 + others) * gbit
		n.Links[2].Used = n.Links[0].Used
		n.Links[7].Used, n.Links[5].Used = 0.01*gbit, 0.01*gbit
		moves := Choose(n, []Demand{d}, Defaults(), false)
		if len(moves) != 1 || !slices.Equal(moves[0].Path, want) {
			t.Errorf("with others at %v of its rate: %+v, want path %v", others, moves, want)
		}
	}
}
