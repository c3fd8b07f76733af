package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/topology"
)

// matrixFile is the lab's topology at a turn.
func matrixFile(f forwards, turn int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes:\n")
	for _, s := range []string{"s1", "s2", "s3"} {
		fmt.Fprintf(&b, "  %s: {switch: {datapath: %s", s, f.switches)
		if f.switches == "bridge" {
			b.WriteString(", controller: none")
		}
		b.WriteString("}}\n")
	}
	for _, r := range []string{"r1", "r2"} {
		fmt.Fprintf(&b, "  %s: {router: {datapath: %s}}\n", r, f.routers)
	}
	b.WriteString("  h[1-14]: host\nlinks:\n  - s1 -- h[2-4]\n  - s2 -- h[5-7]\n  - r1 -- h[8-10]\n  - r2 -- s3\n  - s3 -- h[11-13]\n")
	for k, kind := range matrixKinds {
		fmt.Fprintf(&b, "  - %s -- %s: %s\n", kind.a, kind.b, matrixImpairments[impairmentOf(k, turn)].file)
	}
	return b.String()
}

// matrixStep brings a lab to a turn by one of the ways.
func matrixStep(m *machine, way string, f forwards, turn int) {
	m.t.Helper()
	file := func() string {
		return m.file(fmt.Sprintf("%s-%d.yaml", strings.ReplaceAll(way, " ", "-"), turn), matrixFile(f, turn))
	}
	switch way {
	case "file":
		m.up(file())
	case "link set":
		for k, kind := range matrixKinds {
			none := []string{"up", "bandwidth=none", "delay=none", "jitter=none", "loss=none", "queue=none"}
			m.ok(append([]string{"link", "set", kind.a + "-" + kind.b}, none...)...)
			if set := strings.Fields(matrixImpairments[impairmentOf(k, turn)].set); len(set) > 0 {
				m.ok(append([]string{"link", "set", kind.a + "-" + kind.b}, set...)...)
			}
		}
	case "apply", "swap":
		m.ok("apply", file())
	case "resume":
		m.ok("apply", file())
		m.killDaemon()
		m.ok("resume")
	}
}

// matrixAsked says what the links are asked to do in a direction, whatever the lab says of it.
func matrixAsked(impairment, direction int, way string) topology.Impairment {
	ms, mbit := topology.Duration(time.Millisecond), topology.Rate(1e6)
	pick := func(there, back, both float64) float64 {
		if way == "link set" {
			return both
		}
		return []float64{there, back}[direction]
	}
	switch matrixImpairments[impairment].name {
	case "bandwidth":
		return topology.Impairment{Bandwidth: mbit * topology.Rate(pick(8, 12, 10))}
	case "delay":
		return topology.Impairment{Delay: ms * topology.Duration(pick(12, 4, 6))}
	case "jitter":
		return topology.Impairment{Delay: ms * topology.Duration(pick(20, 20, 15)), Jitter: ms * topology.Duration(pick(4, 2, 3))}
	case "loss":
		return topology.Impairment{Loss: topology.Fraction(pick(0.1, 0.3, 0.2))}
	case "queue":
		return topology.Impairment{Bandwidth: 10 * mbit, Queue: topology.Queue{Limit: int(pick(60, 40, 50))}}
	}
	return topology.Impairment{}
}

// TestMatrix proves that a lab is what its file says, whatever is asked, wherever, in each
// direction, by whatever forwards, however it came to be so, and whoever sends: as verify sees it,
// and as other programs do. It walks a part of the matrix that has each pair of values; with the
// name of a document in TRIVET_MATRIX all of it, and writes the table there.
func TestMatrix(t *testing.T) {
	t.Parallel()
	document := os.Getenv("TRIVET_MATRIX")
	walks := matrixPart
	if document != "" {
		walks = matrixWhole()
	}
	began := time.Now()
	table := &matrixTable{cells: map[[2]string]*matrixCount{}}
	t.Run("labs", func(t *testing.T) {
		t.Parallel()
		for _, w := range walks {
			t.Run(fmt.Sprintf("%s/%d", matrixLabs[w.start], w.turns[0]), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				for step, way := range matrixWays {
					f := w.forwards(step)
					matrixStep(m, way, f, w.turns[step])
					m.matrixVerify(f, way, w.turns[step], table)
					table.note(m.ok("inspect"))
					addresses := m.addresses()
					for _, round := range w.cells(step) {
						m.matrixTraffic(round, addresses, table)
					}
				}
				m.ok("down")
			})
		}
	})
	t.Cleanup(func() {
		t.Logf("%s:\n%s", time.Since(began).Round(time.Second), strings.Join(table.lines(), "\n"))
		if document != "" && !t.Failed() {
			must(t, table.write(document))
		}
	})
}

// matrixTries is how often a step is looked at before what is seen is said to be wrong: a machine
// that stalls is no fault of the lab's.
const matrixTries = 6

