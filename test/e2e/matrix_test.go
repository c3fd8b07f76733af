package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/topology"
)

// The matrix: what a link is asked to do × the kinds of nodes that it joins × the direction × what forwards × how the
// value came to be × who sends. One lab has a link of each kind; the impairments go round them from step to step, and
// each step brings the next about in another way. So a lab has, after its steps, each way with each kind of link, and
// all labs together each pair of (impairment, kind), (impairment, way), (impairment, what forwards), (kind, way), (kind,
// what forwards) and (way, what forwards).
//
// Not there: a bridge that is a router; a kernel router that is a switch (a switch of one lab is not a router of
// another: both stand in one lab's name); jitter or loss of a link without a delay line or netem; a direction
// that link set changes alone, which it cannot.

// kinds of links are tested at these: the first end of each is the nearer to h1.
var matrixKinds = []struct{ name, a, b string }{
	{"host–switch", "h1", "s1"},
	{"switch–switch", "s1", "s2"},
	{"switch–router", "s2", "r1"},
	{"router–router", "r1", "r2"},
	{"host–router", "r1", "h6"},
}

// matrixImpairments are each given differently for the two directions, as a file says them and (for both alike) as link set does.
var matrixImpairments = []struct{ name, file, set string }{
	{"bandwidth", "{bandwidth: 20mbit, to: {bandwidth: 30mbit}}", "bandwidth=25mbit"},
	{"delay", "{delay: 12ms, to: {delay: 4ms}}", "delay=6ms"},
	{"jitter", "{delay: 20ms, jitter: 4ms, to: {jitter: 2ms}}", "delay=15ms jitter=3ms"},
	{"loss", "{loss: 10%, to: {loss: 30%}}", "loss=20%"},
	{"queue", "{bandwidth: 10mbit, queue: 60, to: {queue: 40}}", "bandwidth=10mbit queue=50"},
	{"down", "{down: true}", "down"},
}

// matrixWays are how a value comes to be, in the order in which a lab goes through them.
var matrixWays = []string{"file", "link set", "apply", "swap", "resume"}

// forwards is what switches and routers are.
type forwards struct{ switches, routers string }

func (f forwards) String() string {
	return f.switches + "+" + strings.Replace(f.routers, "embedded", "routing", 1)
}

// matrixLabs begin with each, and swap turns it into the one three further on. The first three are enough for each switch and
// each router.
var matrixLabs = []forwards{
	{"embedded", "embedded"}, {"ovs", "kernel"}, {"bridge", "kernel"},
	{"embedded", "kernel"}, {"ovs", "embedded"}, {"bridge", "embedded"},
}

// impairmentOf says which impairment a kind of link has at a step.
func impairmentOf(kind, turn int) int { return (kind + turn) % len(matrixImpairments) }

// matrixFile is the lab's topology at a step.
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
	b.WriteString("  h[1-11]: host\nlinks:\n  - s1 -- h[2-3]\n  - s2 -- h[4-5]\n  - r1 -- h[10-11]\n  - r2 -- s3\n  - s3 -- h[7-9]\n")
	for k, kind := range matrixKinds {
		fmt.Fprintf(&b, "  - %s -- %s: %s\n", kind.a, kind.b, matrixImpairments[impairmentOf(k, turn)].file)
	}
	return b.String()
}

// matrixStep brings a lab to a turn by one of the ways, and returns what forwards from then on.
func matrixStep(m *machine, way string, f forwards, turn int) forwards {
	m.t.Helper()
	file := func() string {
		return m.file(fmt.Sprintf("%s-%d.yaml", strings.ReplaceAll(way, " ", "-"), turn), matrixFile(f, turn))
	}
	switch way {
	case "file":
		m.ok("up", "--name", m.name, "--wait", "30s", file())
	case "link set":
		for k, kind := range matrixKinds {
			none := []string{"up", "bandwidth=none", "delay=none", "jitter=none", "loss=none", "queue=none"}
			m.changed(append([]string{"link", "set", kind.a + "-" + kind.b}, none...)...)
			set := strings.Fields(matrixImpairments[impairmentOf(k, turn)].set)
			m.changed(append([]string{"link", "set", kind.a + "-" + kind.b}, set...)...)
		}
	case "swap":
		f = matrixLabs[(slices.Index(matrixLabs, f)+len(matrixLabs)/2)%len(matrixLabs)]
		m.changed("apply", file())
	case "apply":
		m.changed("apply", file())
	case "resume":
		m.changed("apply", file())
		m.killDaemon()
		m.changed("resume")
	}
	return f
}

