package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/topology"
)

// The matrix: what a link is asked to do × the kinds of nodes that it joins × the direction × what
// forwards × how the value came to be × how many send × by what. A lab has a link of each kind; it
// walks through all ways to bring an impairment about, and at each step each link has another
// impairment. verify looks at each step at all links, and so do streams that share nothing with it
// (matrix_traffic_test.go), which cross the one link that they look at and no other that is
// impaired.

// matrixKinds are the kinds of links. Those who send one way, and the other way, are beside the
// link: the last is who receives.
var matrixKinds = []struct {
	name, a, b string
	from       [2][]string
	to         [2]string
}{
	{"host–switch", "h1", "s1", [2][]string{{"h1"}, {"h2", "h3", "h4"}}, [2]string{"h2", "h1"}},
	{"switch–switch", "s1", "s2", [2][]string{{"h2", "h3", "h4"}, {"h5", "h6", "h7"}}, [2]string{"h5", "h2"}},
	{"switch–router", "s2", "r1", [2][]string{{"h5", "h6", "h7"}, {"h8", "h9", "h10"}}, [2]string{"h8", "h5"}},
	{"router–router", "r1", "r2", [2][]string{{"h8", "h9", "h10"}, {"h11", "h12", "h13"}}, [2]string{"h11", "h8"}},
	{"host–router", "r1", "h14", [2][]string{{"h8", "h9", "h10"}, {"h14"}}, [2]string{"h14", "h9"}},
}

// matrixImpairments are given differently for the two directions, as a file says them, and alike
// for both, as link set does. Rates are low: a slow machine keeps up. Packets of 1,500 bytes pass
// everywhere: that is looked at alone where nothing else is asked.
var matrixImpairments = []struct{ name, file, set string }{
	{"bandwidth", "{bandwidth: 8mbit, to: {bandwidth: 12mbit}}", "bandwidth=10mbit"},
	{"delay", "{delay: 12ms, to: {delay: 4ms}}", "delay=6ms"},
	{"jitter", "{delay: 20ms, jitter: 4ms, to: {jitter: 2ms}}", "delay=15ms jitter=3ms"},
	{"loss", "{loss: 10%, to: {loss: 30%}}", "loss=20%"},
	{"queue", "{bandwidth: 10mbit, queue: 60, to: {queue: 40}}", "bandwidth=10mbit queue=50"},
	{"mtu", "{}", ""},
	{"down", "{down: true}", "down"},
}

// matrixWays are how a value comes to be, in the order in which a lab goes through them.
var matrixWays = []string{"file", "link set", "apply", "swap", "resume"}

// forwards is what switches and routers are.
type forwards struct{ switches, routers string }

func (f forwards) String() string {
	return f.switches + "+" + strings.Replace(f.routers, "embedded", "routing", 1)
}

// matrixLabs begin with each; swap turns one into the next, in which both switches and routers are
// others.
var matrixLabs = []forwards{
	{"embedded", "embedded"}, {"ovs", "kernel"}, {"bridge", "embedded"},
	{"embedded", "kernel"}, {"ovs", "embedded"}, {"bridge", "kernel"},
}

// matrixWalk is a lab with its steps: which impairment links have at each (impairmentOf), and who
// sends what over the first of them.
type matrixWalk struct {
	start          int
	turns, senders []int
}

// matrixPart is the part with each pair of values: TestMatrixCovers.
var matrixPart = []matrixWalk{
	{0, []int{0, 1, 2, 3, 4}, []int{0, 1, 2, 3, 0}},
	{1, []int{5, 6, 0, 1, 2}, []int{1, 2, 3, 0, 1}},
	{2, []int{3, 4, 6, 5, 0}, []int{2, 3, 0, 1, 2}},
}

// matrixWhole has each impairment of each kind of link at each step of each lab, and all who send
// there.
func matrixWhole() (all []matrixWalk) {
	for start := range matrixLabs {
		for first := range matrixImpairments {
			w := matrixWalk{start: start}
			for step := range matrixWays {
				w.turns = append(w.turns, first+step)
			}
			all = append(all, w)
		}
	}
	return all
}

// forwards says what forwards at a step.
func (w matrixWalk) forwards(step int) forwards {
	if step >= slices.Index(matrixWays, "swap") {
		return matrixLabs[(w.start+1)%len(matrixLabs)]
	}
	return matrixLabs[w.start]
}

// impairmentOf says which impairment a kind of link has at a turn.
func impairmentOf(kind, turn int) int { return (kind + turn) % len(matrixImpairments) }

// matrixCell is one link in one direction at a step, and who sends over it.
type matrixCell struct {
	impairment, kind, direction int
	f                           forwards
	way                         string
	three, tcp                  bool
}

