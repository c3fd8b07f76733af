package experiment

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// Trivets is the whole vocabulary: its probes are in bench/drive, which knows this package, and
// only tests from outside know both.
var Trivets func() Vocabulary

func mustPlan(t testing.TB, text string) *Plan {
	t.Helper()
	e, problems := Read("dir/x.yaml", []byte(text), Trivets())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	p, problems := e.Plan()
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// complete uses every key.
const complete = `
name: figure-16
title: Throughput over hops
topology: linear,${hops}
lab:
  datapath: ${peer.datapath}
  controller: ${peer.controller}
  links: {delay: "${delay}", loss: 1%}
  change: [s1 -- s2 down bandwidth=10mbit]
factors:
  hops: {from: 2, to: 8, times: 2}
  peer:
    ours: {datapath: embedded, controller: trivet}
    theirs: {datapath: bridge, controller: none}
  delay: [1ms, 20ms]
  rate: [100, 1000]
zip: [delay, rate]
skip:
  - {hops: [4, 8], peer: theirs, delay: 20ms}
probes:
  - ping: {from: h1, to: "h${hops}", count: 20, interval: 1000us, name: rtt}
  - [iperf3: {from: h1, to: h2, time: 5s}, packets: {from: h2, to: h1, rate: "${rate}", timeout: 1min}]
  - command: {run: "echo $$HOME ${hops}", metric: x, unit: s, match: "(.*)"}
repetitions: 3
warm_up: 1
order: given
paired: peer
seed: 18446744073709551615
budget: 2h
fresh: yes
schedule:
  - at 1s: s1 -- s2 down
  - "at ${delay}: h1 run true"
  - at 2s: [s1 -- s2 up, kill s2]
quick: {repetitions: 1, hops: [2, 4]}
report: {margin: 5%}
paper: [1, 2.5]
x-mine: anything
`

// TestComplete proves that every key of a file becomes what it says in the plan.
func TestComplete(t *testing.T) {
	p := mustPlan(t, complete)
	var ids []string
	for _, c := range p.Cells {
		ids = append(ids, c.ID)
	}
	want := []string{
		"hops=2 peer=ours delay=1ms rate=100", "hops=2 peer=ours delay=20ms rate=1000", "hops=2 peer=theirs delay=1ms rate=100", "hops=2 peer=theirs delay=20ms rate=1000",
		"hops=4 peer=ours delay=1ms rate=100", "hops=4 peer=ours delay=20ms rate=1000", "hops=4 peer=theirs delay=1ms rate=100",
		"hops=8 peer=ours delay=1ms rate=100", "hops=8 peer=ours delay=20ms rate=1000", "hops=8 peer=theirs delay=1ms rate=100",
	}
	if !reflect.DeepEqual(ids, want) {
		t.Fatalf("cells:\n%s", strings.Join(ids, "\n"))
	}
	c := p.Cells[6]
	lab := Lab{Generate: "linear,4", Options: Options{"datapath": "bridge", "controller": "none", "target": "local"}, Links: []string{"delay=1ms", "loss=1%"}, Changes: []string{"s1 -- s2 bandwidth=10mbit down"}}
	if !reflect.DeepEqual(c.Lab, lab) {
		t.Errorf("lab %+v", c.Lab)
	}
	if len(c.Groups) != 3 || len(c.Groups[1]) != 2 {
		t.Fatalf("probes %+v", c.Groups)
	}
	rtt, iperf, packets, command := c.Groups[0][0], c.Groups[1][0], c.Groups[1][1], c.Groups[2][0]
	if rtt.Name != "rtt" || rtt.Kind != "ping" || rtt.Options.Text("to") != "h4" || rtt.Options.Int("count") != 20 || rtt.Options.Text("interval") != "1ms" || rtt.Options.Int("size") != 56 {
		t.Errorf("ping %+v", rtt)
	}
	if iperf.Name != "iperf3" || iperf.Options.Text("protocol") != "tcp" || iperf.Options.Time("time") != 5*time.Second || iperf.Options.Rate("bitrate") != 0 {
		t.Errorf("iperf3 %+v", iperf)
	}
	if packets.Timeout != time.Minute || packets.Options.Float("rate") != 100 || packets.Options.Text("timeout") != "" || command.Options.Text("run") != "echo $HOME 4" {
		t.Errorf("packets %+v, command %+v", packets, command)
	}
	var events []string
	for _, e := range c.Schedule {
		events = append(events, e.At.String()+" "+e.What)
	}
	if got := strings.Join(events, "; "); got != "1ms h1 run true; 1s s1 -- s2 down; 2s s1 -- s2 up; 2s kill s2" {
		t.Errorf("schedule %s", got)
	}
	e := p.Experiment
	if e.Name != "figure-16" || e.WarmUp != 1 || e.Seed != 1<<64-1 || e.Budget != 2*time.Hour || !e.Fresh || e.Order != Given || len(p.Runs) != 30 {
		t.Errorf("%+v", e)
	}
	extra, _ := json.Marshal(e.Extra)
	if string(extra) != `{"paper":[1,2.5],"report":{"margin":"5%"},"x-mine":"anything"}` {
		t.Errorf("extra %s", extra)
	}
	if quick, _ := e.Quick().Plan(); len(quick.Runs) != 7 || quick.Hash() == p.Hash() {
		t.Errorf("quick: %d runs", len(quick.Runs))
	}
}

// TestProbesOfSomeCells proves that a probe with where: is in the cells that it is for, and in no
// others.
func TestProbesOfSomeCells(t *testing.T) {
	text := `
topology: linear,2
factors: {pairs: [1, 2, 3], kind: [a, b]}
probes:
  - [ping: {from: h1, to: h2, name: one}, ping: {from: h2, to: h1, name: two, where: {pairs: [2, 3]}}, up_down: {where: {pairs: 3, kind: b}}]
quick: {pairs: 3}
`
	p := mustPlan(t, text)
	for i, want := range []string{"one", "one", "one+two", "one+two", "one+two", "one+two+up_down"} {
		if got := probeNames(p.Cells[i].Groups); got != want {
			t.Errorf("%s has %s, not %s", p.Cells[i].ID, got, want)
		}
	}
	if quick, problems := p.Experiment.Quick().Plan(); problems.Err() != nil || len(quick.Cells) != 2 { // pairs: 2 is written, though not run
		t.Errorf("quick: %v", problems)
	}
}

// TestLevelsWithout proves that a level may do without a value that others have where an option can
// be left out, and nowhere else.
func TestLevelsWithout(t *testing.T) {
	const places = "topology: linear,2\nfactors: {place: {laptop: {target: local}, rack: {target: sites, on: rack.yaml}}}\n"
	e, problems := Read("x.yaml", []byte(places+"lab: {target: '${place.target}', on: '${place.on}'}\nprobes: [up_down]\n"), Trivets())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	p, _ := e.Plan()
	if _, given := p.Cells[0].Lab.Options["on"]; given || p.Cells[1].Lab.Options["on"] != "rack.yaml" {
		t.Errorf("%v, %v", p.Cells[0].Lab.Options, p.Cells[1].Lab.Options)
	}
	of := mustPlan(t, `
topology: {defaults: {link: {bandwidth: "${link.rate}", delay: "${link.delay}"}}, nodes: {h1: host, h2: host}, links: [h1 -- h2]}
factors: {link: {slow: {delay: 1ms, rate: 5mbit}, fast: {delay: 1ms}}}
probes: [up_down]
`).Cells
	for i, want := range []bool{true, false} {
		if got := strings.Contains(string(of[i].Lab.Topology), "bandwidth"); got != want {
			t.Errorf("%s: %s", of[i].ID, of[i].Lab.Topology)
		}
	}
	for text, want := range map[string]string{
		"lab: {on: 'lists/${place.on}'}\nprobes: [up_down]\n": "x.yaml:3:11  ${place.on}: laptop has no such value",
		"probes: [iperf3: {from: h1, to: '${place.on}'}]\n":   "x.yaml:3:33  ${place.on}: laptop has no such value",
		"lab: {on: '${place.ob}'}\nprobes: [up_down]\n":       "x.yaml:3:11  ${place.ob}: there is no such factor",
	} {
		if _, problems := Read("x.yaml", []byte(places+text), Trivets()); problems.Err() == nil || !strings.Contains(problems.Err().Error(), want) {
			t.Errorf("%s: %v", text, problems.Err())
		}
	}
}

// TestQuickTime proves that a quick look shortens what takes longer, and nothing else.
func TestQuickTime(t *testing.T) {
	e := mustPlan(t, `
topology: linear,2
probes:
  - iperf3: {from: h1, to: h2, time: 10s}
  - iperf3: {name: short, from: h1, to: h2, time: 1s}
  - ping: {from: h1, to: h2, count: 100, interval: 50ms}
  - traceroute: {from: h1, to: h2}
quick: {time: 2s}
`).Experiment
	p, _ := e.Quick().Plan()
	got := ""
	for _, group := range p.Cells[0].Groups {
		got += group[0].Options["time"] + " " + group[0].Options["count"] + ";"
	}
	if want := "2s ;1s ; 40; ;"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestDefaults proves what a file of two lines means.
func TestDefaults(t *testing.T) {
	p := mustPlan(t, "topology: linear,2\nprobes: [ping: {from: h1, to: h2}, up_down]\n")
	if p.Name != "x" || len(p.Cells) != 1 || p.Cells[0].ID != "all" || len(p.Runs) != 1 || p.Order != Blocked || p.Seed != 1 || p.Estimate < 1800*time.Millisecond || p.Estimate > 10*time.Second {
		t.Errorf("%+v", p)
	}
}

// TestTopologies proves that each way to name a topology gives it, with the levels written into it.
func TestTopologies(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "two.yaml"), []byte("nodes: {a: host, b: host, s: switch}\nlinks: [s -- a, s -- b]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := topology.Defaults{Datapath: topology.Bridge, Controlled: topology.OVS, Controller: topology.ControllerNone}
	for _, c := range []struct{ text, want string }{
		{"topology: two.yaml\nlab: {links: {delay: 5ms}, change: [a -- s delay=1ms]}", "a b s: 1ms 5ms bridge"},
		{"topology: {file: two.yaml}\nlab: {datapath: ovs, controller: trivet, ipv6: auto}", "a b s: 0ns 0ns ovs trivet auto"},
		{"topology: {generate: 'linear,${n}', nodes: router}\nfactors: {n: 2}", "r1 r2 h1 h2: 0ns 0ns 0ns kernel"},
		{"topology:\n  nodes: {'h[1-${n}]': host, s1: switch}\n  links:\n  - s1 -- h1: {delay: \"${n}ms\"}\n  - s1 -- h2\nfactors: {n: 2}", "h1 h2 s1: 2ms 0ns bridge"},
	} {
		e, problems := Read(filepath.Join(dir, "x.yaml"), []byte(c.text+"\nprobes: [up_down]\n"), Trivets())
		if err := problems.Err(); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		p, _ := e.Plan()
		r, problems := p.Cells[0].Lab.Resolve(dir, d)
		if err := problems.Err(); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var names, rest []string
		for _, n := range r.Nodes {
			names = append(names, n.Name)
		}
		for _, l := range r.Links {
			rest = append(rest, l.Delay.String())
		}
		inner := append(r.NodesOf(topology.Switch), r.NodesOf(topology.Router)...)[0]
		rest = append(rest, string(inner.Datapath))
		if len(inner.Controllers) > 0 && inner.Controllers[0] != topology.ControllerNone {
			rest = append(rest, inner.Controllers...)
		}
		if r.IPv6 != topology.IPv6Off {
			rest = append(rest, string(r.IPv6))
		}
		if got := strings.Join(names, " ") + ": " + strings.Join(rest, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

// TestProblems proves that each mistake is told with its place and what to do, and all of a file at
// once.
func TestProblems(t *testing.T) {
	const ok = "topology: linear,2\nprobes: [up_down]\n"
	for _, c := range []struct{ text, want string }{
		{"", "x.yaml:1:1  an experiment takes keys, not nothing"},
		{"- a\n", "x.yaml:1:1  an experiment takes keys"},
		{"topology: linear,2\n", "x.yaml:1:1  probes: is a list of at least one probe; write probes:"},
		{"probes: [up_down]\n", "x.yaml:1:1  topology: is missing"},
		{ok + "repetition: 3\n", "x.yaml:3:1  repetition: no such key of an experiment; did you mean repetitions?"},
		{ok + "repetitions: many\n", `x.yaml:3:14  repetitions: "many" is not a number from 1`},
		{ok + "order: randon\n", "x.yaml:3:8  randon: no such order; did you mean random?"},
		{ok + "seed: -1\n", `x.yaml:3:7  seed: "-1" is not a number`},
		{ok + "budget: 20\n", `x.yaml:3:9  budget: "20" is not a time span`},
		{ok + "fresh: maybe\n", "x.yaml:3:8  fresh: \"maybe\" is neither"},
		{ok + "zip: [a]\n", "x.yaml:3:6  zip: needs at least two"},
		{ok + "zip: [hops, b]\nfactors: {hop: 1, b: 2}\n", "x.yaml:3:6  zip: there is no factor hops; did you mean hop?"},
		{ok + "zip: [a, b]\nfactors: {a: [1, 2], b: [1]}\n", "x.yaml:3:6  zip: b has 1 levels, but others have 2"},
		{ok + "zip: [a, a]\nfactors: {a: [1, 2]}\n", "x.yaml:3:6  zip: a is listed twice"},
		{ok + "paired: hop\nfactors: {hops: [1, 2]}\n", "x.yaml:3:9  paired: there is no factor hop; did you mean hops?"},
		{ok + "skip: [{hops: 3}]\nfactors: {hops: [1, 2]}\n", "x.yaml:3:15  3: no such level of hops; choose 1 or 2"},
		{ok + "skip: [{hops: [1, 2]}]\nfactors: {hops: [1, 2]}\n", "x.yaml  nothing is left to run"},
		{ok + "factors: {hops: [1, 1]}\n", "x.yaml:3:21  hops: the level 1 is listed twice"},
		{ok + "factors: {hops: []}\n", "x.yaml:3:17  hops: has no levels"},
		{ok + "factors: {'a b': [1]}\n", "x.yaml:3:11  a b: cannot be the name of a factor"},
		{ok + "factors: {n: {from: 1, to: 1000000}}\n", "x.yaml:3:14  n: has more than 10000 levels"},
		{ok + "factors: {n: {from: 1, to: 9, by: 2}}\n", "x.yaml:3:31  by: no such key of a range"},
		{ok + "factors: {n: {from: 0, to: 9, times: 2}}\n", "x.yaml:3:14  n: this range never ends"},
		{ok + "factors: {p: {a: {x: 1}, b: {y: 1}}}\n", "x.yaml:3:26  b: has the values y, but a has x"},
		{ok + "factors: {a: {from: 1, to: 200}, b: {from: 1, to: 200}}\n", "x.yaml  the factors make more than 10000 cells"},
		{ok + "repetitions: 100000\nfactors: {a: [1, 2]}\n", "are more than 100000 runs"},
		{"topology: linear,2\nfactors: {n: [1, 2]}\nprobes: [up_down: {where: {n: 2}}]\n", "x.yaml:3:9  there is no probe for n=1"},
		{"topology: linear,2\nfactors: {n: [1, 2]}\nprobes: [up_down: {where: {m: 2}}]\n", "x.yaml:3:28  where: there is no factor m"},
		{"topology: linear,2\nfactors: {n: [1, 2]}\nprobes: [up_down: {where: {n: [1, 2, 3]}}]\n", "x.yaml:3:38  where: 3 is not a level of n"},
		{"topology: linear,2\nprobes: [up_down: {where: n}]\n", "x.yaml:2:27  where: takes factors with levels"},
		{ok + "quick: {hop: 2}\nfactors: {hops: [2, 4]}\n", "x.yaml:3:9  hop: no such key of quick, or factor; did you mean hops?"},
		{ok + "quick: {hops: 3}\nfactors: {hops: [2, 4]}\n", "x.yaml:3:15  3: no such level of hops"},
		{ok + "quick: {a: 1}\nfactors: {a: [1, 2], b: [3, 4]}\nzip: [a, b]\n", "x.yaml:3:8  quick: a and b are zipped"},
		{"topology: linaer,2\nprobes: [up_down]\n", "x.yaml:1:11  linaer,2: is neither a generator nor the file of a topology; did you mean linear?"},
		{"topology: {generate: 'lin,2'}\nprobes: [up_down]\n", "x.yaml:1:22  lin: no such generator"},
		{"topology: linear,${n}\nprobes: [up_down]\nfactors: {m: [1]}\n", "x.yaml:1:11  ${n}: there is no such factor; choose m"},
		{ok + "lab: {datapaht: ovs}\n", "x.yaml:3:7  datapaht: no such option of a lab; did you mean datapath?"},
		{ok + "lab: {ipv6: offf}\n", `x.yaml:3:13  ipv6: unknown value "offf"; did you mean off?`},
		{ok + "lab: {links: {delay: 10}}\n", `x.yaml:3:22  links: "10" is not a time span`},
		{ok + "lab: {change: [h1 run ls]}\n", "x.yaml:3:16  change: before the probes only links can be changed"},
		{"topology: linear,2\nprobes: [pin: {}]\n", "x.yaml:2:10  pin: no such probe; did you mean ping?"},
		{"topology: linear,2\nprobes: [iperf3: {from: h1}]\n", "iperf3: needs to; write to: VALUE"},
		{"topology: linear,2\nprobes: [ping: {from: h1}]\n", "x.yaml:2:10  ping: it needs either from and to, or all: true"},
		{"topology: linear,2\nprobes: [ping: {from: h1, to: h2, counts: 3}]\n", "x.yaml:2:35  counts: no such option of ping; did you mean count?"},
		{"topology: linear,2\nprobes: [ping: {from: h1, to: h2, count: 0}]\n", "x.yaml:2:42  count: 0 is too little"},
		{"topology: linear,2\nprobes: [ping: {from: h1, to: h2, count: '${n}'}]\nfactors: {n: [1, x, y]}\n", `x.yaml:2:42  count: "x" is not a whole number`},
		{"topology: linear,2\nprobes: [iperf3: {from: h1, to: '${to}', timeout: 1s}]\nfactors: {to: [h2, h1]}\n", "x.yaml:2:10  iperf3: from and to are both h1; name two different nodes"},
		{"topology: linear,2\nprobes: [ping: {from: h1, to: h1}]\n", "x.yaml:2:10  ping: from and to are both h1; name two different nodes"},
		{"topology: linear,2\nprobes: [ping: {from: h1, to: h2, size: 65508}]\n", "x.yaml:2:41  size: 65508 is too much; the maximum is 65507"},
		{"topology: linear,2\nprobes: [packets: {from: h1, to: h2, rate: 0}]\n", "x.yaml:2:44  rate: 0 is too little"},
		{"topology: linear,2\nprobes: [packets: {from: h1, to: h2, rate: 1, time: 0s}]\n", "packets: time: 0ns is too little; write 10s"},
		{"topology: linear,2\nprobes: [ping: {from: h1, to: h2, paced: false}]\n", "ping: paced: is for the pings of all pairs"},
		{"topology: linear,2\nprobes: [iperf3: {from: h1, to: h2, time: 1500ms}]\n", "iperf3: time: 1.5s: iperf3 sends for whole seconds"},
		{"topology: linear,2\nprobes: [iperf3: {from: h1, to: h2, protocol: udp, length: 70000}]\n", "iperf3: length: iperf3's datagrams have 16 to 65507 bytes"},
		{"topology: linear,2\nprobes: [iperf3: {from: h1, to: h2, protocol: udp, congestion: reno}]\n", "iperf3: congestion: is for TCP only"},
		{"topology: linear,2\nprobes: [command: {run: ls, metric: x, unit: s, match: '('}]\n", "command: match: error parsing regexp"},
		{"topology: linear,2\nprobes: [up_down, up_down]\n", "x.yaml:2:19  there is already a probe up_down"},
		{ok + "schedule: [at 5: r1 -- r2 down]\n", `schedule: "5" is not a time span`},
		{ok + "schedule: ['at 5s: r1 explode']\n", `schedule: "r1 explode" is not an action`},
		{ok + "a: [\n", "not YAML"},
	} {
		e, problems := Read("x.yaml", []byte(c.text), Trivets())
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) || e != nil {
			t.Errorf("%q:\n  got  %v\n  want %s", c.text, err, c.want)
		} else if strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%q: one mistake is told as several:\n%v", c.text, err)
		}
	}
	_, problems := Read("x.yaml", []byte("topology: linear,2\nprobes: [pin, {ping: {form: h1, count: x}}]\nlab: {datapaht: x}\nrepetitions: 2\nschedule: [x]\n"), Trivets())
	for _, want := range []string{"x.yaml:2:10", "x.yaml:2:23", "x.yaml:2:40", "x.yaml:3:7", "x.yaml:5:12"} {
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing is told of %s:\n%v", want, err)
		}
	}
}

// TestWarnings proves that a factor that changes nothing, a budget that is too small, an event that
// comes too late and a timeout that is too short are told without being errors.
func TestWarnings(t *testing.T) {
	_, problems := Read("x.yaml", []byte("topology: linear,2\nprobes: [up_down]\nfactors: {hops: [1, 2]}\nbudget: 1s\nschedule: [at 9h: kill s1]\n"), Trivets())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	text := problems.Warnings().Error()
	_, problems = Read("y.yaml", []byte("topology: linear,2\nprobes: [ping: {from: h1, to: h2, interval: 5s, timeout: 10s}]\n"), Trivets())
	text += problems.Warnings().Error()
	for _, want := range []string{"x.yaml:3:11  warning: hops: is used nowhere", "2 runs will take about ", " but the budget is 1 s: not all will be run", "x.yaml:5:12  warning: schedule: at 32400s: kill s1: the probes have ended by then",
		"y.yaml:2:10  warning: ping: timeout: 10s is less than the 45 s that it takes"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

// TestCheck proves that what only the topologies tell is found: nodes, links and files that there
// are not, in which cells.
func TestCheck(t *testing.T) {
	p := mustPlan(t, `
topology: linear,${n}
factors: {n: [2, 3]}
probes:
  - ping: {from: h1, to: h3}
schedule: [at 1s: s1 -- s9 down, at 2s: kill s3, at 3s: h9 run ls, at 4s: kill controller]
`)
	d := topology.Defaults{Datapath: topology.Bridge, Controlled: topology.OVS, Controller: topology.ControllerNone}
	got := p.Check(d).Err().Error()
	for _, want := range []string{"dir/x.yaml:5:5  to: there is no node h3 (n=2); did you mean h1?", "schedule: there is no link s1 -- s9 (n=2)", "schedule: there is no node s3 (n=2)", "schedule: there is no node h9 (n=2)",
		"schedule: the lab runs no controller that is a process of its own (n=2); write lab: {controller: os-ken}"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if lines := strings.Count(got, "\n") + 1; lines != 5 {
		t.Errorf("%d problems:\n%s", lines, got)
	}
	for text, want := range map[string]string{
		"probes: [ping: {from: h1, to: s1}]\n":                 "to: s1 has no address",
		"probes: [ping: {from: s1, to: h1}]\n":                 "from: s1 has no address",
		"probes: [capture: {at: s1}]\n":                        "",
		"probes: [controller_packets]\n":                       "controller_packets: the lab has no controller",
		"probes: [controller_load]\nlab: {controller: none}\n": "controller_load: the lab has no controller",
		"probes: [ping: {from: h1, to: h2}]\nschedule: [at 1s: s1 -- s2 down]\nlab: {target: mininet}\n":                     "target: mininet: a schedule can only run commands in nodes",
		"probes: [ping: {from: h1, to: h2}]\nschedule: [at 1s: kill controller]\nlab: {controller: os-ken, datapath: ovs}\n": "",
		"probes: [controller_packets]\nlab: {controller: trivet, datapath: ovs}\n":                                           "",
	} {
		err := mustPlan(t, "topology: linear,2\n"+text).Check(d).Err()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, not %s", text, err, want)
		}
	}
	p = mustPlan(t, "topology: none-such.yaml\nprobes: [up_down]\n")
	if err := p.Check(d).Err(); err == nil || !strings.Contains(err.Error(), "none-such.yaml") || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	p = mustPlan(t, "topology: {nodes: {h1: hots}}\nprobes: [up_down]\n")
	if err := p.Check(d).Err(); err == nil || !strings.Contains(err.Error(), "dir/x.yaml:1:11  topology: hots: no such kind of node; did you mean host?") {
		t.Error(err)
	}
}

// FuzzRead proves that no file does more than be refused, and that one that is taken gives a plan,
// the same each time.
func FuzzRead(f *testing.F) {
	f.Add([]byte(complete))
	f.Add([]byte("topology: {nodes: {h1: host}}\nprobes: &p [ping: {all: true}]\nfactors: {a: {from: 1, to: 3}, b: &x [1, 2], c: *x}\nzip: [b, c]\norder: random\n"))
	f.Add([]byte("topology: '${a.b}'\nprobes: [[up_down, traceroute: {from: a, to: b}]]\nfactors: {a: {x: {b: 'linear,2'}}}\nquick: {a: x}\nskip: {a: x}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, problems := Read("x.yaml", data, Trivets())
		if e == nil {
			if problems.Err() == nil {
				t.Fatal("refused without a reason")
			}
			return
		}
		p, problems := e.Plan()
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		again, _ := e.Plan()
		if p.Hash() != again.Hash() || len(p.Runs) == 0 {
			t.Fatal("the same file gives two plans")
		}
		var b strings.Builder
		if err := p.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if q, problems := e.Quick().Plan(); q == nil && !strings.Contains(problems.Error(), "nothing is left") {
			t.Fatal(problems)
		}
	})
}

// TestDocumented proves that docs/experiments.md names every key of a file, every probe and every
// option.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/experiments.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for key := range (&reader{e: &Experiment{}}).keys() {
		if !strings.Contains(doc, "`"+key+"`") {
			t.Errorf("the key %s is not documented", key)
		}
	}
	v := Trivets()
	for _, o := range v.Lab {
		if !strings.Contains(doc, "`"+o.Name+"`") {
			t.Errorf("the option %s of a lab is not documented", o.Name)
		}
	}
	for _, kind := range v.Probes {
		_, row, ok := strings.Cut(doc, "| `"+kind.Name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		if !ok {
			t.Errorf("the probe %s is not documented", kind.Name)
		}
		for _, o := range kind.Options {
			if !strings.Contains(row, "`"+o.Name) {
				t.Errorf("the option %s of %s is not documented", o.Name, kind.Name)
			}
		}
	}
}
