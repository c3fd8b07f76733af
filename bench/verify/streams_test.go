package verify

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// does is what a direction does to packets beside what it is asked to.
type does struct {
	loss, duplicate, corrupt, ahead float64 // shares
	late                            float64 // of packets, by
	by                              time.Duration
	drops                           func(at time.Duration) bool // all of a time, since the stream began
	only                            string                      // of this stream
	unseen                          float64                     // share that the tap there misses
}

// simulated is a survey's look at a lab that does what it is asked to, and besides what is given:
// so many packets of each stream, sent within 16 s.
type simulated struct {
	v       *verifier
	r       *rand.Rand
	does    map[string]does // by the name of the direction
	packets int
	noise   func(at time.Duration) time.Duration // of each passing, by the machine
	machine *machine
}

// began is when each simulated look began.
const began = 1_800_000_000 * int64(time.Second)

func (l *simulated) look() {
	var traces []*trace
	for _, f := range l.v.plan().cover {
		t := &trace{flow: f, sent: l.packets + large, full: large, frame: 1514, apart: 16 * time.Second / time.Duration(l.packets)}
		traces = append(traces, t)
		t.points = []point{{at: map[uint64]int64{}}}
		type packet struct {
			n, copies int
			at        int64
			damaged   bool
		}
		var flying []packet
		for n := range t.sent {
			at := began + int64(n)*int64(t.apart)
			flying = append(flying, packet{n, 1, at, false})
			t.points[0].at[uint64(n)] = at
		}
		for i, h := range f.way {
			e, d := l.v.egress(h), l.does[l.v.nameOf(h)]
			if d.only != "" && d.only != f.name() {
				d = does{}
			}
			p := point{hops: []hop{h}, at: map[uint64]int64{}, again: map[uint64]int{}, damaged: map[uint64]int{}, largest: 1514}
			var out []packet
			for _, one := range flying {
				at := time.Duration(one.at - began)
				if one.damaged && i == len(f.way)-1 || l.r.Float64() < 1-(1-float64(e.Loss))*(1-d.loss) || d.drops != nil && d.drops(at) {
					continue
				}
				took := time.Duration(e.Delay) + time.Duration(l.r.NormFloat64()*float64(e.Jitter)) + 10*time.Microsecond
				if l.r.Float64() < 1-(1-float64(e.Reorder))*(1-d.ahead) {
					took = 10 * time.Microsecond
				}
				if l.r.Float64() < d.late {
					took += d.by
				}
				if l.noise != nil {
					took += l.noise(at)
				}
				one.at += int64(took)
				one.damaged = one.damaged || l.r.Float64() < 1-(1-float64(e.Corrupt))*(1-d.corrupt)
				if l.r.Float64() < 1-(1-float64(e.Duplicate))*(1-d.duplicate) {
					one.copies++
				}
				out = append(out, one)
				n := uint64(one.n)
				switch {
				case l.r.Float64() < d.unseen:
					p.missed++
				case one.damaged:
					p.damaged[n]++
				default:
					p.at[n], p.again[n] = one.at, one.copies-1
				}
			}
			flying = out
			t.points = append(t.points, p)
			if len(flying) == 0 {
				break
			}
		}
	}
	l.v.note(traces, l.machine)
	l.v.judge()
	l.v.judgeMTUs(traces)
}

// idle is a machine on which nothing waits; busyAt one on which something always does, between two
// times since a look began.
func idle() *machine { return busyAt(0, 0) }

func busyAt(from, until time.Duration) *machine {
	m, waited := &machine{}, time.Duration(0)
	for at := -time.Second; at < 20*time.Second; at += momentary {
		if at >= from && at < until {
			waited += momentary
		}
		m.moments = append(m.moments, moment{began + int64(at), waited, 0})
	}
	return m
}

// found lists checks of a verdict, as "r1 → r2 loss"; and what only some of the packets show is
// left out: rates and queues.
func (v *verifier) found(verdict Verdict) (out []string) {
	for _, l := range v.result.Links {
		for _, d := range l.Directions {
			for _, c := range d.Checks {
				if c.Verdict == verdict && c.What != Rate && c.What != Queue {
					out = append(out, fmt.Sprintf("%s → %s %s", d.From, d.To, c.What))
				}
			}
		}
	}
	return out
}

