package balance

import (
	"maps"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/steer"
	engine "trivet.dev/trivet/routing/balance"
	"trivet.dev/trivet/topology"
)

// detour is the way from datapath 1 to 3 that is not the shortest.
var detour = steer.Ways{1: edge(1, 4), 4: edge(4, 3)}

// carrying is the reading of a period in which datapath 1 sends so much to destinations, by the
// ways that the field has been given.
func (f *field) carrying(a *Balancer[string], rates map[string]float64) *reading[string] {
	f.rate = map[steer.Edge]float64{}
	carried := map[uint64]map[string]float64{1: {}, 2: {}, 4: {}}
	for k, rate := range rates {
		by := uint64(2)
		if f.takesDetour(k) {
			by = 4
		}
		for _, e := range []steer.Edge{edge(1, by), edge(by, 3)} {
			f.rate[e] = min(f.rate[e]+rate, 100*mbit)
			carried[e.From][k] = rate
		}
	}
	r := a.survey(a.config)
	r.complete = true
	r.carried = carried
	return r
}

// choosing is a balancer with paths chosen so.
func (f *field) choosing(t *testing.T, choose topology.BalanceChoose) *Balancer[string] {
	c := Config{On: true, Choose: choose, Options: engine.Defaults()}
	if c.literal() {
		c.Hysteresis = 0
	}
	return f.balancer(t, c)
}

// takesDetour reports whether what goes to a destination takes the detour.
func (f *field) takesDetour(k string) bool {
	return f.last()[k][1] == edge(1, 4)
}

// Proves, period by period, what choose does with a destination to which something is sent that
// fills its link, and with a second one that begins after five periods. Always: the first one moves
// in every period, and both go on doing so. Once: the first stays, the second takes the other path
// when it begins, and neither moves again. Busy: the first stays, one of the two moves, and then
// nothing does.
func TestChoose(t *testing.T) {
	for choose, want := range map[topology.BalanceChoose]struct{ alone, after, late int }{
		topology.ChooseAlways: {alone: 5, after: 9, late: 10}, // x comes home as y begins there
		topology.ChooseOnce:   {alone: 0, after: 1, late: 0},
		topology.ChooseBusy:   {alone: 0, after: 1, late: 0},
	} {
		f := newField()
		a := f.choosing(t, choose)
		moves := func(periods int, rates map[string]float64) int {
			before := a.moves
			for range periods {
				a.step(a.config, a.turn, f.carrying(a, rates))
			}
			return a.moves - before
		}
		if got := moves(5, map[string]float64{"x": 100 * mbit}); got != want.alone {
			t.Errorf("%s: one alone moved %d times in 5 periods, want %d", choose, got, want.alone)
		}
		if choose == topology.ChooseAlways && !f.takesDetour("x") {
			t.Error("always: after 5 moves x is at home")
		}
		both := map[string]float64{"x": 100 * mbit, "y": 40 * mbit}
		if got := moves(5, both); got != want.after {
			t.Errorf("%s: both moved %d times in 5 periods, want %d", choose, got, want.after)
		}
		if got := moves(5, both); got != want.late {
			t.Errorf("%s: both moved %d times in 5 further periods, want %d", choose, got, want.late)
		}
		if choose == topology.ChooseOnce && (f.takesDetour("x") || !f.takesDetour("y")) {
			t.Errorf("once: the ways are %v, and not the detour for y alone", f.last())
		}
	}
}

// Proves of a path that is chosen once that it stays when the shortest one is idle; that one to a
// destination to which nothing has been sent for three periods is given up, and chosen anew by what
// links carry then; and that so is one of whose links one is gone, or which is chosen by another
// rule; but not one of which it is not known whether its links are there.
func TestChosenOnceEnds(t *testing.T) {
	begin := func() (*field, *Balancer[string]) {
		f := newField()
		a := f.choosing(t, topology.ChooseOnce)
		a.step(a.config, a.turn, f.carrying(a, map[string]float64{"x": 100 * mbit}))
		a.step(a.config, a.turn, f.carrying(a, map[string]float64{"x": 100 * mbit, "y": 40 * mbit}))
		if !f.takesDetour("y") || f.takesDetour("x") {
			t.Fatalf("the ways are %v, and not the detour for y alone", f.last())
		}
		return f, a
	}
	f, a := begin()
	for range 5 {
		a.step(a.config, a.turn, f.carrying(a, map[string]float64{"y": 40 * mbit}))
	}
	if !f.takesDetour("y") {
		t.Error("y has moved")
	}
	if len(a.chosen) != 1 {
		t.Errorf("x, to which nothing is sent, is still chosen for: %v", a.chosen)
	}
	for i := range goneSilent {
		if !f.takesDetour("y") {
			t.Errorf("y was given up after %d periods without traffic", i)
		}
		a.step(a.config, a.turn, f.carrying(a, nil))
	}
	if f.takesDetour("y") || len(a.chosen)+len(a.moved) > 0 {
		t.Errorf("after %d periods without traffic: moved %v, chosen %v", goneSilent, a.moved, a.chosen)
	}
	if a.step(a.config, a.turn, f.carrying(a, map[string]float64{"y": 40 * mbit})); f.takesDetour("y") || len(a.chosen) != 1 {
		t.Error("y begins again in an idle network, and does not take the shortest path")
	}

	f, a = begin()
	r := f.carrying(a, map[string]float64{"x": 100 * mbit, "y": 40 * mbit})
	delete(r.edges, edge(4, 3))
	if a.void(r); len(a.chosen) != 1 {
		t.Errorf("a link of y's path is gone, and these are chosen for: %v", a.chosen)
	}

	f, a = begin()
	r = f.carrying(a, nil)
	clear(r.edges)
	if a.void(r); len(a.chosen) != 2 {
		t.Errorf("no link is known, and these are chosen for: %v", a.chosen)
	}
	r = f.carrying(a, nil)
	delete(r.edges, edge(4, 3))
	r.unheard[4] = true
	if a.void(r); len(a.chosen) != 2 {
		t.Errorf("a datapath of y's path is not heard, and these are chosen for: %v", a.chosen)
	}

	_, a = begin()
	c := a.config
	c.Choose = topology.ChooseAlways
	if a.configure(c); len(a.chosen) > 0 {
		t.Errorf("chosen always, and kept: %v", a.chosen)
	}
}

// Proves that a path that is chosen says why: by the use of others, or with its own.
func TestChosenSaysWhy(t *testing.T) {
	for choose, want := range map[topology.BalanceChoose]string{
		topology.ChooseOnce: "% used by others;", topology.ChooseAlways: "% used;",
	} {
		f := newField()
		a := f.choosing(t, choose)
		a.step(a.config, a.turn, f.busy(a, "x", "y"))
		if choose == topology.ChooseOnce { // neither has seen the other
			if len(a.moved) > 0 {
				t.Errorf("once: of two that begin at once these have moved: %v", a.moved)
			}
			a.step(a.config, a.turn, f.carrying(a, map[string]float64{"x": 70 * mbit, "y": 30 * mbit, "z": 10 * mbit}))
		}
		if len(a.moved) == 0 {
			t.Errorf("%s: nothing has moved", choose)
		}
		for k, m := range a.moved {
			if !maps.Equal(m.ways, detour) || !strings.Contains(m.Paths[0].Why, want) {
				t.Errorf("%s: %s is led by %v: %q", choose, k, m.ways, m.Paths[0].Why)
			}
		}
	}
}