func (c matrixCell) String() string {
	return fmt.Sprintf("%s, %s: %s, %s, %d by %s", c.f, c.way, matrixKinds[c.kind].name, matrixImpairments[c.impairment].name,
		len(c.from()), c.protocol())
}

func (c matrixCell) from() []string {
	all := matrixKinds[c.kind].from[c.direction]
	if !c.three {
		return all[:1]
	}
	return all
}

func (c matrixCell) protocol() string {
	if c.tcp {
		return "tcp"
	}
	return "udp"
}

// cells are those of a step: for each link and direction one of the four who may send, or all of
// them.
func (w matrixWalk) cells(step int) (rounds [][]matrixCell) {
	for more := range 4 {
		if more > 0 && w.senders != nil {
			break
		}
		for direction := range 2 {
			var round []matrixCell
			for kind := range matrixKinds {
				who := kind + direction + more
				if w.senders != nil {
					who += w.senders[step]
				}
				c := matrixCell{impairmentOf(kind, w.turns[step]), kind, direction, w.forwards(step), matrixWays[step], who%4 >= 2, who%2 == 1}
				if c.infeasible() == "" {
					round = append(round, c)
				} else if c.three, c.tcp = false, false; w.senders != nil {
					round = append(round, c)
				}
			}
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// infeasible says why nobody can be sent so.
func (c matrixCell) infeasible() string {
	switch {
	case c.tcp && matrixImpairments[c.impairment].name == "loss":
		return "TCP sends again what is lost: what comes says nothing of the link"
	case c.three && len(c.from()) < 3:
		return "a host is one sender"
	}
	return ""
}

// values are those of a cell, by what they are of; what forwards at both ends of a link counts.
func (c matrixCell) values() (out []string) {
	kind := matrixKinds[c.kind]
	senders := map[bool]string{true: "three", false: "one"}
	out = []string{"impairment " + matrixImpairments[c.impairment].name, "kind " + kind.name, "direction " + []string{"there", "back"}[c.direction],
		"way " + c.way, "senders " + senders[c.three], "protocol " + c.protocol()}
	if strings.Contains(kind.name, "switch") {
		out = append(out, "forwards "+c.f.switches)
	}
	if strings.Contains(kind.name, "router") {
		out = append(out, "forwards "+strings.Replace(c.f.routers, "embedded", "routing", 1))
	}
	return out
}

// matrixPairs are the pairs of values, of different things, of cells.
func matrixPairs(cells []matrixCell) map[[2]string]bool {
	pairs := map[[2]string]bool{}
	for _, c := range cells {
		values := c.values()
		slices.Sort(values)
		for i, x := range values {
			for _, y := range values[i+1:] {
				if thing(x) != thing(y) {
					pairs[[2]string{x, y}] = true
				}
			}
		}
	}
	return pairs
}

func thing(value string) string { name, _, _ := strings.Cut(value, " "); return name }

// matrixInfeasible are the pairs that no cell can have.
var matrixInfeasible = map[[2]string]string{
	{"impairment loss", "protocol tcp"}:         "TCP sends again what is lost",
	{"forwards kernel", "kind host–switch"}:     "no router at it",
	{"forwards kernel", "kind switch–switch"}:   "no router at it",
	{"forwards routing", "kind host–switch"}:    "no router at it",
	{"forwards routing", "kind switch–switch"}:  "no router at it",
	{"forwards embedded", "kind router–router"}: "no switch at it",
	{"forwards ovs", "kind router–router"}:      "no switch at it",
	{"forwards bridge", "kind router–router"}:   "no switch at it",
	{"forwards embedded", "kind host–router"}:   "no switch at it",
	{"forwards ovs", "kind host–router"}:        "no switch at it",
	{"forwards bridge", "kind host–router"}:     "no switch at it",
}

func cellsOf(walks []matrixWalk) (all []matrixCell) {
	for _, w := range walks {
		for step := range matrixWays {
			all = append(all, slices.Concat(w.cells(step)...)...)
		}
	}
	return all
}

// TestMatrixCovers proves that the part of the matrix that is walked with the other tests has each
// pair of values that there can be, and the whole each combination of all.
func TestMatrixCovers(t *testing.T) {
	values := map[string]bool{}
	whole := cellsOf(matrixWhole())
	for _, c := range whole {
		for _, v := range c.values() {
			values[v] = true
		}
	}
	part := matrixPairs(cellsOf(matrixPart))
	all := 0
	for x := range values {
		for y := range values {
			if thing(x) >= thing(y) {
				continue
			}
			pair := [2]string{x, y}
			why, cannot := matrixInfeasible[pair]
			switch {
			case cannot && part[pair]:
				t.Errorf("%s: %s, but there is one", pair, why)
			case cannot:
				continue
			case !part[pair]:
				t.Errorf("%s: not in the part", pair)
			}
			all++
		}
	}
	have := map[matrixCell]bool{}
	for _, c := range whole {
		have[c] = true
	}
	cells := 0
	for n := range len(matrixImpairments) * len(matrixKinds) * 2 * len(matrixLabs) * len(matrixWays) * 4 {
		pick := func(of int) int { i := n % of; n /= of; return i }
		c := matrixCell{pick(len(matrixImpairments)), pick(len(matrixKinds)), pick(2), matrixLabs[pick(len(matrixLabs))],
			matrixWays[pick(len(matrixWays))], pick(2) == 1, pick(2) == 1}
		if c.infeasible() != "" {
			continue
		}
		if cells++; !have[c] {
			t.Errorf("%s: not in the whole", c)
		}
	}
	t.Logf("%d pairs of %d values, all in %d cells; %d cells in all", all, len(values), len(cellsOf(matrixPart)), cells)
}

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
		return topology.Impairment{Bandwidth: 10 * mbit, Queue: int(pick(60, 40, 50))}
	}
	return topology.Impairment{}
}

// TestMatrix proves that a lab is what its file says, whatever is asked, wherever, in each
// direction, by whatever forwards, however it came to be so, and whoever sends: as verify sees it,
// and as other programs do. It walks a part of the matrix that has each pair of values; with the
// name of a document in TRIVET_MATRIX all of it, and writes the table there.
func TestMatrix(t *testing.T) {
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
		if (r.code == 0) != (len(complaints) == 0) {
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
			verify.Loss: float64(e.Loss), verify.MTU: 1500}
		if e.Jitter > 0 {
			want[verify.Jitter] = time.Duration(e.Jitter).Seconds()
		}
		if e.Queue > 0 {
			want[verify.Queue] = float64(e.Queue)
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
			case c.Verdict == verify.Untold && (strings.Contains(c.Why, "too busy") || strings.Contains(c.Why, "sends no more") ||
				strings.Contains(c.Why, "as asked") || strings.Contains(c.Why, "at the same time")):
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

// matrixTable counts cells, by what forwards and what was asked.
type matrixTable struct {
	mu    sync.Mutex
	cells map[[2]string]*matrixCount
	by    string // what impairs links on this kernel, as inspect says it
}

type matrixCount struct{ right, busy int }

func (x *matrixTable) cell(f forwards, what string) *matrixCount {
	key := [2]string{f.String(), what}
	if x.cells[key] == nil {
		x.cells[key] = &matrixCount{}
	}
	return x.cells[key]
}

func (x *matrixTable) add(c matrixCell, told bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.cell(c.f, matrixImpairments[c.impairment].name)
	if told {
		n.right++
	} else {
		n.busy++
	}
}

// note takes what inspect says of impairments.
func (x *matrixTable) note(inspected string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for line := range strings.Lines(inspected) {
		if strings.HasPrefix(line, "impairments by ") {
			x.by = strings.TrimSpace(line)
		}
	}
}

func (x *matrixTable) lines() (out []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var name unix.Utsname
	_ = unix.Uname(&name)
	release, _, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), "-")
	cells, busy := 0, 0
	for _, c := range x.cells {
		cells, busy = cells+c.right+c.busy, busy+c.busy
	}
	defer func() {
		out = append(out, "", fmt.Sprintf("%d cells, of which %d were as asked and the machine was too busy for %d; Linux %s, %s.", cells, cells-busy, busy,
			release, cmp.Or(x.by, "impairments by netem")))
	}()
	head, rule := "| switches + routers |", "| --- |"
	for _, i := range matrixImpairments {
		head, rule = head+" "+i.name+" |", rule+" --- |"
	}
	out = append(out, head, rule)
	for _, f := range matrixLabs {
		line := "| " + f.String() + " |"
		for _, i := range matrixImpairments {
			c := x.cell(f, i.name)
			if line += fmt.Sprintf(" %d", c.right); c.busy > 0 {
				line += fmt.Sprintf(", %d not told", c.busy)
			}
			line += " |"
		}
		out = append(out, line)
	}
	return out
}

// Between these lines of a document the table stands.
const (
	matrixBegin = "<!-- matrix: make matrix writes this -->"
	matrixEnd   = "<!-- end of matrix -->"
)

// write puts the table into a document, or makes all of one that is empty.
func (x *matrixTable) write(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		text = []byte(matrixBegin + "\n" + matrixEnd + "\n")
	}
	before, rest, ok := strings.Cut(string(text), matrixBegin)
	_, after, ok2 := strings.Cut(rest, matrixEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s does not have the lines %q and %q", file, matrixBegin, matrixEnd)
	}
	return os.WriteFile(file, []byte(before+matrixBegin+"\n"+strings.Join(x.lines(), "\n")+"\n"+matrixEnd+after), 0o644)
}
