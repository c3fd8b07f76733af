package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// fault is something that is broken behind a lab's back.
type fault struct {
	id, what    string
	node        string // where plant and undo run: a node, a switch for the namespace of all switches; "": the machine
	plant, undo string // for sh; $save is a file of the fault's own, $lab the lab's name, $trivet the program, $restore puts back a node's addresses and routes

	// at are the places that may be blamed: a node (r1), a link (r1--r2), a link in one direction
	// or a pair of hosts (r1→r2). Who is on a way across one of them may be said not to be reached;
	// any other blame is one of an innocent. One of the places must be named; where want has
	// expressions, each of them must be found in what is wrong instead.
	at   string
	want []string

	remade string // besides, by the lab itself: a link, and what it is set to, one after the other

	noted  bool   // it contradicts nothing by what is looked at: a line with ! is what names it
	quick  bool   // verify --quick is enough; else it is what a user types
	looks  int    // how often verify may look until it has found it; 0: twice. What was planted may need time
	needs  string // a command that fails in an empty namespace where the kernel lacks something for it
	cannot string // why nothing can show it, as docs/verify.md has it
}

// faultLab is a lab with what is broken in it, one after the other.
type faultLab struct {
	name   string
	file   string
	faults []fault
}

// faultOutcome is what became of a fault.
type faultOutcome struct {
	lab     string
	fault   fault
	state   string // found, noted, missed, cannot, skipped; "found all the same": although nothing was said to show it
	by      []string
	seconds float64
	blamed  []string
	strays  []string
}

// TestFaults proves that verify finds what is broken, names its place and blames nobody else, in
// labs of each kind, which it finds sound before, between and after. TRIVET_FAULTS names a file for
// the table of what became of each (make faults). It is not parallel: beside other tests a look is
// of a busy machine.
func TestFaults(t *testing.T) {
	needFaults(t)
	var all []faultOutcome
	defer func() { tellFaults(t, all) }()
	for _, l := range faultLabs() {
		t.Run(l.name, func(t *testing.T) { all = append(all, l.run(t)...) })
	}
}

// needFaults skips what takes an hour unless it is asked for.
func needFaults(t *testing.T) {
	if os.Getenv("TRIVET_FAULTS") == "" {
		t.Skip("takes an hour: make faults")
	}
}

// TestFaultsEmulated is the part of TestFaults that needs what kernels may lack (netem, VLANs of
// bridges), on a kernel that lacks nothing.
func TestFaultsEmulated(t *testing.T) {
	if !fullKernel() {
		t.Skip("needs a full kernel: scripts/vm uml ./test/e2e 'TestFaultsEmulated$' --uptime=11 --mem=2048")
	}
	var all []faultOutcome
	defer func() { tellFaults(t, all) }()
	for _, l := range faultLabs() {
		l.faults = slices.DeleteFunc(l.faults, func(f fault) bool { return f.needs == "" })
		if len(l.faults) > 0 {
			t.Run(l.name, func(t *testing.T) { all = append(all, l.run(t)...) })
		}
	}
}

func fullKernel() bool { return os.Getenv("TRIVET_FULL_KERNEL") == "1" }

func (l faultLab) run(t *testing.T) (all []faultOutcome) {
	if strings.Contains(l.file, "datapath: frr") {
		needDaemons(t)
	}
	m := newMachine(t)
	m.up(m.file(l.name+".yaml", l.file))
	defer m.ok("down")
	b := &breaker{machine: m, topology: jsonOf[lab.State](m, "inspect").Topology}
	b.sound(t, "before anything is broken")
	b.remember()
	tried := false // some, since it was sound
	for i, f := range l.faults {
		t.Run(f.id, func(t *testing.T) {
			tried = true
			here := *m
			here.t = t
			o := (&breaker{machine: &here, topology: b.topology, restore: b.restore}).try(t, f)
			o.lab = l.name
			all = append(all, o)
			if o.state == "skipped" && fullKernel() {
				t.Error("a full kernel lacks what this needs: ", f.needs)
			} else if o.state == "skipped" {
				t.Skip("the kernel lacks what this needs: ", f.needs)
			}
		})
		if tried && (i%10 == 9 || i == len(l.faults)-1) {
			b.sound(t, "after "+f.id)
			tried = false
		}
	}
	return all
}

// needDaemons skips a test where FRR or BIRD are not installed.
func needDaemons(t *testing.T) {
	for _, p := range []string{"/usr/lib/frr/ospfd", "/usr/sbin/bird"} {
		if _, err := os.Stat(p); err != nil {
			t.Skip("needs the Debian packages frr and bird2: ", err)
		}
	}
}

// breaker breaks a lab, and mends it.
type breaker struct {
	*machine
	topology *topology.Topology
	restore  map[string]string // by node: what puts back its addresses and routes
}

