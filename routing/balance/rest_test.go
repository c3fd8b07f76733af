package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A destination may move twice as often as it is looked at; then it rests for a period, and for
// twice as long each time that it has moved again, up to a limit. Once it has stayed for long it
// begins anew.
func TestRests(t *testing.T) {
	const period = 2 * time.Second
	now := time.Unix(0, 0)
	var r Rests[string]
	var waits []int
	for range 10 {
		r.Moved("x", now, period)
		n := 1
		for now = now.Add(period); r.Resting("x", now); now = now.Add(period) {
			n++
		}
		waits = append(waits, n)
	}
	if want := []int{1, 1, 2, 4, 8, 16, 32, 64, 64, 64}; !slices.Equal(waits, want) {
		t.Errorf("it moves after %v periods, want %v", waits, want)
	}
	if r.Resting("y", now) {
		t.Error("another one rests")
	}
	now = now.Add(forgetAfter * longestRest * period)
	if r.Moved("x", now, period); r.Resting("x", now.Add(period)) {
		t.Error("it rests, although it had stayed for long")
	}
	r.Moved("x", now, period)
	if r.Moved("x", now, period); !r.Resting("x", now.Add(period)) {
		t.Error("it does not rest after three moves")
	}
	if r.Tidy(now.Add(period), period); !r.Resting("x", now.Add(period)) {
		t.Error("it does not rest once what is old has been forgotten")
	}
	if r.Tidy(now.Add(forgetAfter*longestRest*period), period); len(r.of) > 0 {
		t.Errorf("these are never forgotten: %v", r.of)
	}
	r.Moved("x", now, period)
	r.Moved("x", now, period)
	if r.Moved("x", now, period); !r.Resting("x", now.Add(period)) {
		t.Error("it does not rest after three moves, once forgotten")
	}
	if r.Forget("x"); r.Resting("x", now.Add(period)) {
		t.Error("it rests, although that was forgotten")
	}
}

// In fat-trees in which what is measured is wrong by up to a half, as where hosts have too little
// of a processor, moves would never end; with rests few are left after a while, and no less is
// carried.
func TestRestless(t *testing.T) {
	run := func(seed uint64, rests *Rests[int]) (late int, carried float64) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		noise := func() float64 { return 1 + 0.5*(2*rnd.Float64()-1) }
		f := fatTree(rand.New(rand.NewPCG(seed, 7)), 4, false)
		f.measure(noise)
		now := time.Unix(0, 0)
		for step := range 300 {
			now = now.Add(2 * time.Second)
			var demands []Demand
			var of []int
			for i, d := range f.demands {
				if rests == nil || !rests.Resting(i, now) {
					demands, of = append(demands, d), append(of, i)
				}
			}
			moves := Step(f.Network, demands, Defaults())
			for i := range moves {
				moves[i].Demand = of[moves[i].Demand]
				if rests != nil {
					rests.Moved(moves[i].Demand, now, 2*time.Second)
				}
			}
			f.follow(moves)
			if sum := f.measure(noise); step >= 200 {
				late += len(moves)
				carried += sum / 100
			}
		}
		return late, carried / (16 * gbit)
	}
	var without, with int
	var carriedWithout, carriedWith float64
	for seed := range uint64(10) {
		n, c := run(seed, nil)
		m, d := run(seed, &Rests[int]{})
		t.Logf("seed %d: %d moves in 200 s, %.2f carried; with rests %d, %.2f", seed, n, c, m, d)
		without, with, carriedWithout, carriedWith = without+n, with+m, carriedWithout+c/10, carriedWith+d/10
	}
	if without == 0 || with*4 > without {
		t.Errorf("%d moves, with rests %d", without, with)
	}
	if carriedWith < 0.95*carriedWithout {
		t.Errorf("%.2f of the optimum, with rests %.2f", carriedWithout, carriedWith)
	}
}