// changed runs a command that changes the lab. A controller that has yet to find a link when its time is up is not what is tested
// here, but what the links then do.
func (m *machine) changed(args ...string) {
	m.t.Helper()
	switch r := m.run(args...); {
	case r.code == 0:
	case strings.Contains(r.out+r.err, "the controller waits for"):
		m.t.Log(r)
	default:
		m.t.Fatal(r)
	}
}

// asFile says what a step's links are asked to do in the direction from end out, whatever the lab says of it.
func matrixAsked(kind, turn, out int, way string) topology.Impairment {
	i := matrixImpairments[impairmentOf(kind, turn)]
	ms, mbit := topology.Duration(time.Millisecond), topology.Rate(1e6)
	set := way == "link set"
	pick := func(from, to, both float64) float64 { return []float64{[]float64{from, to}[out], both}[btoi(set)] }
	switch i.name {
	case "bandwidth":
		return topology.Impairment{Bandwidth: mbit * topology.Rate(pick(20, 30, 25))}
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

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestMatrix proves that a lab is what its file says, whatever is asked, wherever, in each direction, by whatever forwards, and
// however it came to be so: as trivet verify sees it, and for rates and delays as iperf3 and ping do. TRIVET_MATRIX=part walks
// three of the labs, all the whole matrix; with the name of a file, it also writes the table there.
func TestMatrix(t *testing.T) {
	whole := os.Getenv("TRIVET_MATRIX")
	if whole == "" {
		t.Skip("TRIVET_MATRIX=part walks a part of the matrix, all the whole of it")
	}
	labs, turns := 3, 1
	if whole != "part" {
		labs, turns = len(matrixLabs), len(matrixImpairments)
	}
	table := newMatrixTable()
	t.Run("labs", func(t *testing.T) {
		for i := range labs {
			for round := range turns {
				start := matrixLabs[i]
				t.Run(fmt.Sprintf("%s/%d", start, round), func(t *testing.T) {
					t.Parallel()
					m := newMachine(t)
					f := start
					for step, way := range matrixWays {
						turn := (2*i + step + round) % len(matrixImpairments)
						f = matrixStep(m, way, f, turn)
						what := fmt.Sprintf("%s, %s", f, way)
						m.matrixVerify(what, f, turn, way, table)
						m.matrixOthers(what, turn, way, (i+step+round)%2 == 0)
					}
					m.ok("down")
				})
			}
		}
	})
	table.log(t)
	if strings.Contains(whole, "/") {
		must(t, table.write(whole))
	}
}

// matrixVerify wants verify to find nothing wrong, and all that was asked of the links under test to be so. What a busy machine
// does not let it tell, or spoils, it looks at again.
func (m *machine) matrixVerify(what string, f forwards, turn int, way string, table *matrixTable) {
	m.t.Helper()
	var complaints []string
	for try := range 4 {
		r := m.run("verify", "--quick", "--json")
		var got verify.Result
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			m.t.Fatalf("%s: %v\n%s", what, err, r)
		}
		complaints = got.Says(verify.Wrong)
		if (r.code == 0) != (len(complaints) == 0) {
			m.t.Fatalf("%s: exit %d with %q", what, r.code, complaints)
		}
		for k := range matrixKinds {
			complaints = append(complaints, matrixLink(&got, k, turn, way, try == 3)...)
		}
		if len(complaints) == 0 {
			table.add(f, way, turn, &got)
			return
		}
		m.t.Logf("%s: once more: %s", what, strings.Join(complaints, "; "))
	}
	m.t.Errorf("%s:\n%s", what, strings.Join(complaints, "\n"))
	table.bad(f, turn, len(complaints))
}

// matrixLink says what of a link under test is not asked as the file does, or not told; at last not what a busy machine hides, which
// is never that more comes than is to, or sooner.
func matrixLink(r *verify.Result, kind, turn int, way string, last bool) (out []string) {
	k := matrixKinds[kind]
	i := slices.IndexFunc(r.Links, func(l verify.Link) bool { return l.Link == k.a+"-"+k.b })
	if i < 0 {
		return []string{"there is no link " + k.a + "-" + k.b}
	}
	for end, d := range r.Links[i].Directions {
		e := matrixAsked(kind, turn, end, way)
		want := map[string]float64{verify.Up: 1, verify.Rate: float64(e.Bandwidth), verify.Delay: time.Duration(e.Delay).Seconds(), verify.Loss: float64(e.Loss)}
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
				out = append(out, fmt.Sprintf("%s → %s: %s is not asked to be %v: %+v", d.From, d.To, what, asked, c))
			case last && c.Verdict == verify.Untold && (strings.Contains(c.Why, "too busy") || strings.Contains(c.Why, "sends no more") || strings.Contains(c.Why, "as asked")):
			case c.Verdict != verify.OK && (asked != 0 || what == verify.Up):
				out = append(out, fmt.Sprintf("%s → %s: %s %s: %s %v", d.From, d.To, what, c.Verdict, c.Why, c.By))
			}
		}
	}
	return out
}