// remember writes down the addresses and routes of nodes with programs of their own.
func (b *breaker) remember() {
	b.restore = map[string]string{}
	for _, n := range b.topology.Nodes {
		if n.Kind == topology.Switch || n.IsDatapath() {
			continue
		}
		at := filepath.Join(b.dir, "was-"+n.Name)
		b.exec(n.Name, fmt.Sprintf("ip addr save >%[1]s-a; ip -4 route save >%[1]s-4; ip -6 route save >%[1]s-6", at))
		b.restore[n.Name] = fmt.Sprintf("{ ip addr restore <%[1]s-a; ip -4 route restore <%[1]s-4; ip -6 route restore <%[1]s-6; } 2>/dev/null; true", at)
	}
}

// look is what verify says is wrong, and what it notes.
func (b *breaker) look(t *testing.T, quick bool) (wrong, notes []string) {
	t.Helper()
	args := []string{"verify", "--json"}
	if quick {
		args = append(args, "--quick")
	}
	out := b.run(args...)
	var r verify.Result
	if err := json.Unmarshal([]byte(out.out), &r); err != nil || out.code != exitOf(r) {
		t.Errorf("verify itself failed: %v: %s", err, out)
		return nil, nil
	}
	return r.Says(verify.Wrong), r.Notes
}

// sound waits until verify has nothing against the lab. What was mended may still have an effect at
// the first look; that is all that is forgiven.
func (b *breaker) sound(t *testing.T, when string) {
	t.Helper()
	var said []string
	for range 3 {
		wrong, notes := b.look(t, true)
		if said = slices.Concat(wrong, notes); len(said) == 0 {
			return
		}
	}
	t.Errorf("%s the lab is not sound: %s", when, strings.Join(said, "; "))
}

// script fills in what scripts of faults may name.
func (b *breaker) script(f fault, text string) string {
	return strings.NewReplacer("$save", filepath.Join(b.dir, "save-"+f.id), "$lab", b.name, "$trivet", trivet, "$restore", b.restore[f.node]).Replace(text)
}

func (b *breaker) do(t *testing.T, f fault, text string) {
	t.Helper()
	if text = b.script(f, text); f.node == "" {
		b.sh(text)
	} else {
		b.exec(f.node, text)
	}
}

// try breaks something, looks, and mends it again.
func (b *breaker) try(t *testing.T, f fault) (o faultOutcome) {
	o = faultOutcome{fault: f, state: "missed"}
	if f.needs != "" && exec.Command("unshare", "-n", "sh", "-ec", f.needs).Run() != nil {
		o.state = "skipped"
		return o
	}
	defer b.mend(t, f)
	b.do(t, f, f.plant)
	began := time.Now()
	for range max(f.looks, 2) {
		wrong, notes := b.look(t, f.quick)
		o.blamed = slices.Concat(wrong, notes)
		for _, line := range o.blamed {
			if !b.allowed(f, line) {
				o.strays = append(o.strays, line)
			}
		}
		if b.foundIn(f, wrong) {
			o.state, o.by = "found", checks(wrong)
			break
		}
		if f.noted && b.foundIn(f, notes) {
			o.state, o.by = "noted", []string{"note"}
			break
		}
		if f.cannot != "" {
			break
		}
	}
	o.seconds = time.Since(began).Seconds()
	switch {
	case f.cannot != "" && o.state == "found":
		o.state = "found all the same"
	case f.cannot != "":
		o.state = "cannot"
	case o.state == "missed":
		t.Errorf("not found, or not at its place (%s): %s; it says: %q", f.at, f.what, o.blamed)
	}
	if len(o.strays) > 0 {
		t.Errorf("innocents are blamed for: %s (%s): %q", f.what, f.at, o.strays)
	}
	return o
}

// mend puts back what was broken.
func (b *breaker) mend(t *testing.T, f fault) {
	t.Helper()
	if f.undo != "" {
		b.do(t, f, f.undo)
	}
	words := strings.Fields(f.remade)
	for i := range max(0, len(words)-1) {
		b.ok("link", "set", words[0], words[i+1])
	}
	b.settle(t)
}

// settle waits until all hosts reach each other again, which is cheaper than to verify. What
// routers told hosts of better ways meanwhile is forgotten.
func (b *breaker) settle(t *testing.T) {
	t.Helper()
	for node := range b.restore {
		b.exec(node, "ip route flush cache; ip -6 route flush cache; true")
	}
	until.Within(t, 90*time.Second, "all hosts reach each other after it was undone", func() bool {
		return b.run("ping", "--all", "-W", "1s").code == 0 && (!b.topology.IPv6.Addressed() || b.run("ping", "--all", "-6", "-W", "1s").code == 0)
	})
}

// foundIn says whether what is wrong names the fault's place.
func (b *breaker) foundIn(f fault, wrong []string) bool {
	text := strings.Join(wrong, "\n")
	for _, want := range f.want {
		if !regexp.MustCompile(want).MatchString(text) {
			return false
		}
	}
	if len(f.want) > 0 {
		return len(wrong) > 0
	}
	return slices.ContainsFunc(wrong, func(line string) bool {
		if arrow.MatchString(line) {
			return slices.ContainsFunc(f.places(), func(p place) bool { return p.named(line) })
		}
		return b.allowed(f, line)
	})
}

