package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

const all = `
topology: linear,2
lab: {datapath: DATAPATH, controller: CONTROLLER, target: TARGET}
probes:
  - ping: {from: h1, to: h2, count: 4, interval: 5ms}
  - ping: {name: each, all: true, count: 2, interval: 5ms, size: 1000}
  - ping: {name: unpaced, all: true, paced: false, count: 2, interval: 5ms}
  - iperf3: {name: tcp, from: h1, to: h2, time: 1s, parallel: 2, length: 4096}
  - iperf3: {name: udp, from: h1, to: h2, time: 1s, protocol: udp, bitrate: 2mbit}
  - iperf3: {name: both, from: h1, to: h2, time: 1s, bidirectional: true, bitrate: 5mbit}
  - traceroute: {from: h1, to: h2}
  - up_down
  - command: {name: words, node: h1, run: "echo took 1.5 s; echo took 2 s", metric: wait, unit: s, match: "took ([0-9.]+) s"}
  - command: {name: here, run: 'cd "$$TRIVET_EXPERIMENT" && pwd | grep -c TestProbes', metric: found, unit: "1", match: "([0-9]+)"}
  - command: {name: in a node, node: h1, run: 'cd "$$TRIVET_EXPERIMENT" && pwd | grep -c TestProbes', metric: found, unit: "1", match: "([0-9]+)"}
  - command: {name: json, run: 'echo "{\"a\": [{\"b\": 3}, {\"b\": 4}]}"', metric: b, unit: "1", path: a.1.b}
`

// TestProbes proves on small labs of each kind, Mininet's own among them, that each probe measures
// what it says: how many values, of which nodes, in which units, and that rates that were asked for
// are those that are seen.
func TestProbes(t *testing.T) {
	for _, where := range [][3]string{{"local", "bridge", "none"}, {"local", "embedded", "trivet"}, {"mininet", "bridge", "none"}} {
		t.Run(strings.Join(where[:], " "), func(t *testing.T) {
			t.Parallel()
			needs(t, "iperf3", "traceroute")
			if where[0] == "mininet" {
				needs(t, "mn", "brctl")
			}
			i, probes := bring(t, strings.NewReplacer("TARGET", where[0], "DATAPATH", where[1], "CONTROLLER", where[2]).Replace(all))
			_, v := run(t, i, probes["ping"])
			// In seconds: one of four is quick on any machine. A busy one may lose some.
			if got := v["rtt h1 h2"]; len(got) == 0 || slices.Min(got) <= 0 || slices.Min(got) > 0.01 || v["loss h1 h2"][0] != 1-float64(len(got))/4 {
				t.Errorf("ping: %v", v)
			}
			for _, name := range []string{"each", "unpaced"} {
				if _, v = run(t, i, probes[name]); len(v["rtt h1 h2"]) != 2 || len(v["rtt h2 h1"]) != 2 {
					t.Errorf("%s: %v", name, v)
				}
			}
			if _, v = run(t, i, probes["tcp"]); v["throughput h1 h2"][0] < 1e6 || len(v["retransmissions h1 h2"]) != 1 {
				t.Errorf("tcp: %v", v)
			}
			sent := 0.0
			for try := 0; (sent < 1.5e6 || sent > 2.5e6) && try < 10; try++ { // a busy machine may miss the rate
				_, v = run(t, i, probes["udp"])
				sent = v["sent_throughput h1 h2"][0]
			}
			if sent < 1.5e6 || sent > 2.5e6 || len(v["jitter h1 h2"]) != 1 || len(v["loss h1 h2"]) != 1 {
				t.Errorf("udp: %v", v)
			}
			if _, v = run(t, i, probes["both"]); len(v["throughput h1 h2"]) != 1 || len(v["throughput h2 h1"]) != 1 || v["throughput h2 h1"][0] < 1e6 {
				t.Errorf("both: %v", v)
			}
			if _, v = run(t, i, probes["traceroute"]); v["hops h1 h2"][0] != 1 {
				t.Errorf("traceroute: %v", v)
			}
			if _, v = run(t, i, probes["up_down"]); v["up"][0] <= 0 || v["down"][0] <= 0 {
				t.Errorf("up_down: %v", v)
			}
			if _, v = run(t, i, probes["words"]); !slices.Equal(v["wait"], []float64{1.5, 2}) {
				t.Errorf("words: %v", v)
			}
			if _, v = run(t, i, probes["json"]); !slices.Equal(v["b"], []float64{4}) {
				t.Errorf("json: %v", v)
			}
			for _, name := range []string{"here", "in a node"} {
				if _, v = run(t, i, probes[name]); !slices.Equal(v["found"], []float64{1}) {
					t.Errorf("%s: the experiment's directory: %v", name, v)
				}
			}
			watch(t, i.Watch())
		})
	}
}

