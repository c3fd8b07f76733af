package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/pcapgo"

	results "trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// samples reads a result file, and checks that its samples that count are of as many different runs
// and probes.
func (m *machine) samples(file string) *results.Run {
	m.t.Helper()
	run, err := results.ReadFile(file)
	must(m.t, err)
	seen := map[string]bool{}
	for _, s := range run.Counted() {
		key := fmt.Sprint(s.Run, s.Probe)
		if seen[key] {
			m.t.Errorf("two samples of run %d, %s count", s.Run, s.Probe)
		}
		seen[key] = true
	}
	return run
}

// TestBenchCapture proves that packets of each run are recorded beside its results, from the first
// on, as many as are asked for, and that a place that does not exist is found before anything runs.
func TestBenchCapture(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	text := `
topology: linear,2
factors: {most: [5, 1000]}
probes: [[ping: {from: h1, to: h2, count: 10, interval: 50ms}, capture: {at: s1-s2, time: 5s, packets: "${most}", bytes: 60}]]
repetitions: 2
`
	out := filepath.Join(m.dir, "x.jsonl")
	contains(t, m.want(1, "bench", "run", m.file("bad.yaml", strings.Replace(text, "s1-s2", "s1-s9", 1)), "--out", out).String(), "there is no node or link s1-s9")
	m.ok("bench", "run", m.file("x.yaml", text), "--out", out)
	files := 0
	for _, s := range m.samples(out).Counted() {
		if s.Probe != "capture" {
			continue
		}
		files++
		var details struct{ File string }
		must(t, json.Unmarshal(s.Details, &details))
		f, err := os.Open(filepath.Join(m.dir, details.File))
		must(t, err)
		r, err := pcapgo.NewReader(f)
		must(t, err)
		packets, echoes := 0, 0
		for {
			data, _, err := r.ReadPacketData()
			if err != nil {
				break
			}
			packets++
			if len(data) > 34 && data[12] == 8 && data[13] == 0 && data[23] == 1 {
				echoes++
			}
		}
		must(t, f.Close())
		var kept float64
		for _, one := range s.Measurements {
			if one.Metric == "captured" {
				kept = one.Values[0]
			}
		}
		if float64(packets) != kept || (fmt.Sprint(s.Factors["most"]) == "5") != (packets == 5) || packets > 5 && echoes < 22 { // of ten pings and the one before them
			t.Errorf("%s has %d packets, %d of them echoes; the result says %v", details.File, packets, echoes, kept)
		}
	}
	if files != 4 {
		t.Errorf("%d files of 4 runs", files)
	}
	m.unchanged(before)
}

// TestBenchResumed proves that a run of an experiment that is killed can be resumed: what it had
// measured is not measured again, the lab that it left is taken down, at the end each cell has each
// repetition once, and nothing is left.
func TestBenchResumed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("x.yaml", `
topology: linear,2
lab: {datapath: "${datapath}", controller: none}
factors: {datapath: [bridge, embedded], count: [2, 3]}
probes: [ping: {from: h1, to: h2, count: "${count}", interval: 100ms}]
repetitions: 4
fresh: true
`)
	out := filepath.Join(m.dir, "x.jsonl")
	bench := m.command(trivet, "bench", "run", file, "--out", out)
	said := m.startOutput(bench)
	lines := func() int {
		text, _ := os.ReadFile(out)
		return strings.Count(string(text), "\n")
	}
	eventually(t, "some runs are measured, and a lab is up", func() bool {
		if over := ended(bench); over || lines() < 4 {
			return over
		}
		must(t, bench.Process.Signal(unix.SIGSTOP)) // so that the lab that is up stays until the end
		up := func() bool { return strings.Contains(m.ok("ls"), "  up ") }
		if up() {
			if time.Sleep(2 * time.Second); up() { // the lab's daemon has not just been asked to take it down
				return true
			}
		}
		must(t, bench.Process.Signal(unix.SIGCONT))
		return false
	})
	must(t, bench.Process.Kill())
	wait(t, bench)
	first := m.samples(out)
	if n := len(first.Counted()); n < 3 || n >= 16 {
		t.Fatalf("%d of 16 runs were measured before the end: %s", n, said)
	}
	contains(t, m.want(1, "bench", "run", file, "--out", out).err, "resume")
	again := m.ok("bench", "run", file, "--out", out, "--resume")
	contains(t, again, "what an earlier run left", "16 runs measured, 0 failed, 0 left")
	all := m.samples(out)
	counted := all.Counted()
	if len(counted) != 16 || len(all.Resumes) != 1 || !slices.EqualFunc(first.Counted(), counted[:len(first.Counted())], func(a, b results.Sample) bool { return a.Started.Equal(b.Started) }) {
		t.Errorf("%d samples, %d resumes", len(counted), len(all.Resumes))
	}
	cells := map[string]int{}
	for _, s := range counted {
		cells[s.Cell]++
		if n := len(s.Values("rtt")); s.Failure != "" || float64(n) != s.Factors["count"] || s.Usage == nil || len(s.Usage.Processes) != 1 {
			t.Errorf("%+v", s)
		}
	}
	if len(cells) != 4 || slices.Max(mapValues(cells)) != 4 {
		t.Errorf("samples of each cell: %v", cells)
	}
	m.unchanged(before)
}

