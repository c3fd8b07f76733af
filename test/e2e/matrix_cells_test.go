package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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