// place is a node (a), or a link or pair; both ways, or from a to b.
type place struct {
	a, b string
	both bool
}

func (f fault) places() (out []place) {
	for word := range strings.FieldsSeq(f.at) {
		if a, b, ok := strings.Cut(word, "--"); ok {
			out = append(out, place{a, b, true})
		} else if a, b, ok := strings.Cut(word, "→"); ok {
			out = append(out, place{a, b, false})
		} else {
			out = append(out, place{a: word})
		}
	}
	return out
}

func (p place) named(text string) bool {
	if p.b == "" {
		return regexp.MustCompile(`\b` + p.a + `\b`).MatchString(text)
	}
	return strings.Contains(text, p.a+" → "+p.b) || p.both && strings.Contains(text, p.b+" → "+p.a)
}

// on says whether a place is the link from one node to another, or one of these nodes.
func (p place) on(from, to string) bool {
	if p.b == "" {
		return p.a == from || p.a == to
	}
	return p.a == from && p.b == to || p.both && p.a == to && p.b == from
}

var arrow = regexp.MustCompile(`(\S+) (?:→|->) ([\w-]+)`)

// allowed says whether a blame may be one for a fault.
func (b *breaker) allowed(f fault, line string) bool {
	if m := arrow.FindStringSubmatch(line); m != nil {
		way := b.way(m[1], m[2])
		for _, p := range f.places() {
			if p.on(m[1], m[2]) || strings.Contains(line, "  reach: ") && p.on(m[2], m[1]) { // who gets no answer
				return true
			}
			// Of those at a distance answers are missing as well, for what is broken on either way.
			for i := 1; len(way) > 2 && i < len(way); i++ {
				if p.on(way[i-1], way[i]) || p.on(way[i], way[i-1]) || p.b != "" && p.a == m[2] && p.b == m[1] {
					return true
				}
			}
		}
		return false
	}
	for _, p := range append(f.places(), place{a: f.node}) {
		for _, end := range []string{p.a, p.b} {
			n := b.topology.Node(end)
			switch {
			case n == nil:
			case place{a: end}.named(line), n.IsDatapath() && strings.Contains(line, "switches' namespace"):
				return true
			}
		}
	}
	return false
}

// way is a shortest one from a node to another; nil where one of the two is none.
func (b *breaker) way(from, to string) []string {
	came := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0 && b.topology.Node(from) != nil; queue = queue[1:] {
		at := queue[0]
		if at == to {
			way := []string{at}
			for at != from {
				at = came[at]
				way = append(way, at)
			}
			return way
		}
		for _, l := range b.topology.Links {
			for i := range 2 {
				if _, seen := came[l.Ends[1-i].Node]; l.Ends[i].Node == at && !seen {
					came[l.Ends[1-i].Node] = at
					queue = append(queue, l.Ends[1-i].Node)
				}
			}
		}
	}
	return nil
}

var check = regexp.MustCompile(`^\S+ → \S+  ([\w ]+):`)

// checks name what found something.
func checks(wrong []string) (out []string) {
	for _, line := range wrong {
		what := "node"
		if m := check.FindStringSubmatch(line); m != nil {
			what = m[1]
		}
		if !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	return out
}

// tellFaults prints the table, and writes it to the file of TRIVET_FAULTS.
func tellFaults(t *testing.T, all []faultOutcome) {
	counts := map[string]int{}
	strays := 0
	out := new(strings.Builder)
	fmt.Fprintf(out, "| %-28s | %-16s | %-60s | %-18s | %7s | %s |\n|%s|%s|%s|%s|%s|---|\n", "fault", "lab", "what", "became", "seconds", "by; blamed",
		strings.Repeat("-", 30), strings.Repeat("-", 18), strings.Repeat("-", 62), strings.Repeat("-", 20), strings.Repeat("-", 9))
	for _, o := range all {
		counts[o.state]++
		said := strings.Join(o.blamed, "; ")
		if len(o.strays) > 0 {
			strays++
			said = "INNOCENT: " + strings.Join(o.strays, "; ") + ". All: " + said
		}
		if o.state == "cannot" && said == "" {
			said = o.fault.cannot
		}
		fmt.Fprintf(out, "| %-28s | %-16s | %-60s | %-18s | %7.1f | %s: %.400s |\n", o.fault.id, o.lab, o.fault.what, o.state, o.seconds, strings.Join(o.by, ", "), said)
	}
	fmt.Fprintf(out, "\n%d faults: %d found, %d noted, %d missed, %d cannot be found, %d of which are found all the same, %d skipped as this kernel lacks what they need. With innocents blamed: %d.\n",
		len(all), counts["found"], counts["noted"], counts["missed"], counts["cannot"]+counts["found all the same"], counts["found all the same"], counts["skipped"], strays)
	t.Logf("\n%s", out)
	if file := os.Getenv("TRIVET_FAULTS"); file != "" {
		must(t, os.WriteFile(file, []byte(out.String()), 0o644))
	}
}