func mapValues(m map[string]int) (out []int) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// TestBenchMininet proves that Mininet, in namespaces of its own, ends with the run that started it
// even where that is killed, and that a run side by side with a lab of Trivet's leaves nothing.
func TestBenchMininet(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"mn", "brctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("x.yaml", `
topology: linear,2
lab: {target: "${target}", datapath: bridge, controller: none, links: {bandwidth: 100mbit}}
factors: {target: [mininet, local]}
probes: [ping: {from: h1, to: h2, count: 2, interval: 1s}]
order: given
`)
	out := filepath.Join(m.dir, "x.jsonl")
	shells := func() bool {
		return strings.Contains(m.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' || true"), "mininet:h1")
	}
	bench := m.command(trivet, "bench", "run", file, "--out", out)
	m.startOutput(bench)
	eventually(t, "Mininet has hosts", func() bool { return shells() || ended(bench) })
	must(t, bench.Process.Kill())
	wait(t, bench)
	eventually(t, "Mininet has ended", func() bool { return !shells() })
	contains(t, m.ok("bench", "run", file, "--out", out, "--resume"), "2 runs measured, 0 failed, 0 left")
	for _, s := range m.samples(out).Counted() {
		if len(s.Values("rtt")) != 2 || len(s.Usage.Cgroups) == 0 {
			t.Errorf("%+v", s)
		}
	}
	m.unchanged(before)
}

// TestBenchFidelity proves that links that do what they were asked for have nothing said against
// them, and that one that has been changed beneath is found out.
func TestBenchFidelity(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("x.yaml", `
topology: {nodes: {"h[1-2]": host}, links: [h1 -- h2: {delay: 100ms}]}
probes:
  - ping: {name: right, from: h1, to: h2, count: 5, interval: 50ms}
  - command: {run: "`+trivet+` link set h1-h2 delay=300ms && echo changed 1", metric: links, unit: "1", match: "changed ([0-9])"}
  - ping: {name: wrong, from: h1, to: h2, count: 5, interval: 50ms}
`)
	right := 0
	for try := 0; right == 0 && try < 10; try++ { // where the machine stalls, a link that is right may not look so
		out := filepath.Join(m.dir, fmt.Sprint(try, ".jsonl"))
		m.ok("bench", "run", file, "--out", out)
		for _, s := range m.samples(out).Counted() {
			var links []environment.Reason
			for _, r := range s.Verdict.Reasons {
				if strings.HasPrefix(r.Code, "link") || r.Code == "drops" {
					links = append(links, r)
				}
			}
			switch {
			case s.Probe == "wrong" && (len(links) != 1 || links[0].Level != environment.Bad || s.Verdict.Level != environment.Bad):
				t.Errorf("a link of 300 ms instead of 100 is %+v", s.Verdict)
			case s.Probe == "right" && len(s.Verdict.Reasons) == 0 && s.Verdict.Level != environment.Good:
				t.Errorf("nothing is said against a link, which is %+v", s.Verdict)
			case s.Probe == "right" && len(links) == 0:
				right++
			case s.Probe == "right":
				t.Logf("a link as it should be is %+v (%v)", s.Verdict, s.Values("rtt"))
			}
		}
	}
	if right == 0 {
		t.Error("a link as it should be was never found so")
	}
}

// TestBenchFaults proves that what goes wrong in one cell stays there: a probe that hangs, a host
// that dies, a lab that does not come up. The rest is measured, the exit code tells, and nothing is
// left.
func TestBenchFaults(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	out := filepath.Join(m.dir, "x.jsonl")
	r := m.want(1, "bench", "run", m.file("x.yaml", `
topology: {nodes: {h1: {host: {start: "${fault.start}"}}, h2: host}, links: [h1 -- h2]}
factors:
  fault:
    none: {start: "true", run: echo 1, kill: h2, timeout: 60s}
    hangs: {start: "true", run: sleep 1000, kill: h2, timeout: 2s}
    dies: {start: "true", run: "sleep 60; echo 1", kill: h1, timeout: 60s}
    start: {start: exit 3, run: echo 1, kill: h2, timeout: 60s}
probes: [command: {node: h1, run: "${fault.run}", metric: x, unit: "1", match: "([0-9])", timeout: "${fault.timeout}"}]
schedule: ["at 5s: kill ${fault.kill}"]
order: given
`), "--out", out)
	contains(t, r.out, "3 failed, 0 left")
	contains(t, r.err, "--resume --again")
	counted := m.samples(out).Counted()
	if len(counted) != 4 {
		t.Fatalf("%d samples: %s", len(counted), r)
	}
	for i, want := range []string{"", "did not end within 2 s", "exit 137", "did not come up"} {
		if got := counted[i].Failure; (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", counted[i].Cell, got)
		}
	}
	m.unchanged(before)
}

// TestBenchFullDisk proves that a full disk ends a run with a word of what to do, and that it can
// be resumed.
func TestBenchFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	disk := filepath.Join(m.dir, "disk")
	m.sh("mkdir disk; mount -t tmpfs -o size=32k none disk")
	file, out := m.file("x.yaml", `
topology: {nodes: {"h[1-2]": host}, links: [h1 -- h2]}
probes: [command: {run: "seq 1000", metric: x, unit: "1", match: "([0-9]+)"}]
repetitions: 8
`), filepath.Join(disk, "x.jsonl")
	r := m.want(1, "bench", "run", file, "--out", out)
	contains(t, r.err, "no space left", "make room and resume", "--resume")
	m.sh("mount -o remount,size=1m disk")
	r = m.run("bench", "run", file, "--out", out, "--resume", "--again")
	if r.code != 0 || !strings.Contains(r.out, "8 runs measured, 0 failed, 0 left") {
		t.Error(r)
	}
}

// TestBenchInterrupted proves that Ctrl-C ends a run in the middle of a probe with nothing left,
// and says how to go on.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("x.yaml", "topology: linear,2\nlab: {datapath: bridge, controller: none}\nprobes: [ping: {from: h1, to: h2, count: 1000, interval: 1s}]\n")
	out := filepath.Join(m.dir, "x.jsonl")
	bench := m.command(trivet, "bench", "run", file, "--out", out)
	said := m.startOutput(bench)
	eventually(t, "the lab is up", func() bool { return strings.Contains(m.ok("ls"), "  up ") || ended(bench) })
	time.Sleep(100 * time.Millisecond) // into the probe, where the machine is not too slow for that
	must(t, bench.Process.Signal(unix.SIGINT))
	wait(t, bench)
	if code := bench.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit %d", code)
	}
	contains(t, said.String(), "interrupted; 1 run of 1 left", "trivet bench run "+file+" --out "+out+" --resume")
	m.unchanged(before)
}

// TestBenchBudget proves that a budget gives fewer repetitions and says so, also in the result,
// which is resumed without a word of it; and that one which is too small for one repetition is
// refused with the time that it takes.
func TestBenchBudget(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("x.yaml", "topology: {nodes: {\"h[1-2]\": host}, links: [h1 -- h2]}\nprobes: [ping: {from: h1, to: h2, count: 6, interval: 100ms}]\nrepetitions: 50\n")
	out := filepath.Join(m.dir, "x.jsonl")
	said := m.ok("bench", "run", file, "--out", out, "--budget", "5s")
	contains(t, said, "of the file's 50 repetitions)", " 0 failed, 0 left")
	header := m.sh("head -n 1 " + out)
	contains(t, header, `"repetitions_wanted":50`)
	contains(t, m.ok("bench", "run", file, "--out", out, "--resume"), "of the file's 50 repetitions)", " 0 failed, 0 left")
	contains(t, m.want(1, "bench", "run", file, "--dry-run", "--budget", "1ms").err, "one repetition of each cell takes about")
}

// TestBenchAsked proves that a plan is shown without root's part of it, that everything wrong with
// a file is told, and that what can be asked for is listed.
func TestBenchAsked(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("x.yaml", "topology: linear,2\nfactors: {n: [1, 2, 3]}\nprobes: [ping: {from: h1, to: h2, count: \"${n}\"}]\nquick: {n: [1], repetitions: 2}\n")
	plan := m.ok("bench", "run", file, "--dry-run")
	contains(t, plan, "3 runs of 3 cells", "ping")
	contains(t, m.ok("bench", "run", file, "--dry-run", "--quick"), "2 runs of 1 cell")
	contains(t, m.ok("bench", "run", file, "--dry-run", "--repetitions", "5", "--seed", "9"), "15 runs of 3 cells", "seed 9")
	contains(t, m.want(1, "bench", "run", m.file("y.yaml", "topology: linear,2\nprobes: [pong: {from: h1, to: h9}]\n")).err, "y.yaml:2", "ping")
	contains(t, m.want(1, "bench", "run", m.file("z.yaml", "topology: linear,2\nprobes: [ping: {from: h1, to: h9}]\n")).err, "z.yaml:2", "h9")
	contains(t, m.ok("bench", "list"), "iperf3", "convergence", "up_down")
	contains(t, m.ok("bench", "list", "iperf3"), "congestion", "tcp|udp", "10s")
	contains(t, m.want(1, "bench", "list", "ipref3").err, "iperf3")
	if list := jsonOf[[]struct{ Name string }](m, "bench", "list"); len(list) < 10 || list[0].Name != "lab" {
		t.Errorf("%+v", list)
	}
	contains(t, m.ok("__complete", "bench", "list", ""), "iperf3")
	contains(t, m.ok("__complete", "bench", "run", ""), "yaml")
	if _, err := os.Stat(filepath.Join(m.dir, "x.jsonl")); err == nil {
		t.Error("a dry run has written a result")
	}
}

// TestBenchUntil proves that an experiment goes on until what it states is decided, and not to the
// most; that a run which was interrupted goes on by the rule of its file; and that the report says
// how it was measured, and judges as the run did at its end, with all numbers as data.
func TestBenchUntil(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("x.yaml", `
topology: {nodes: {"h[1-2]": host}, links: [h1 -- h2]}
factors: {base: [100, 103]}
probes:
  - command: {node: h1, run: "echo $((${base} + $(od -An -N1 -tu1 /dev/urandom) % 5))", metric: x, unit: s, match: "([0-9]+)", time: 1s}
paired: base
until: decided
at_most: 200
report: {compare: {factor: base, margin: 20s}}
paper:
  trends:
    - {text: it is larger, metric: x, at: {base: 103}, is: above, than: {base: 100}}
    - {text: it is as large, metric: x, at: {base: 103}, is: times, factor: 1, than: {base: 100}, within: 10%}
`)
	file = strings.TrimSpace(file)
	contains(t, m.ok("bench", "run", file, "--dry-run"), "at most 400 runs of 2 cells", "with looks after 20, 40, 60, 80, 100, 120, 140, 160, 180 and 200 repetitions")
	out := filepath.Join(m.dir, "x.jsonl")
	contains(t, m.want(2, "bench", "run", file, "--out", out, "--until", "decided", "--resume").err, "[until resume]")
	said := m.ok("bench", "run", file, "--out", out)
	contains(t, said, "as all is decided that can be", "it is larger", "it is as large", "equivalent", " 0 left")
	run := m.samples(out)
	end := run.Ended()
	if end == nil || end.Ends != results.EndsDecided || end.Repetitions >= 200 || len(run.Counted()) != 2*end.Repetitions || len(run.Looks) != end.Repetitions/20 {
		t.Fatalf("it ended by %+v, with %d samples", end, len(run.Counted()))
	}
	contains(t, m.ok("bench", "run", file, "--out", out, "--resume"), fmt.Sprintf("ended after %d repetitions", end.Repetitions))
	if again := m.samples(out); len(again.Samples) != len(run.Samples) {
		t.Errorf("there are %d samples after its end, and were %d", len(again.Samples), len(run.Samples))
	}
	contains(t, m.ok("bench", "report", out, "--text"), "Sequential: repetitions were added until all statements were decided, 200 at most", "It ended as all was decided", "  holds", "it is larger: ")
	var data struct {
		Results []struct {
			Statements []results.Judged
		}
	}
	must(t, json.Unmarshal([]byte(m.ok("bench", "report", out, "--text", "--json")), &data))
	if got := data.Results[0].Statements; !slices.Equal(got, end.Statements) || len(got) != 3 {
		t.Errorf("the report judges %+v, the run did %+v", got, end.Statements)
	}
}
