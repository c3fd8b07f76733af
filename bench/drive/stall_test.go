package drive

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/topology"
)

// TestStood proves how long nothing came by what iperf3's server prints, of several streams, both
// ways at once, and where the server itself stood still; that what is short does not count; and
// that neither its summary nor what it sends is taken for something received.
func TestStood(t *testing.T) {
	line := func(stream, role string, from, to float64, amount string) string {
		return fmt.Sprintf("[%3s]%s   %.2f-%.2f   sec  %s  1.18 Gbits/sec\n", stream, role, from, to, amount)
	}
	var sender, receiver, both strings.Builder
	for i := range 40 {
		from := float64(i) / 10
		amount := "68.9 MBytes"
		if i >= 10 && i < 30 || i == 35 {
			amount = "0.00 Bytes"
		}
		sender.WriteString(line("5", "", from, from+0.1, amount))
		both.WriteString(line("5", "[RX-S]", from, from+0.1, "0.00 Bytes") + line("8", "[RX-S]", from, from+0.1, amount) +
			line("SUM", "[RX-S]", from, from+0.1, "1.00 MBytes") + line("11", "[TX-S]", from, from+0.1, "1.00 MBytes"))
	}
	sender.WriteString("- - - -\n" + strings.TrimSpace(line("5", "", 0, 4.04, "1 GBytes")) + "                  receiver\n")
	receiver.WriteString(line("5", "", 0, 0.1, "1 MBytes") + line("5", "", 0.1, 2.25, "1 MBytes") + line("5", "", 2.25, 2.35, "1 MBytes"))
	for name, c := range map[string]struct {
		text string
		want float64
	}{
		"a sender that stands still": {sender.String(), 2}, "both ways": {both.String(), 2}, "a receiver that stands still": {receiver.String(), 2.05}, "nothing": {"", 0},
	} {
		var r iperfIntervals
		for part := range slices.Chunk([]byte(c.text), 7) { // as it comes
			_, _ = r.Write(part)
		}
		if got := stood(r.all, leastStall); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
	for still, want := range map[float64]environment.Level{0.35: environment.Doubtful, 2: environment.Bad} {
		if r := stalls(still, 10); len(r) != 1 || r[0].Level != want || r[0].Code != "stall" {
			t.Errorf("%v of 10 s: %+v", still, r)
		}
	}
}

// echoes is nodes that note which pings they are asked for.
type echoes struct {
	nodes
	asked []lab.PingRequest
}

func (e *echoes) ping(_ context.Context, r lab.PingRequest) (lab.PingResult, error) {
	e.asked = append(e.asked, r)
	rtt := make([]float64, r.Count)
	for i := range rtt {
		rtt[i] = float64(len(e.asked)) // ms: the first echoes are told from those that count
	}
	return lab.PingResult{Pairs: []ping.PairResult{{From: "h1", To: "h2", Sent: r.Count, Received: r.Count, RTT: rtt}}}, nil
}

// TestPingWarmUp proves that an echo goes before those that count, and that it counts for nothing;
// and that it can be left out.
func TestPingWarmUp(t *testing.T) {
	for warm, want := range map[string][]int{"true": {1, 3}, "false": {3}} {
		e := &echoes{}
		b := &bed{nodes: e, cell: &experiment.Cell{}, topology: &topology.Topology{}, options: experiment.Options{"from": "h1", "to": "h2", "count": "3", "size": "56", "warm_up": warm}}
		o, err := pings(t.Context(), b)
		var counts []int
		for _, r := range e.asked {
			counts = append(counts, r.Count)
		}
		v := valuesOf(o)
		if err != nil || !slices.Equal(counts, want) || len(v["rtt h1 h2"]) != 3 || v["rtt h1 h2"][0] != float64(len(want))/1e3 || o.Measurements[1].Of != 3 {
			t.Errorf("warm_up %s: asked for %v, %v, %v", warm, counts, o.Measurements, err)
		}
	}
}

// TestLeastStill proves where silence says nothing: where packets are lost or something happens,
// and for as long as a window or a slow stream takes.
func TestLeastStill(t *testing.T) {
	for _, c := range []struct {
		link  topology.Impairment
		apart time.Duration
		alone bool
		event bool
		want  time.Duration
	}{
		{topology.Impairment{}, 0, true, false, leastStall},
		{topology.Impairment{}, time.Second, true, false, 3 * time.Second},
		{topology.Impairment{Delay: topology.Duration(100 * time.Millisecond)}, 0, true, false, 600 * time.Millisecond},
		{topology.Impairment{Bandwidth: 1e6}, 0, true, false, leastStall},
		{topology.Impairment{Bandwidth: 1e6}, 0, false, false, sharedStall},
		{topology.Impairment{Loss: 0.01}, 0, true, false, 0},
		{topology.Impairment{Queue: topology.Queue{Limit: 10}}, 0, true, false, 0},
		{topology.Impairment{}, 0, true, true, 0},
	} {
		b := &bed{cell: &experiment.Cell{}, alone: c.alone, options: experiment.Options{"from": "h1", "to": "h2"}, topology: &topology.Topology{
			Nodes: []*topology.Node{{Name: "h1", Kind: topology.Host}, {Name: "h2", Kind: topology.Host}},
			Links: []*topology.Link{{Ends: [2]topology.Endpoint{{Node: "h1"}, {Node: "h2"}}, Impairment: c.link}}}}
		if c.event {
			b.cell.Schedule = []experiment.Event{{}}
		}
		if got := b.leastStill(c.apart); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestStandsStill proves, on a link without limits, that a receiver or a sender which is stopped
// for a third of the time makes the figure bad, for each probe of throughput.
func TestStandsStill(t *testing.T) {
	t.Parallel()
	needs(t, "iperf3", "ITGSend")
	i, probes := bring(t, `
topology: single,2
lab: {datapath: bridge, controller: none}
probes:
  - iperf3: {from: h1, to: h2, time: 3s}
  - ditg: {from: h1, to: h2, time: 3s, rate: 500}
  - packets: {from: h1, to: h2, time: 3s, rate: 500}
`)
	for _, c := range []struct{ probe, node, program string }{
		{"iperf3", "h2", "iperf3"}, {"iperf3", "h1", "iperf3"}, {"ditg", "h2", "ITGRecv"}, {"ditg", "h1", "ITGSend"}, {"packets", "h1", ""},
	} {
		var reasons []environment.Reason
		bad := func(r environment.Reason) bool { return r.Code == "stall" && r.Level == environment.Bad }
		for tries := 0; !slices.ContainsFunc(reasons, bad) && tries < 5; tries++ { // on a busy machine it may be stopped too late
			ctx, over := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				stopFor(ctx, i, c.node, c.program, 1200*time.Millisecond)
			}()
			o, _ := run(t, i, probes[c.probe])
			over()
			<-ended
			reasons = o.Reasons
		}
		if !slices.ContainsFunc(reasons, bad) {
			t.Errorf("%s, %s stopped in %s: %+v", c.probe, c.program, c.node, reasons)
		}
	}
}

// stopFor stops the youngest process of a program in a node once it has run for a while, and lets
// it go on after a time.
func stopFor(ctx context.Context, i experiment.Instance, node, program string, pause time.Duration) {
	own := i.(*instance).lab.(*ownLab)
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		pids := running(own, node, program)
		if len(pids) == 0 {
			continue
		}
		pid := slices.Max(pids)
		time.Sleep(800 * time.Millisecond)
		if unix.Kill(pid, unix.SIGSTOP) != nil {
			continue
		}
		time.Sleep(pause)
		_ = unix.Kill(pid, unix.SIGCONT)
		return
	}
}

// running are the processes of a program in a node; of all programs, where none is named.
func running(own *ownLab, node, program string) []int {
	return slices.DeleteFunc(own.cgroups.Processes(own.state.Name, node), func(pid int) bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return program != "" && strings.TrimSpace(string(name)) != program
	})
}