// watch proves that what is said to be watched can be.
func watch(t *testing.T, o environment.WatchOptions) {
	t.Helper()
	o.Interval, o.NoPerf = 20*time.Millisecond, true
	w, err := environment.StartWatch(o)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	u := w.Stop()
	if len(u.Processes) != len(o.Processes) || len(u.Cgroups) != len(o.Cgroups) || len(u.Processes) == 0 {
		t.Errorf("watched %v and %v of %+v: %v", u.Processes, u.Cgroups, o, u.Missing)
	}
}

// TestAsked proves that what links were asked for is held against what probes saw: as it should be,
// and where somebody has changed a link beneath.
func TestAsked(t *testing.T) {
	t.Parallel()
	needs(t, "iperf3")
	i, probes := bring(t, `
topology: linear,2
lab: {datapath: bridge, controller: none, links: {delay: 10ms, bandwidth: 20mbit}}
probes:
  - ping: {from: h1, to: h2, count: 5, interval: 20ms}
  - iperf3: {from: h1, to: h2, time: 4s}
`)
	links := func(p string) environment.LinkCheck {
		o, _ := run(t, i, probes[p])
		if len(o.Links) != 1 || len(o.Drops) > 0 {
			t.Fatalf("%s: %+v, %+v", p, o.Links, o.Drops)
		}
		return o.Links[0]
	}
	if c := links("ping"); c.AskedDelay != 60*time.Millisecond || c.GivenDelay < 59*time.Millisecond || c.Sent != 5 || !strings.Contains(c.Link, "h1-s1-s2-h2") {
		t.Errorf("%+v", c)
	}
	c := links("iperf3")
	for try := 0; c.GivenRate < 0.5*c.AskedRate && try < 10; try++ { // a busy machine may not send as much
		c = links("iperf3")
	}
	if c.AskedRate != 20e6 || c.GivenRate < 0.5*c.AskedRate || c.GivenRate > 1.05*c.AskedRate {
		t.Errorf("%+v", c)
	}
	own := i.(*instance).lab.(*ownLab)
	if err := own.client.SetLink(context.Background(), lab.LinkRequest{A: "s1", B: "s2", Change: []string{"delay=50ms"}}); err != nil {
		t.Fatal(err)
	}
	c = links("ping")
	v := environment.Judge(environment.Evidence{Usage: &environment.Usage{Looks: 1}, Links: []environment.LinkCheck{c}}, environment.DefaultLimits)
	if c.GivenDelay < 140*time.Millisecond || v.Level != environment.Bad {
		t.Errorf("%+v, %+v", c, v)
	}
}