// matrixVerify wants verify to find nothing wrong, and all that was asked of the links under test
// to be so. What a busy machine does not let it tell, or spoils, it looks at again.
func (m *machine) matrixVerify(f forwards, way string, turn int, table *matrixTable) {
	m.t.Helper()
	what := fmt.Sprintf("%s, %s", f, way)
	var complaints []string
	for try := range matrixTries {
		r := m.run("verify", "--quick", "--json")
		var got verify.Result
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			m.t.Fatalf("%s: %v\n%s", what, err, r)
		}
		complaints = got.Says(verify.Wrong)
		if (r.code == 5) != (len(complaints) > 0) {
			m.t.Fatalf("%s: exit %d with %q", what, r.code, complaints)
		}
		untold := 0
		for k := range matrixKinds {
			wrong, busy := matrixLink(&got, k, turn, way)
			if complaints = append(complaints, wrong...); try < matrixTries/2 {
				complaints = append(complaints, busy...)
			}
			untold += len(busy)
		}
		if len(complaints) == 0 {
			if untold > 0 {
				m.t.Logf("%s: the machine is too busy for %d checks of verify", what, untold)
			}
			return
		}
		m.t.Logf("%s: once more: %s", what, strings.Join(complaints, "; "))
	}
	m.t.Errorf("%s, as verify sees it:\n%s", what, strings.Join(complaints, "\n"))
}

// matrixLink says what of a link under test is not asked as the file does, or not as asked; and
// what a busy machine hides, which is never that more comes than is to, or sooner.
func matrixLink(r *verify.Result, kind, turn int, way string) (wrong, busy []string) {
	k := matrixKinds[kind]
	i := slices.IndexFunc(r.Links, func(l verify.Link) bool { return l.Link == k.a+"-"+k.b })
	if i < 0 {
		return []string{"there is no link " + k.a + "-" + k.b}, nil
	}
	for end, d := range r.Links[i].Directions {
		e := matrixAsked(impairmentOf(kind, turn), end, way)
		want := map[string]float64{verify.Up: 1, verify.Rate: float64(e.Bandwidth), verify.Delay: time.Duration(e.Delay).Seconds(),
			verify.Loss: float64(e.Loss), verify.Reorder: 0, verify.Duplicate: 0, verify.Corrupt: 0, verify.MTU: 1500}
		if e.Jitter > 0 {
			want[verify.Jitter] = time.Duration(e.Jitter).Seconds()
		}
		if e.Queue.Limit > 0 && !e.Queue.Managed() {
			want[verify.Queue] = float64(e.Queue.Limit)
		}
		if matrixImpairments[impairmentOf(kind, turn)].name == "down" {
			want = map[string]float64{verify.Up: 0}
		}
		for what, asked := range want {
			c := d.Check(what)
			switch {
			case c == nil || c.Asked != asked:
				wrong = append(wrong, fmt.Sprintf("%s → %s: %s is not asked to be %v: %+v", d.From, d.To, what, asked, c))
			case c.Verdict == verify.Untold && c.What == verify.Delay && asked == 0 && r.Links[i].Wire == "virtual": // it has no device
			case c.Verdict == verify.Untold && !strings.Contains(c.Why, "on every path to it") && !strings.Contains(c.Why, "no packet"):
				busy = append(busy, fmt.Sprintf("%s → %s: %s %s", d.From, d.To, what, c.Why))
			case c.Verdict != verify.OK:
				wrong = append(wrong, fmt.Sprintf("%s → %s: %s %s: %s %v", d.From, d.To, what, c.Verdict, c.Why, c.By))
			}
		}
	}
	return wrong, busy
}

// matrixTraffic sends over all links at once in a direction, and wants of each cell what is asked.
func (m *machine) matrixTraffic(round []matrixCell, addresses map[string]string, table *matrixTable) {
	m.t.Helper()
	said := make([]string, len(round))
	left := make([]int, len(round))
	for i := range left {
		left[i] = i
	}
	for try := 0; try < matrixTries && len(left) > 0; try++ {
		var processors idleShare
		processors.since()
		begin := time.Now().Add(time.Duration(1+2*try) * 100 * time.Millisecond)
		soft := make([]bool, len(round))
		var group sync.WaitGroup
		for _, i := range left {
			group.Go(func() { said[i], soft[i] = m.matrixLook(round[i], addresses, begin, try) })
		}
		group.Wait()
		busy := processors.since() < 0.1 || crowded()
		left = slices.DeleteFunc(left, func(i int) bool {
			switch {
			case said[i] == "":
				table.add(round[i], true)
				return true
			case try == matrixTries-1 && soft[i] && busy:
				m.t.Logf("%s: the machine is too busy: %s", round[i], said[i])
				table.add(round[i], false)
				return true
			}
			return false
		})
	}
	for _, i := range left {
		m.t.Errorf("%s: %s → %s: %s", round[i], strings.Join(round[i].from(), ", "), matrixKinds[round[i].kind].to[round[i].direction], said[i])
	}
}