// Whose traffic crosses a link under test, each way; of several senders the first is for one alone.
var matrixSenders = [][2]struct {
	from []string
	to   string
}{
	{{[]string{"h1"}, "h2"}, {[]string{"h2", "h3", "h4"}, "h1"}},
	{{[]string{"h2", "h3", "h1"}, "h4"}, {[]string{"h4", "h5", "h7"}, "h2"}},
	{{[]string{"h4", "h5", "h2"}, "h7"}, {[]string{"h7", "h8", "h6"}, "h4"}},
	{{[]string{"h4", "h5", "h6"}, "h7"}, {[]string{"h7", "h8", "h9"}, "h4"}},
	{{[]string{"h7", "h8", "h9"}, "h6"}, {[]string{"h6"}, "h7"}},
}

// matrixOthers looks with other instruments: iperf3 at a link with a bandwidth, by TCP of one sender or of three at once; ping
// at one with a delay.
func (m *machine) matrixOthers(what string, turn int, way string, incast bool) {
	m.t.Helper()
	down := func(kind int) bool { return matrixImpairments[impairmentOf(kind, turn)].name == "down" }
	for k, kind := range matrixKinds {
		there, back := matrixAsked(k, turn, 0, way), matrixAsked(k, turn, 1, way)
		switch matrixImpairments[impairmentOf(k, turn)].name {
		case "bandwidth":
			for out, e := range []topology.Impairment{there, back} {
				who := matrixSenders[k][out]
				senders := who.from[:1]
				if incast {
					senders = who.from
				}
				// Those whose way another link of this step cuts or narrows are left out.
				if slices.ContainsFunc(senders, func(h string) bool { return !m.crosses(h, who.to, k, down) }) {
					senders = senders[:1]
				}
				if !m.crosses(senders[0], who.to, k, down) {
					continue
				}
				sum := m.iperfs(senders, who.to)
				above := 1.06
				if len(senders) > 1 {
					above = 1.8 // their seconds are not all the same
				}
				if asked := float64(e.Bandwidth); sum > above*asked || sum < 0.2*asked {
					m.t.Errorf("%s: %s, %s of %d to %s: iperf3 gives %.2f Mbit/s, not %.0f", what, kind.name, "TCP", len(senders), who.to, sum/1e6, asked/1e6)
				}
			}
		case "delay":
			who := matrixSenders[k][0]
			if !m.crosses(who.from[0], who.to, k, down) {
				continue
			}
			asked := time.Duration(there.Delay+back.Delay).Seconds() * 1e3
			eventually(m.t, fmt.Sprintf("%s: %s: ping takes %v ms", what, kind.name, asked), func() bool {
				r := m.run("exec", "-n", who.from[0], "--", "ping", "-c", "4", "-i", "0.05", "-q", who.to)
				_, rtt, ok := strings.Cut(r.out, "rtt min/avg/max/mdev = ")
				least, err := strconv.ParseFloat(strings.Split(rtt+"/", "/")[0], 64)
				if !ok || err != nil {
					return false
				}
				if least < slewed*asked {
					m.t.Errorf("%s: %s: ping takes %v ms, not %v", what, kind.name, least, asked)
				}
				return least < 1.2*asked+2+m.others(k, turn, way)
			})
		}
	}
}

// others is what links that are not under test may add to a round trip, in ms.
func (m *machine) others(kind, turn int, way string) (sum float64) {
	for k := range matrixKinds {
		if k == kind {
			continue
		}
		for out := range 2 {
			e := matrixAsked(k, turn, out, way)
			sum += time.Duration(e.Delay+4*e.Jitter).Seconds() * 1e3
		}
	}
	return sum
}