const chain = `
nodes: {s1: switch, s2: switch, r1: {router: {datapath: kernel}}, h1: host, h2: host, h3: host, h4: host, h5: host}
links:
  - [h1 -- s1, h2 -- s1, h5 -- s1]
  - s1 -- r1
  - r1 -- s2: {delay: 10ms}
  - [h3 -- s2, h4 -- s2]
`

// What a direction does to packets beside what it is asked to is found there, and at no other: of
// several on one way, too, and where it concerns one stream of many.
func TestFaults(t *testing.T) {
	pause := func(at time.Duration) bool {
		return at%(15*time.Second) >= 6*time.Second && at%(15*time.Second) < 9*time.Second
	}
	for name, c := range map[string]struct {
		does map[string]does
		want []string
	}{
		"nothing":            {nil, nil},
		"2 % lost":           {map[string]does{"h1 → s1": {loss: 0.02}}, []string{"h1 → s1 loss"}},
		"10 % lost":          {map[string]does{"s1 → r1": {loss: 0.1}}, []string{"s1 → r1 loss"}},
		"3 of 15 s":          {map[string]does{"r1 → s2": {drops: pause}}, []string{"r1 → s2 loss"}},
		"3 of 15 s, one way": {map[string]does{"s2 → h3": {drops: pause}}, []string{"s2 → h3 loss"}},
		"each twice":         {map[string]does{"s1 → r1": {duplicate: 1}}, []string{"s1 → r1 duplicate"}},
		"some twice":         {map[string]does{"s2 → h4": {duplicate: 0.02}}, []string{"s2 → h4 duplicate"}},
		"damaged":            {map[string]does{"r1 → s1": {corrupt: 0.05}}, []string{"r1 → s1 corrupt"}},
		"damaged at the end": {map[string]does{"s1 → h5": {corrupt: 0.05}}, []string{"s1 → h5 corrupt"}},
		"10 % overtake":      {map[string]does{"r1 → s2": {ahead: 0.1, late: 0.9, by: 30 * time.Millisecond}}, []string{"r1 → s2 delay", "r1 → s2 reorder"}},
		"5 % late":           {map[string]does{"h2 → s1": {late: 0.05, by: 10 * time.Millisecond}}, []string{"h2 → s1 delay"}},
		"5 % very late":      {map[string]does{"s2 → r1": {late: 0.05, by: 50 * time.Millisecond}}, []string{"s2 → r1 delay", "s2 → r1 reorder"}},
		"half late":          {map[string]does{"r1 → s1": {late: 0.5, by: 5 * time.Millisecond}}, []string{"r1 → s1 delay"}},
		"half without delay": {map[string]does{"r1 → s2": {ahead: 0.4}}, []string{"r1 → s2 delay"}},
		"two on one way": {map[string]does{"h1 → s1": {loss: 0.02}, "r1 → s2": {corrupt: 0.05}, "s2 → h3": {duplicate: 0.1}},
			[]string{"h1 → s1 loss", "r1 → s2 corrupt", "s2 → h3 duplicate"}},
		"twice, then lost":    {map[string]does{"h1 → s1": {duplicate: 0.1}, "s1 → r1": {loss: 0.1}}, []string{"h1 → s1 duplicate", "s1 → r1 loss"}},
		"damaged, then lost":  {map[string]does{"s1 → r1": {corrupt: 0.05}, "r1 → s2": {loss: 0.05}}, []string{"s1 → r1 corrupt", "r1 → s2 loss"}},
		"of one stream":       {map[string]does{"s1 → r1": {loss: 0.05, only: "h1 → h3"}}, []string{"s1 → r1 loss"}},
		"all of one stream":   {map[string]does{"s1 → r1": {loss: 1, only: "h1 → h3"}}, []string{"s1 → r1 loss"}},
		"one stream is late":  {map[string]does{"s1 → r1": {late: 0.05, by: 9 * time.Millisecond, only: "h1 → h3"}}, []string{"s1 → r1 delay"}},
		"what a tap missed":   {map[string]does{"s1 → r1": {unseen: 0.1}}, nil},
		"a direction is down": {map[string]does{"s2 → h3": {loss: 1}}, []string{"s2 → h3 loss", "s2 → h3 up"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := verifierOf(t, chain)
			l := &simulated{v: v, r: rand.New(rand.NewPCG(1, 2)), does: c.does, packets: 1000, machine: idle()}
			l.look()
			got := v.found(Wrong)
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("wrong: %q, not %q\n%s", got, c.want, strings.Join(v.result.Says(Wrong), "\n"))
			}
			blind := false // what nothing came to, or nobody saw, cannot be told
			for _, d := range c.does {
				blind = blind || d.loss == 1 || d.unseen > 0
			}
			for _, what := range v.found(Untold) {
				if !blind {
					t.Errorf("%s is not told", what)
				}
			}
		})
	}
}