// matrixLook sends once as a cell says, and says what of it is not as asked; soft, where a machine
// without time does that to a link which is.
func (m *machine) matrixLook(c matrixCell, addresses map[string]string, begin time.Time, try int) (wrong string, soft bool) {
	e := matrixAsked(c.impairment, c.direction, c.way)
	name, senders := matrixImpairments[c.impairment].name, len(c.from())
	kind := matrixKinds[c.kind]
	x := &traffic{protocol: c.protocol(), from: c.from(), to: kind.to[c.direction], begin: begin,
		length: 800 * time.Millisecond * time.Duration(2+try) / 2, settle: 200 * time.Millisecond, tail: 200*time.Millisecond + 2*time.Duration(e.Delay), every: 4 * time.Millisecond, size: 100}
	asked := float64(e.Bandwidth)
	switch name {
	case "bandwidth", "queue":
		x.size = 1400
		if x.every = 0; !c.tcp { // half as much again as the link carries
			x.every = time.Duration(float64(8*(x.size+42)*senders) / (1.5 * asked) * 1e9)
		}
	case "jitter":
		x.every, x.length = 4*time.Duration(e.Jitter)*time.Duration(senders), 2*x.length
	case "loss":
		x.every = time.Duration(senders) * time.Millisecond
	case "mtu":
		if x.size = 1472; c.tcp {
			x.every = 0
			x.length /= 4
		}
	}
	r, err := x.run(m, addresses)
	if err != nil {
		return err.Error(), true
	}
	delay := time.Duration(e.Delay)
	lost := 1 - float64(r.records)/float64(max(1, r.sent))
	switch {
	case name == "down" && r.records > 0:
		return fmt.Sprintf("%d records came over a link that is down", r.records), false
	case name == "down":
		return "", false
	case r.records == 0:
		return "nothing came", false
	case r.senders < senders:
		return fmt.Sprintf("%d of %d came", r.senders, senders), false
	case r.least < time.Duration(float64(delay-5*time.Duration(e.Jitter))*slewed):
		return fmt.Sprintf("a record took %v, not %v", r.least, delay), false
	}
	switch name {
	case "bandwidth", "queue":
		frames := float64(r.bytes) * 1442 / 1400
		if c.tcp {
			frames = float64(r.bytes) * 1514 / 1448
		}
		rate := 8 * frames / r.window.Seconds()
		if r.window < x.length/4 {
			return fmt.Sprintf("all sent for %v only", r.window), true
		}
		if rate > 1.06*asked || rate < 0.9*asked {
			return fmt.Sprintf("%.2f Mbit/s came, not %.2f", rate/1e6, asked/1e6), rate < asked
		}
	case "delay":
		if most := delay + delay/10 + 2*time.Millisecond; r.least > most {
			return fmt.Sprintf("the fastest record took %v, not %v", r.least, delay), true
		}
	case "jitter":
		spread := float64(r.spread) / float64(e.Jitter)
		if spread < 0.5 || spread > 1.6 {
			return fmt.Sprintf("the delay varies by %v, not %v", r.spread, time.Duration(e.Jitter)), spread > 1
		}
	case "loss":
		p := float64(e.Loss)
		off := 5*math.Sqrt(p*(1-p)/float64(max(1, r.sent))) + 0.005 // five standard deviations of the binomial distribution
		if math.Abs(lost-p) > off || r.sent < 200 {
			return fmt.Sprintf("%.3f of %d records were lost, not %.3f", lost, r.sent, p), r.sent < 200 || lost > p
		}
	}
	if name != "loss" && e.Bandwidth == 0 && !c.tcp && lost > 0 {
		return fmt.Sprintf("%.3f of %d records were lost", lost, r.sent), true
	}
	return "", false
}

// TestMatrixFinds proves that streams see what is not as asked, and do not take it for the doing of
// a busy machine: links that do nothing are looked at as if each impairment had been asked of them.
func TestMatrixFinds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := forwards{"bridge", "kernel"}
	m.up(m.file("nothing.yaml", matrixFile(f, slices.IndexFunc(matrixImpairments, func(i struct{ name, file, set string }) bool { return i.name == "mtu" }))))
	for _, kind := range matrixKinds {
		m.ok("link", "set", kind.a+"-"+kind.b, "up", "bandwidth=none", "delay=none", "jitter=none", "loss=none", "queue=none")
	}
	addresses := m.addresses()
	for i, asked := range matrixImpairments {
		for _, tcp := range []bool{false, true} {
			c := matrixCell{impairment: i, kind: 1, f: f, way: "file", three: true, tcp: tcp}
			if c.infeasible() != "" {
				continue
			}
			for try := 0; ; try++ {
				wrong, soft := m.matrixLook(c, addresses, time.Now().Add(100*time.Millisecond), try)
				if (wrong == "") == (asked.name == "mtu") && !soft {
					t.Logf("%s: %s", c, wrong)
					break
				}
				if try == matrixTries {
					t.Errorf("%s, of a link that does nothing: %q, %v", c, wrong, soft)
					break
				}
			}
		}
	}
	m.ok("down")
}