// TestTooMuch proves that a receiver which gets more than the narrowest link of its way is asked to
// carry makes the figure bad, for each probe that has a rate, also where it is not alone and where
// the ways are several.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	needs(t, "iperf3", "ITGSend")
	i, probes := bring(t, `
topology:
  nodes: {s1: switch, s2: switch, h1: host, h2: host}
  links: [h1 -- s1, s1 -- s2, s1 -- s2, {s2 -- h2: {bandwidth: 5mbit}}]
lab: {datapath: bridge, controller: none}
probes:
  - [iperf3: {name: tcp, from: h1, to: h2, time: 1s}, ping: {from: h1, to: h2, count: 2}]
  - [iperf3: {name: back, from: h2, to: h1, time: 1s, bidirectional: true}, ping: {name: other, from: h1, to: h2, count: 2}]
  - packets: {from: h1, to: h2, time: 1s, rate: 2000, size: 1400}
  - ditg: {from: h1, to: h2, time: 1s, rate: 2000, size: 1400}
  - convergence: {from: h1, to: h2, time: 1s, interval: 50us}
`)
	own := i.(*instance).lab.(*ownLab)
	if err := own.client.SetLink(context.Background(), lab.LinkRequest{A: "s2", B: "h2", Change: []string{"bandwidth=none"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tcp", "back", "packets", "ditg", "convergence"} {
		var verdict environment.Verdict
		var v map[string][]float64
		for tries := 0; verdict.Level != environment.Bad && tries < 10; tries++ { // on a busy machine who sends may not keep its rate
			o, values := run(t, i, probes[name])
			u := environment.Usage{Looks: 1}
			v, verdict = values, environment.Judge(environment.Evidence{Usage: &u, Links: o.Links}, environment.DefaultLimits)
		}
		if verdict.Level != environment.Bad || !slices.ContainsFunc(verdict.Reasons, func(r environment.Reason) bool { return r.Code == "link-rate" }) {
			t.Errorf("%s: %v is %+v", name, v["throughput h1 h2"], verdict)
		}
	}
}