// What is wrong of one stream is said with its name.
func TestNames(t *testing.T) {
	v := verifierOf(t, chain)
	l := &simulated{v: v, r: rand.New(rand.NewPCG(1, 2)), does: map[string]does{"s1 → r1": {loss: 1, only: "h1 → h3"}}, packets: 1000, machine: idle()}
	l.look()
	if said := v.result.Says(Wrong); len(said) != 1 || !strings.Contains(said[0], "1000 of 1000 packets of h1 → h3 were lost") {
		t.Errorf("%q", said)
	}
}

// What is asked for is no fault, and what is asked for and not there is one.
func TestAsked(t *testing.T) {
	text := "nodes: {s1: switch, h1: host, h2: host, h3: host}\nlinks: [h1 -- s1, h3 -- s1, h2 -- s1: {%s}]\n"
	for _, c := range []struct{ asked, what string }{
		{"loss: 2%", Loss}, {"duplicate: 5%", Duplicate}, {"corrupt: 5%", Corrupt}, {"delay: 60ms, reorder: 20%", Reorder}, {"delay: 10ms", Delay},
		{"delay: 10ms, jitter: 2ms", Jitter}, {"loss: 5%, duplicate: 10%, corrupt: 5%", Loss},
	} {
		v := verifierOf(t, fmt.Sprintf(text, c.asked))
		l := &simulated{v: v, r: rand.New(rand.NewPCG(3, 4)), packets: 1000, machine: idle()}
		if l.look(); len(v.found(Wrong)) > 0 {
			t.Errorf("%s: %q", c.asked, v.result.Says(Wrong))
		}
		v = verifierOf(t, fmt.Sprintf(text, c.asked))
		for i := range v.t.Links {
			v.t.Links[i].Impairment.Loss, v.t.Links[i].Impairment.Duplicate, v.t.Links[i].Impairment.Corrupt = 0, 0, 0
			v.t.Links[i].Impairment.Reorder, v.t.Links[i].Impairment.Delay, v.t.Links[i].Impairment.Jitter = 0, 0, 0
		}
		other := verifierOf(t, fmt.Sprintf(text, c.asked))
		l = &simulated{v: v, r: rand.New(rand.NewPCG(3, 4)), packets: 1000, machine: idle()}
		v.result = other.result
		seen := v.seen
		l.look()
		other.seen, other.looks = seen, 1
		other.judge()
		for _, h := range []hop{{2, 0}, {2, 1}} {
			if check := other.check(h, c.what); check.Verdict != Wrong {
				t.Errorf("%s is asked, and does not happen: %+v", c.asked, *check)
			}
		}
	}
}

