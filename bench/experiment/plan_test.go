package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestListing proves what a dry run shows.
func TestListing(t *testing.T) {
	p := mustPlan(t, `
topology: linear,${hops}
lab: {datapath: "${datapath}"}
factors: {hops: [2, 10], datapath: [ovs, bridge]}
probes:
  - ping: {from: h1, to: h2, count: 5}
  - [iperf3: {from: h1, to: h2}, traceroute: {from: h1, to: h2, name: way}]
repetitions: 2
order: given
`)
	var b strings.Builder
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `8 runs of 4 cells, about 91 s · seed 1 · order given
RUN  REP  HOPS  DATAPATH  PROBES            ABOUT
1    1    2     ovs       ping, iperf3+way  12 s
2    1    2     bridge    ping, iperf3+way  11 s
3    1    10    ovs       ping, iperf3+way  12 s
4    1    10    bridge    ping, iperf3+way  11 s
5    2    2     ovs       ping, iperf3+way  12 s
6    2    2     bridge    ping, iperf3+way  11 s
7    2    10    ovs       ping, iperf3+way  12 s
8    2    10    bridge    ping, iperf3+way  11 s
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// TestOrder proves of every order that each cell is run as often as asked, that blocks and pairs
// stay together, and that the seed decides all.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.IntRange(1, 6).Draw(t, "a"), rapid.IntRange(1, 4).Draw(t, "b")
		repetitions, order := rapid.IntRange(1, 5).Draw(t, "repetitions"), rapid.SampledFrom(orders).Draw(t, "order")
		paired, seed := rapid.Bool().Draw(t, "paired"), rapid.Uint64().Draw(t, "seed")
		text := fmt.Sprintf("topology: linear,2\nprobes: [up_down]\nfactors: {a: {from: 1, to: %d}, b: {from: 1, to: %d}}\nrepetitions: %d\norder: %s\nseed: %d\n", a, b, repetitions, order, seed)
		if paired {
			text += "paired: b\n"
		}
		e, problems := Read("x.yaml", []byte(text), Trivets())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		p, _ := e.Plan()
		again, _ := e.Plan()
		if p.Hash() != again.Hash() {
			t.Fatal("the same seed gives another order")
		}
		again.Runs[0].Estimate *= 2
		again.Cells[0].Groups[0][0].Timeout *= 2
		if p.Hash() != again.Hash() {
			t.Fatal("a result of the same plan could not be gone on with, since its time is estimated otherwise")
		}
		if len(p.Runs) != a*b*repetitions {
			t.Fatalf("%d runs", len(p.Runs))
		}
		seen := map[[2]int]bool{}
		for i, r := range p.Runs {
			seen[[2]int{r.Cell, r.Repetition}] = true
			if r.Number != i+1 {
				t.Fatalf("run %d has number %d", i, r.Number)
			}
			if Order(order) != Random && r.Repetition != i/(a*b)+1 {
				t.Fatalf("run %d is of repetition %d", i, r.Repetition)
			}
			if start := p.Runs[i/b*b]; paired && (r.Pair != start.Pair || r.Repetition != start.Repetition || r.Pair == "") {
				t.Fatalf("pairs are torn apart: %+v and %+v", start, r)
			}
			if !paired && Order(order) == Given && r.Cell != i%(a*b) {
				t.Fatalf("run %d is of cell %d", i, r.Cell)
			}
		}
		if len(seen) != a*b*repetitions {
			t.Fatalf("only %d of the repetitions of cells are there", len(seen))
		}
	})
}

// TestSeeds proves that another seed gives another order, and that with enough seeds every cell
// comes first at times.
func TestSeeds(t *testing.T) {
	first, hashes := map[int]int{}, map[string]bool{}
	e := mustPlan(t, "topology: linear,2\nprobes: [up_down]\nfactors: {a: [1, 2, 3, 4]}\nrepetitions: 2\n").Experiment
	for seed := range uint64(200) {
		e.Seed = seed
		p, _ := e.Plan()
		first[p.Runs[0].Cell]++
		hashes[p.Hash()] = true
	}
	if len(first) != 4 || len(hashes) != 200 {
		t.Errorf("first: %v; %d plans", first, len(hashes))
	}
	for cell, n := range first {
		if n < 25 || n > 80 { // 50 on average; the seeds are given, so that this is always the same
			t.Errorf("cell %d came first %d times", cell, n)
		}
	}
}

// TestAbout proves how durations read.
func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{400 * time.Millisecond: "0 s", 8 * time.Second: "8 s", 99 * time.Second: "99 s", 14 * time.Minute: "14 min", 125 * time.Minute: "2 h 5 min"} {
		if got := About(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