// crosses says whether packets between two hosts of the lab cross a link of a kind and none that is down, lossy, or has another rate.
func (m *machine) crosses(from, to string, kind int, down func(int) bool) bool {
	places := []string{"h1", "s1", "s2", "r1", "r2"}
	at := map[string]string{"h2": "s1", "h3": "s1", "h4": "s2", "h5": "s2", "h6": "h6", "h7": "r2", "h8": "r2", "h9": "r2", "h1": "h1"}
	a, b := at[from], at[to]
	var used []int
	if a == "h6" || b == "h6" {
		used = append(used, 4)
		if a == "h6" {
			a = "r1"
		} else {
			b = "r1"
		}
	}
	i, j := slices.Index(places, a), slices.Index(places, b)
	for k := min(i, j); k < max(i, j); k++ {
		used = append(used, k)
	}
	return slices.Contains(used, kind) && !slices.ContainsFunc(used, down)
}

// iperfs is the sum of what several send to one by TCP, in bit/s of payload.
func (m *machine) iperfs(from []string, to string) (sum float64) {
	m.t.Helper()
	results := make([]result, len(from))
	var group sync.WaitGroup
	for i, h := range from {
		port := strconv.Itoa(5300 + i)
		m.exec(to, "iperf3 -s -1 -D -p "+port)
		group.Go(func() {
			results[i] = m.run("exec", "-n", h, "--", "sh", "-c", "for try in 1 2 3 4 5; do iperf3 -c "+to+" -p "+port+" -t 2 -O 1 -J && exit; sleep 0.2; done")
		})
	}
	group.Wait()
	for _, r := range results {
		var got struct {
			End struct {
				Received struct {
					BPS float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		last := r.out[max(0, strings.LastIndex(r.out, "{\n\t\"start\"")):]
		if err := json.Unmarshal([]byte(last), &got); err != nil || r.code != 0 {
			m.t.Fatal(err, r)
		}
		sum += got.End.Received.BPS
	}
	return sum
}

// matrixTable counts directions that were verified, by what forwards and what was asked.
type matrixTable struct {
	mu    sync.Mutex
	cells map[[2]string]*[2]int // directions that are as asked, of all
}

func newMatrixTable() *matrixTable { return &matrixTable{cells: map[[2]string]*[2]int{}} }

func (x *matrixTable) cell(f forwards, what string) *[2]int {
	key := [2]string{f.String(), what}
	if x.cells[key] == nil {
		x.cells[key] = new([2]int)
	}
	return x.cells[key]
}

func (x *matrixTable) add(f forwards, way string, turn int, r *verify.Result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k := range matrixKinds {
		c := x.cell(f, matrixImpairments[impairmentOf(k, turn)].name)
		c[0] += 2
		c[1] += 2
	}
}

func (x *matrixTable) bad(f forwards, turn, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k := range matrixKinds {
		x.cell(f, matrixImpairments[impairmentOf(k, turn)].name)[1] += 2
	}
}

func (x *matrixTable) lines() (out []string) {
	head, rule := "| forwards |", "| --- |"
	for _, i := range matrixImpairments {
		head, rule = head+" "+i.name+" |", rule+" --- |"
	}
	out = append(out, head, rule)
	for _, f := range matrixLabs {
		line := "| " + f.String() + " |"
		for _, i := range matrixImpairments {
			c := x.cell(f, i.name)
			line += fmt.Sprintf(" %d of %d |", c[0], c[1])
		}
		out = append(out, line)
	}
	return out
}

func (x *matrixTable) log(t *testing.T) {
	t.Logf("directions that are as asked:\n%s", strings.Join(x.lines(), "\n"))
}

// Between these lines of a document the table stands.
const (
	matrixBegin = "<!-- matrix: make matrix writes this -->"
	matrixEnd   = "<!-- end of matrix -->"
)

func (x *matrixTable) write(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), matrixBegin)
	_, after, ok2 := strings.Cut(rest, matrixEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s does not have the lines %q and %q", file, matrixBegin, matrixEnd)
	}
	return os.WriteFile(file, []byte(before+matrixBegin+"\n"+strings.Join(x.lines(), "\n")+"\n"+matrixEnd+after), 0o644)
}
