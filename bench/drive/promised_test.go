package drive

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/ditg"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// inLab is a probe's bed in a lab that is not there: h1 – s1 – h2, of whose second link the text
// says more.
func inLab(t *testing.T, link string, o experiment.Options) *bed {
	t.Helper()
	lab, problems := trivet.Read("", []byte("nodes: {s1: switch, h1: host, h2: host}\nlinks: [h1 -- s1, s1 -- h2: {"+link+"}]\n"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lab, problems = topology.Resolve(lab, topology.Defaults{Controller: topology.ControllerNone})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	o["from"], o["to"] = "h1", "h2"
	return &bed{topology: lab, cell: &experiment.Cell{}, options: o, alone: true}
}

// judged is the verdict on checks of links on a machine that has time.
func judged(links []environment.LinkCheck) (level environment.Level, codes []string) {
	calm := &environment.Usage{Seconds: 1, Looks: 5, Interval: 0.2, LongestGap: 0.2, Processors: 2, Busy: 0.1}
	v := environment.Judge(environment.Evidence{Usage: calm, Links: links}, environment.DefaultLimits)
	for _, r := range v.Reasons {
		codes = append(codes, r.Code)
	}
	return v.Level, codes
}

// TestStreamPromised proves what a stream of packets says of what links were asked for: copies,
// order, losses and delays count where they were not asked for, and do not where they were; nothing
// is held against a stream that fills a link, but copies and order.
func TestStreamPromised(t *testing.T) {
	delays := func(ms func(i int) float64) (all []packets.Point) {
		for i := range 1000 {
			all = append(all, packets.Point{Value: ms(i) / 1e3})
		}
		return all
	}
	alike := delays(func(int) float64 { return 0.1 })
	half := delays(func(i int) float64 { return 0.1 + float64(i%2)*5 })
	stalled := delays(func(i int) float64 { return 0.1 + 80*float64(i/900) })
	for _, c := range []struct {
		name, link string
		tally      packets.Tally
		rate       float64
		level      environment.Level
		codes      []string
	}{
		{"as it should be", "", packets.Tally{Received: 1000, Delays: alike}, 1000, environment.Good, nil},
		{"lost", "", packets.Tally{Received: 985, Delays: alike}, 1000, environment.Bad, []string{"drops"}},
		{"lost as asked", "loss: 1.5%", packets.Tally{Received: 985, Delays: alike}, 1000, environment.Good, nil},
		{"lost as what is damaged", "corrupt: 1.5%", packets.Tally{Received: 985, Delays: alike}, 1000, environment.Good, nil},
		{"more lost than asked", "loss: 1.5%", packets.Tally{Received: 900, Delays: alike}, 1000, environment.Bad, []string{"link-loss"}},
		{"lost, where losses depend on each other", "loss: 1%, loss_correlation: 50%", packets.Tally{Received: 900, Delays: alike}, 1000, environment.Good, nil},
		{"lost where a link overflows", "bandwidth: 1mbit", packets.Tally{Received: 700, Delays: alike}, 10000, environment.Good, nil},
		{"twice", "", packets.Tally{Received: 1000, Duplicates: 199, Delays: alike}, 1000, environment.Bad, []string{"link-duplicates"}},
		{"twice as asked", "duplicate: 20%", packets.Tally{Received: 1000, Duplicates: 199, Delays: alike}, 1000, environment.Good, nil},
		{"twice where a link overflows", "bandwidth: 1mbit", packets.Tally{Received: 1000, Duplicates: 199, Delays: alike}, 10000, environment.Bad, []string{"link-duplicates"}},
		{"overtaken", "", packets.Tally{Received: 1000, Reordered: 300, Delays: alike}, 1000, environment.Bad, []string{"link-order"}},
		{"overtaken as asked", "delay: 5ms, reorder: 30%", packets.Tally{Received: 1000, Reordered: 300, Delays: delays(func(int) float64 { return 5 })}, 1000, environment.Good, nil},
		{"half late", "", packets.Tally{Received: 1000, Delays: half}, 1000, environment.Doubtful, []string{"link-late"}},
		{"half late, where the delay varies", "delay: 2ms, jitter: 2ms", packets.Tally{Received: 1000, Delays: delays(func(i int) float64 { return float64(i%2) * 4 })}, 1000, environment.Good, nil},
		{"late as the machine stalled once", "", packets.Tally{Received: 1000, Delays: stalled}, 1000, environment.Good, nil},
	} {
		b := inLab(t, c.link, experiment.Options{})
		x := exchange{asked: packets.Send{Size: 64, Rate: c.rate}, sent: &packets.Sent{Sent: 1000}, got: &packets.Received{Tally: c.tally}}
		if level, codes := judged(b.checkStream(x)); level != c.level || !slices.Equal(codes, c.codes) {
			t.Errorf("%s: %s %v, want %s %v", c.name, level, codes, c.level, c.codes)
		}
	}
}

// TestDatagramsPromised proves that losses of iperf3 and D-ITG over UDP, and delays that vary,
// speak against a figure where the links were not asked for them, and no losses where more is
// offered than the narrowest link carries.
func TestDatagramsPromised(t *testing.T) {
	for _, c := range []struct {
		name, link, rate string
		length           int
		lost             int
		jitter           float64 // ms
		level            environment.Level
	}{
		{"nothing lost", "", "1mbit", 1448, 0, 0.01, environment.Good},
		{"15 of 1,726 lost", "", "1mbit", 1448, 15, 0.01, environment.Bad},
		{"as many lost as asked", "loss: 1%", "1mbit", 1448, 15, 0.01, environment.Good},
		{"as many lost as fragments are", "loss: 1%", "1mbit", 4300, 50, 0.01, environment.Good},
		{"more lost than asked", "loss: 1%", "1mbit", 1448, 100, 0.01, environment.Bad},
		{"lost where more is sent than goes through", "bandwidth: 1mbit", "2mbit", 1448, 800, 5, environment.Good},
		{"lost where a short queue may not hold a burst", "bandwidth: 1mbit, queue: 10", "700kbit", 1448, 15, 5, environment.Good},
		{"lost where there was room", "bandwidth: 10mbit", "1mbit", 1448, 15, 1.1, environment.Bad},
		{"half late", "", "1mbit", 1448, 0, 2.5, environment.Doubtful},
		{"late as asked", "delay: 2ms, jitter: 2ms", "1mbit", 1448, 0, 2.5, environment.Good},
	} {
		b := inLab(t, c.link, experiment.Options{"protocol": "udp", "bitrate": c.rate, "parallel": "1"})
		r, err := readIperf(fmt.Appendf(nil, `{"start": {"tcp_mss_default": 1448, "test_start": {"blksize": %d}}, "end": {"sum": {"packets": 1726, "lost_packets": %d, "jitter_ms": %v}}}`, c.length, c.lost, c.jitter))
		if err != nil {
			t.Fatal(err)
		}
		if level, codes := judged(b.checkDatagrams("h1", "h2", r)); level != c.level {
			t.Errorf("iperf3, %s: %s %v, want %s", c.name, level, codes, c.level)
		}
		if c.length > 1500 {
			continue
		}
		pps := map[string]string{"1mbit": "85", "2mbit": "170", "700kbit": "60"}[c.rate]
		test := &ditgTest{bed: inLab(t, c.link, experiment.Options{"protocol": "udp", "rate": pps, "size": "1448"}), from: "h1", to: "h2", flows: 1}
		got := ditg.Summary{Packets: 1726 - c.lost, DelayMin: 0.1e-3, Delay: 0.1e-3 + c.jitter/1e3}
		if level, codes := judged(test.checkFlows(ditg.Summary{Packets: 1726}, got, 0)); level != c.level {
			t.Errorf("ditg, %s: %s %v, want %s", c.name, level, codes, c.level)
		}
	}
}

// TestBrokenMeanwhile proves that what breaks after a lab was verified, behind its back, stands
// against the figures of each probe that crosses it: a loss, copies.
func TestBrokenMeanwhile(t *testing.T) {
	needs(t, "iperf3", "ITGSend", "nft")
	one, probes := bring(t, `
topology:
  nodes: {s1: switch, h1: host, h2: host}
  links: [h1 -- s1, s1 -- h2]
lab: {datapath: bridge, controller: none}
probes:
  - packets: {from: h1, to: h2, time: 1s, rate: 1000}
  - iperf3: {from: h1, to: h2, time: 1s, protocol: udp, bitrate: 4mbit}
  - ditg: {from: h1, to: h2, time: 1s, rate: 500}
  - ping: {from: h1, to: h2, count: 200, interval: 2ms}
`)
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	nft := func(command string) error {
		return one.(*instance).lab.run(ctx, "h1", []string{"nft", command}, nil, io.Discard, io.Discard)
	}
	if err := nft("add table netdev x; add chain netdev x c { type filter hook egress device h1-eth0 priority 0; }; add rule netdev x c meta length > 60 numgen inc mod 10 == 0 drop"); err != nil {
		t.Skip("the kernel's nftables cannot drop each tenth packet: ", err)
	}
	for _, name := range []string{"packets", "iperf3", "ditg", "ping"} {
		o, _ := run(t, one, probes[name])
		if level, codes := judged(o.Links); level != environment.Bad || !slices.Contains(codes, "drops") {
			t.Errorf("%s, of whose packets a tenth is lost: %s %v: %+v", name, level, codes, o.Links)
		}
	}
	if err := nft("flush chain netdev x c; add rule netdev x c meta length > 60 numgen inc mod 10 == 0 dup to h1-eth0"); err != nil {
		t.Skip("the kernel's nftables cannot duplicate: ", err)
	}
	o, _ := run(t, one, probes["packets"])
	if level, codes := judged(o.Links); level != environment.Bad || !slices.Contains(codes, "link-duplicates") {
		t.Errorf("a tenth comes twice: %s %v: %+v", level, codes, o.Links)
	}
}