// Only the machine's own word excuses what is late, only where it says so, and never for ok: the
// fastest packets do not. Beside that it excuses only few losses, of a link that has a rate.
func TestExcuses(t *testing.T) {
	shaped := strings.Replace(chain, "- s1 -- r1", "- s1 -- r1: {bandwidth: 20mbit}", 1)
	for name, c := range map[string]struct {
		does    does
		machine *machine
		want    Verdict
		what    string
	}{
		"half are late, at rest":                  {does{late: 0.5, by: 5 * time.Millisecond}, idle(), Wrong, Delay},
		"half are late, on a busy machine":        {does{late: 0.5, by: 5 * time.Millisecond}, busyAt(0, 17*time.Second), Untold, Delay},
		"some are late, at rest":                  {does{late: 0.05, by: 50 * time.Millisecond}, idle(), Wrong, Delay},
		"some are late, on a busy machine":        {does{late: 0.05, by: 50 * time.Millisecond}, busyAt(0, 17*time.Second), Untold, Delay},
		"late before and after it was busy":       {does{late: 0.05, by: 50 * time.Millisecond}, busyAt(5*time.Second, 8*time.Second), Wrong, Delay},
		"no processor had any time, all in all":   {does{late: 0.05, by: 50 * time.Millisecond}, &machine{busy: true, moments: idle().moments}, Untold, Delay},
		"nothing is known of the machine":         {does{late: 0.05, by: 50 * time.Millisecond}, &machine{}, Wrong, Delay},
		"lost on a busy machine":                  {does{loss: 0.02}, busyAt(0, 17*time.Second), Wrong, Loss},
		"damaged on a busy machine":               {does{corrupt: 0.02}, busyAt(0, 17*time.Second), Wrong, Corrupt},
		"twice on a busy machine":                 {does{duplicate: 0.02}, busyAt(0, 17*time.Second), Wrong, Duplicate},
		"one packet is lost":                      {does{drops: func(at time.Duration) bool { return at/(16*time.Millisecond) == 500 }, only: "h1 → h3"}, idle(), Untold, Loss},
		"few lost by a rate, on a busy machine":   {does{loss: 0.005}, busyAt(0, 17*time.Second), Untold, Loss},
		"few lost by a rate, at rest":             {does{loss: 0.005}, idle(), Wrong, Loss},
		"many lost by a rate, on a busy machine":  {does{loss: 0.1}, busyAt(0, 17*time.Second), Wrong, Loss},
		"few lost without one, on a busy machine": {does{loss: 0.005}, busyAt(0, 17*time.Second), Wrong, Loss},
	} {
		file := chain
		if strings.Contains(name, "by a rate") {
			file = shaped
		}
		v := verifierOf(t, file)
		l := &simulated{v: v, r: rand.New(rand.NewPCG(5, 6)), does: map[string]does{"s1 → r1": c.does}, packets: 1000, machine: c.machine}
		l.look()
		for _, link := range v.result.Links {
			for _, d := range link.Directions {
				if d.From+d.To != "s1r1" {
					continue
				}
				if got := d.Check(c.what); got.Verdict != c.want {
					t.Errorf("%s: %+v", name, *got)
				}
			}
		}
	}
}

// What was wrong at one of several looks is not ok: it is said how often; and chance is told from
// it by all looks together.
func TestLooks(t *testing.T) {
	fault := map[string]does{"s1 → r1": {}}
	for name, c := range map[string]struct {
		does   does
		asked  string
		want   Verdict
		what   string
		says   string
		busy   bool
		failed int
	}{
		"lost at one look":   {does{loss: 0.02}, "", Wrong, Loss, "in 1 of 3 looks: ", false, 1},
		"late at one look":   {does{late: 0.05, by: 50 * time.Millisecond}, "", Untold, Delay, "in 1 of 3 looks: ", false, 1},
		"late as it stalled": {does{late: 0.05, by: 50 * time.Millisecond}, "", OK, Delay, "", true, 0},
		"never":              {does{}, "", OK, Loss, "", false, 0},
	} {
		v := verifierOf(t, chain)
		l := &simulated{v: v, r: rand.New(rand.NewPCG(7, 8)), packets: 1000, machine: idle()}
		fault["s1 → r1"] = c.does
		l.does = fault
		if c.busy {
			l.machine = busyAt(0, 17*time.Second)
		}
		l.look()
		l.does, l.machine = nil, idle()
		for range 2 {
			l.packets = 3000
			l.look()
		}
		h := hop{slices.IndexFunc(v.result.Links, func(l Link) bool { return l.Link == "s1-r1" }), 0}
		got := v.check(h, c.what)
		if got.Verdict != c.want && !(c.want == OK && c.busy && got.Verdict == Untold) || !strings.HasPrefix(got.Why, c.says) || got.Looks != 3 || got.Failed != c.failed {
			t.Errorf("%s: %+v", name, *got)
		}
	}
}