// TestEvents proves that events happen: a link goes down, a program runs in a node, a host dies;
// and that what cannot is told.
func TestEvents(t *testing.T) {
	t.Parallel()
	i, probes := bring(t, `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes:
  - ping: {from: h1, to: h2, count: 1}
  - command: {name: file, run: "ls DIR", metric: x, unit: "1", match: "([0-9]+)"}
schedule:
  - "at 1s: s1 -- s2 down"
  - "at 1s: h1 run exit 3"
  - "at 1s: kill h1"
  - "at 1s: kill s2"
`)
	events := i.(*instance).cell.Schedule
	received := func() float64 {
		o, err := i.Run(context.Background(), probes["ping"], time.Now(), func() {})
		if err != nil {
			t.Fatal(err)
		}
		return 1 - valuesOf(o)["loss h1 h2"][0]
	}
	do := func(n int) error { return i.Do(context.Background(), events[n]) }
	if got := received(); got != 1 {
		t.Fatalf("before: %v", got)
	}
	if err := do(0); err != nil || received() != 0 {
		t.Errorf("a link that is down: %v", err)
	}
	if err := do(1); err == nil || err.Error() != "exit 3" {
		t.Errorf("a program that fails: %v", err)
	}
	hanging := make(chan error, 1)
	own := i.(*instance).lab
	b := &bed{nodes: own}
	stop, err := b.serve(context.Background(), "h1", "ready", io.Discard, "sh", "-c", "echo ready; sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		hanging <- own.run(context.Background(), "h1", []string{"sleep", "1000"}, nil, os.Stdout, os.Stderr)
	}()
	sleeping := func() []int { return running(own.(*ownLab), "h1", "sleep") }
	// until it is in the group
	until.True(t, "both are in the group", func() bool { return len(sleeping()) >= 2 })
	if err := do(2); err != nil {
		t.Error(err)
	}
	var code *exitError
	if err := <-hanging; !errors.As(err, &code) || *code != 137 {
		t.Errorf("a program in a host that dies: %v", err)
	}
	stop()
	if err := do(3); err != nil {
		t.Errorf("a switch that dies: %v", err)
	}
	if err := i.Do(context.Background(), experiment.Event{Kill: "controller"}); err == nil || !strings.Contains(err.Error(), "process of its own") {
		t.Errorf("a controller that is none: %v", err)
	}
}

// TestFails proves that a lab that cannot be brought up leaves nothing, that a probe whose program
// fails says why, and that one that does not end is ended with all that it has started.
func TestFails(t *testing.T) {
	t.Parallel()
	i, probes := bring(t, `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes:
  - command: {name: wrong, node: h1, run: "echo no such thing >&2; exit 4", metric: x, unit: s, match: "([0-9]+)"}
  - command: {name: none, run: "echo nothing", metric: x, unit: s, match: "([0-9]+) s"}
  - command: {name: text, run: "echo nothing", metric: x, unit: s, match: "(no)"}
  - command: {name: key, run: 'echo "{}"', metric: x, unit: s, path: a.b}
  - command: {name: hangs, node: h1, run: "sleep 1000 & sleep 1000", metric: x, unit: s, match: "([0-9]+)"}
  - command: {name: here, run: "sleep 1000 & sleep 1000", metric: x, unit: s, match: "([0-9]+)"}
`)
	for name, want := range map[string]string{"wrong": "no such thing", "none": "is not in what", "text": "is not a number", "key": `no "a" of a.b`} {
		if _, err := i.Run(context.Background(), probes[name], time.Now(), func() {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"hangs", "here"} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		if _, err := i.Run(ctx, probes[name], time.Now(), func() {}); err == nil {
			t.Errorf("%s ended well", name)
		}
		cancel()
	}
	until.True(t, "nothing in h1 goes on", func() bool { return len(running(i.(*instance).lab.(*ownLab), "h1", "")) == 0 })
}

// TestNotUp proves that a lab that does not come up is a failure with its reason, and leaves
// nothing: a node's start command fails, or nobody listens where the controller should.
func TestNotUp(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it brings up a lab")
	}
	for want, text := range map[string]string{
		"exit status 7": "topology: {nodes: {h1: {host: {start: exit 7}}, h2: host}, links: [h1 -- h2]}\nprobes: [ping: {from: h1, to: h2}]\n",
		"127.0.0.1:1":   "topology: linear,2\nlab: {datapath: embedded, controller: 'tcp:127.0.0.1:1'}\nprobes: [ping: {from: h1, to: h2}]\n",
	} {
		p := planOf(t, text)
		prefix, _ := PrefixOf(filepath.Join(t.TempDir(), "result"))
		d := &Driver{Prefix: prefix, Wait: 200 * time.Millisecond}
		if i, err := d.Up(context.Background(), &p.Cells[0]); i != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v", i, err)
		}
		if left, err := d.Clean(context.Background()); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", want, left, err)
		}
	}
}