// Packets that a tap could not take are not lost: at a tap on the way those behind it tell, and at
// the last one it is not told.
func TestMissed(t *testing.T) {
	v := verifierOf(t, chain)
	l := &simulated{v: v, r: rand.New(rand.NewPCG(9, 10)), does: map[string]does{"s2 → h3": {unseen: 0.05}}, packets: 1000, machine: idle()}
	l.look()
	for what, want := range map[string]Verdict{Up: OK, Loss: Untold} {
		for i, link := range v.result.Links {
			for out, d := range link.Directions {
				if c := v.check(hop{i, out}, what); d.To == "h3" && c.Verdict != want {
					t.Errorf("%+v", *c)
				}
			}
		}
	}
}

// A lab that does what it is asked to is not said to be wrong, however the machine stalls: 10,000
// surveys, of machines at rest, with stalls of all lengths, and without any time.
func TestHealthy(t *testing.T) {
	surveys := 10_000
	if testing.Short() {
		surveys = 1000
	}
	r := rand.New(rand.NewPCG(11, 12))
	untold := 0
	text := "nodes: {s1: switch, h1: host, h2: host, h3: host}\nlinks: [h1 -- s1: {loss: 1%}, h3 -- s1: {delay: 5ms}, h2 -- s1: {duplicate: 2%, corrupt: 1%}]\n"
	proto := verifierOf(t, text)
	for i := range surveys {
		v := newVerifier(proto.network, proto.info)
		v.startResult()
		l := &simulated{v: v, r: r, packets: 100, machine: idle()}
		stalled := i % 3 // at rest; some stalls; no time at all
		var from, until time.Duration
		if stalled > 0 {
			from, until = time.Duration(r.Int64N(int64(16*time.Second))), 16*time.Second
			if stalled == 1 {
				until = from + time.Duration(math.Min(8e9, 1e7/math.Pow(r.Float64(), 1.2)))
			}
			l.machine = busyAt(from, until+2*time.Second)
			l.machine.busy = stalled == 2
		}
		l.noise = func(at time.Duration) time.Duration {
			often := 0.001
			if at >= from && at < until {
				often = 0.3
			}
			if r.Float64() > often {
				return time.Duration(r.ExpFloat64() * 2e4)
			}
			return time.Duration(math.Min(1e9, 1e5/math.Pow(r.Float64(), 1.5))) // no variance
		}
		for range tries {
			if l.look(); len(v.found(Wrong)) == 0 {
				break
			}
		}
		if wrong := v.result.Says(Wrong); len(wrong) > 0 {
			t.Errorf("survey %d: %q", i, wrong)
		}
		if len(v.result.Says(Untold)) > 0 {
			untold++
		}
	}
	t.Logf("%d of %d could not be told in all", untold, surveys)
}

// What may have been damaged before it came to a direction was not damaged there: of a packet that
// came twice, once damaged, the copy that is whole is lost; and of one that came damaged, and was
// not seen before, it is not known where that happened.
func TestDamagedBefore(t *testing.T) {
	before := point{at: map[uint64]int64{0: 10}, damaged: map[uint64]int{0: 1}, missed: 1}
	here := point{at: map[uint64]int64{}, damaged: map[uint64]int{0: 1, 1: 1}}
	tr := &trace{flow: &flow{}, sent: 2, points: []point{{at: map[uint64]int64{0: 5, 1: 6}}, before, here}}
	if s := tr.sample(2, 0, idle()); s.of != 1 || s.lost != 1 || s.damaged != 0 {
		t.Errorf("of %d packets %d were lost and %d damaged, not 1, 1 and 0", s.of, s.lost, s.damaged)
	}
}