// TestCheck proves that what this build does not have is told before anything runs.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"lab: {target: moon}": "this build has local, sites and mininet",
		"lab: {target: mininet, datapath: embedded, controller: none}": "datapath: ovs or datapath: bridge",
		"lab: {target: mininet, datapath: ovs, controller: trivet}":    "learning switches only",
		"lab: {isolate: 4000}":                    "isolate: processor 4000 is not among",
		"lab: {pin_nodes: 0,pin_datapath: 4000}":  "pin datapath: processor 4000 is not among",
		"lab: {controller: 'ssl:127.0.0.1:7000'}": "controller_packets: packets on their way to ssl:127.0.0.1:7000 cannot be counted",
	} {
		e, problems := experiment.Read("x.yaml", []byte("topology: linear,2\nprobes: [[ping: {from: h1, to: h2}, controller_packets: {time: 1s}]]\n"+text+"\n"), Vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		p, _ := e.Plan()
		if err := Check(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestLeftOut proves, on a machine without them, that a controller, a datapath, Mininet, D-ITG or a
// processor which is not there costs an experiment its level or probe, with what to do about it;
// and that an experiment is refused which is left with nothing, or with a mistake.
func TestLeftOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("TRIVET_CONTROLLERS", t.TempDir())
	plan := func(text string) *experiment.Plan {
		e, problems := experiment.Read("x.yaml", []byte("topology: linear,2\n"+text), Vocabulary())
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		p, _ := e.Plan()
		return p
	}
	for text, want := range map[string][]string{
		"lab: {controller: '${c}', datapath: embedded}\nfactors: {c: [trivet, faucet]}\nprobes: [ping: {from: h1, to: h2}]":               {"c=faucet (1 of 2 runs): faucet is not installed:  "},
		"lab: {target: '${on}', datapath: bridge, controller: none}\nfactors: {on: [local, mininet]}\nprobes: [ping: {from: h1, to: h2}]": {"on=mininet (1 of 2 runs): ", "is not installed:  apt install "},
		"lab: {pin_nodes: '${on}', datapath: bridge, controller: none}\nfactors: {on: [none, 4000]}\nprobes: [ping: {from: h1, to: h2}]":  {"on=4000 (1 of 2 runs): pin nodes: processor 4000 is not among"},
		"probes: [ping: {from: h1, to: h2}, ditg: {from: h1, to: h2, rate: 100}]":                                                         {"probe ditg (1 of 1 run): ditg: ITGSend is not installed:  scripts/bootstrap --test"},
	} {
		p := plan(text)
		if err := Check(p); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		got := strings.Join(p.MissingText(), "\n")
		for _, w := range want {
			if len(p.LeftOut) != 1 || !strings.Contains(got, w) {
				t.Errorf("%s: %q, want %q", text, got, w)
			}
		}
	}
	for text, want := range map[string]string{
		"lab: {controller: faucet, datapath: embedded}\nprobes: [ping: {from: h1, to: h2}]":                                              "all of it: faucet is not installed",
		"lab: {controller: '${c}', target: mininet, datapath: bridge}\nfactors: {c: [none, trivet]}\nprobes: [ping: {from: h1, to: h2}]": "learning switches only",
	} {
		if err := Check(plan(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestLacking proves that of several things that a machine lacks each is told by itself, with what
// to do about it, also where a topology says it; and once for all cells that it costs.
func TestLacking(t *testing.T) {
	err := errors.Join(lack.New("pox is not installed", ":  ", "git clone pox"), topology.Problems{{Message: "link a", Hint: "take it"}}, errors.New("no core 4"))
	var left leftOut
	left.add(err, "a", "")
	left.add(err, "b", "")
	want := leftOut{{Why: "pox is not installed", Hint: "git clone pox"}, {Why: "link a", Hint: "take it"}, {Why: "no core 4"}}
	for i := range want {
		want[i].Cells = []string{"a", "b"}
	}
	if !reflect.DeepEqual(left, want) || !strings.HasPrefix(err.Error(), "pox is not installed:  git clone pox\nlink a; take it\n") {
		t.Errorf("%+v of %q", left, err)
	}
}

// TestDrops proves that packets dropped at a port are told with how many came there, and that those
// of ports where a queue may be full are told apart; that what sockets had no room for is the
// kernel's.
func TestDrops(t *testing.T) {
	p := planOf(t, "topology: linear,2\nlab: {datapath: bridge, controller: none, change: [h2 -- s2 bandwidth=1mbit]}\nprobes: [ping: {from: h1, to: h2}]\n")
	top, problems := p.Cells[0].Lab.Resolve("", lab.Defaults)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	expect := func(before, after map[string]counters.Port, want ...environment.Drops) {
		t.Helper()
		if got := environment.DropsBetween(portDrops(top, before), portDrops(top, after)); !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	before, after := map[string]counters.Port{}, map[string]counters.Port{}
	for _, node := range []string{"h1", ""} {
		counters.ParseDevices("Inter-|   Receive\n face |bytes packets\n  h1-eth0: 1 2 0 7 0 0 0 0 10 100 0 1 0 0 0 0\n s2-eth1: 1 2 0 0 0 0 0 0 10 100 0 0 0 0 0 0\n", node, before)
		counters.ParseDevices("  h1-eth0: 1 2 0 99 0 0 0 0 10 190 0 11 0 0 0 0\n s2-eth1: 1 2 0 0 0 0 0 0 10 100 0 50 0 0 0 0\n", node, after)
	}
	expect(before, after, environment.Drops{Where: "port h1-eth0", Packets: 10, Of: 100}, environment.Drops{Where: "port s2-eth1", Packets: 50, Of: 50, Expected: true})
	before, after = map[string]counters.Port{}, map[string]counters.Port{}
	for node := range map[string]bool{"h1": true, "h2": true} {
		counters.ParseKernel("Ip: OutRequests OutDiscards\nIp: 100 0\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 10 1 2 3 0\nUdp6SndbufErrors   1\n", node, before)
		counters.ParseKernel("Ip: OutRequests OutDiscards\nIp: 196 4\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 100 1 2 3 10\nUdp6SndbufErrors  3\n", node, after)
	}
	expect(before, after, environment.Drops{Where: "kernel of h1: IpOutDiscards", Packets: 4, Of: 100}, environment.Drops{Where: "kernel of h1: Udp6SndbufErrors", Packets: 2},
		environment.Drops{Where: "kernel of h1: UdpRcvbufErrors", Packets: 10, Of: 100},
		environment.Drops{Where: "kernel of h2: IpOutDiscards", Packets: 4, Of: 100, Expected: true}, environment.Drops{Where: "kernel of h2: Udp6SndbufErrors", Packets: 2, Expected: true},
		environment.Drops{Where: "kernel of h2: UdpRcvbufErrors", Packets: 10, Of: 100})
	for _, l := range top.Links { // hosts may call their devices the same
		for i := range l.Ends {
			if strings.HasPrefix(l.Ends[i].Node, "h") {
				l.Ends[i].Interface = "eth0"
			}
		}
	}
	before, after = map[string]counters.Port{}, map[string]counters.Port{}
	for node, dropped := range map[string]string{"h1": "5", "h2": "0", "": "9"} { // that of "" is none of the lab's
		counters.ParseDevices(" eth0: 1 2 0 0 0 0 0 0 10 100 0 0 0 0 0 0\n", node, before)
		counters.ParseDevices(" eth0: 1 2 0 0 0 0 0 0 10 145 0 "+dropped+" 0 0 0 0\n", node, after)
	}
	expect(before, after, environment.Drops{Where: "port eth0 of h1", Packets: 5, Of: 50})
}

// TestMininetErrors proves that what Mininet calls an error and goes on after is told once, and
// that a warning of tc is none.
func TestMininetErrors(t *testing.T) {
	if err := mininetErrors("h1 h2\n*** Error: Warning: sch_htb: quantum\n\n"); err != nil {
		t.Error(err)
	}
	err := mininetErrors("*** Error: Error: Specified qdisc kind is unknown.\n*** Error: Error: Specified qdisc kind is unknown.\n")
	if err == nil || err.Error() != "*** Error: Error: Specified qdisc kind is unknown." {
		t.Error(err)
	}
}

// TestMininetQueues proves that Mininet is given the queues that it can manage, and that others,
// and what it does not do to packets, are refused.
func TestMininetQueues(t *testing.T) {
	of := func(i topology.Impairment) *topology.Topology {
		return &topology.Topology{Links: []*topology.Link{{Ends: [2]topology.Endpoint{{Node: "h1"}, {Node: "h2"}}, Impairment: i}}}
	}
	codel, err := topology.ParseQueue("codel")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		asked topology.Impairment
		want  string
	}{
		{topology.Impairment{Bandwidth: 1e7, Queue: topology.Queue{Limit: 9}}, "map[bw:10 max_queue_size:9]"},
		{topology.Impairment{Bandwidth: 1e7, Queue: topology.MininetRED(true)}, "map[bw:10 enable_ecn:true]"},
		{topology.Impairment{Bandwidth: 1e7, Queue: topology.MininetRED(false)}, "map[bw:10 enable_red:true]"},
		{topology.Impairment{Bandwidth: 1e7, Queue: codel}, "not by codel as h1-h2 has it"},
		{topology.Impairment{Duplicate: 0.1}, "no duplicate 10%, but h1-h2 has it"},
	} {
		got := fmt.Sprint(mininetImpairment(c.asked))
		if err := checkMininet(of(c.asked)); err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%+v: %s, want %s", c.asked, got, c.want)
		}
	}
}

// TestTraceroute proves that lines of traceroute are read, also where a hop is silent or answers by
// two addresses.
func TestTraceroute(t *testing.T) {
	hops := readTraceroute("traceroute to 10.0.3.2 (10.0.3.2), 30 hops max, 60 byte packets\n 1  10.0.1.1  0.500 ms  0.250 ms *\n 2  * * *\n10  10.0.3.9  1 ms 10.0.3.2  2 ms  3 ms\n")
	if len(hops) != 3 || hops[0].address.String() != "10.0.1.1" || !slices.Equal(hops[0].rtt, []float64{0.0005, 0.00025}) || hops[1].address.IsValid() || hops[1].number != 2 || hops[2].number != 10 || len(hops[2].rtt) != 3 {
		t.Errorf("%+v", hops)
	}
}

// TestCrosses proves that hops are a way's only where each node of it answered in its turn, by any
// of its addresses, and nobody else.
func TestCrosses(t *testing.T) {
	at := func(node string, addresses ...string) (e topology.Endpoint) {
		e.Node = node
		for _, a := range addresses {
			e.Addresses = append(e.Addresses, netip.MustParsePrefix(a))
		}
		return e
	}
	net := &topology.Topology{
		Nodes: []*topology.Node{{Name: "r2", Loopback: []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}}},
		Links: []*topology.Link{{Ends: [2]topology.Endpoint{at("h1", "10.0.1.2/24"), at("r1", "10.0.1.1/24")}},
			{Ends: [2]topology.Endpoint{at("r1", "10.0.2.1/24"), at("r2", "10.0.2.2/24")}},
			{Ends: [2]topology.Endpoint{at("r2", "10.0.3.1/24"), at("h2", "10.0.3.2/24")}}},
	}
	for way, lines := range map[string]map[string]bool{
		"r1 r2 h2": {"10.0.1.1 10.0.2.2 10.0.3.2": true, "10.0.2.1 10.9.9.9 10.0.3.2": true, "10.0.2.2 10.0.1.1 10.0.3.2": false,
			"10.0.1.1 * 10.0.3.2": false, "10.0.1.1 10.0.3.2": false, "10.0.1.1 10.0.2.2 10.0.2.2 10.0.3.2": false, "10.0.1.1 10.0.2.3 10.0.3.2": false},
		"h2": {"10.0.3.2": true, "10.0.1.1": false},
	} {
		for line, want := range lines {
			var hops []tracedHop
			for i, word := range strings.Fields(line) {
				a, _ := netip.ParseAddr(word)
				hops = append(hops, tracedHop{number: i + 1, address: a})
			}
			if got := crosses(net, hops, strings.Fields(way)); got != want {
				t.Errorf("%s by %s: %v", way, line, got)
			}
		}
	}
	if err := fitsWay(net, experiment.Options{"way": "r2, r1", "from": "h1", "to": "h2"}); err == nil || !strings.Contains(err.Error(), "no node r1") {
		t.Errorf("a way over a node that there is not: %v", err) // r1 is in no list of nodes here
	}
}

// TestWay proves on a lab that the way of a traceroute is held against the one that was asked for,
// and that without one nothing is said of it.
func TestWay(t *testing.T) {
	needs(t, "traceroute")
	i, probes := bring(t, `
topology:
  nodes: {'h[1-2]': host, 'r[1-3]': router}
  links: [h1 -- r1 -- r2 -- r3 -- h2]
lab: {datapath: kernel, controller: none}
probes:
  - traceroute: {name: right, from: h1, to: h2, way: "r1, r2, r3"}
  - traceroute: {name: wrong, from: h1, to: h2, way: "r1 r3 r2"}
  - traceroute: {name: silent, from: h1, to: h2}
`)
	for name, want := range map[string][]float64{"right": {1}, "wrong": {0}, "silent": nil} {
		_, v := run(t, i, probes[name])
		for try := 0; v["hops h1 h2"][0] != 4 && try < 10; try++ { // a kernel answers a burst of six, then one a second
			time.Sleep(3 * time.Second)
			_, v = run(t, i, probes[name])
		}
		if !slices.Equal(v["way h1 h2"], want) || v["hops h1 h2"][0] != 4 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// FuzzPrograms proves that no text of a program leads to anything but an error or finite numbers.
func FuzzPrograms(f *testing.F) {
	f.Add(`{"start":{"test_start":{"blksize":1448}},"intervals":[{"sum":{"start":0,"bits_per_second":1e9}}],"end":{"sum_received":{"bits_per_second":1e9}}}`, "end.sum")
	f.Add(" 1  10.0.0.1  0.3 ms", "a.0.b")
	f.Add("face: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", "")
	f.Fuzz(func(t *testing.T, text, path string) {
		readTraceroute(text)
		counters.ParseDevices(text, "h1", map[string]counters.Port{})
		counters.ParseKernel(text, "h1", map[string]counters.Port{})
		_, _ = numberAt([]byte(text), path)
		if r, err := readIperf([]byte(text)); err == nil {
			s := result.Sample{Probe: "iperf3", Measurements: r.measurements("h1", "h2", true, 0)}
			if err := s.Check(); err != nil && !strings.Contains(err.Error(), "is +Inf") {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
