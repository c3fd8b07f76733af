package drive

import (
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/floats"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
)

// TestQueue proves that the probe sees a queue that is sent more than its link carries: about as
// much waiting as it holds, in packets, bytes and time, and drops that add up; nothing in the other
// direction; of a link without a queue what its devices drop alone; and that it is held to one link
// where it is named.
func TestQueue(t *testing.T) {
	i, probes := bring(t, `
topology:
  nodes: {s1: switch, 'h[1-2]': host}
  links: [h1 -- s1, s1 -- h2: {bandwidth: 10mbit, queue: 40}]
lab: {datapath: bridge, controller: none}
probes:
  - queue: {time: 1s, interval: 10ms}
  - queue: {name: one, link: h1-s1, time: 100ms}
  - packets: {from: h1, to: h2, time: 3s, rate: 3000, size: 1472}
`)
	sent := make(chan error, 1)
	go func() {
		_, err := i.Run(t.Context(), probes["packets"], time.Now(), func() {})
		sent <- err
	}()
	var v map[string][]float64
	for try := 0; len(v["backlog_max s1 h2"]) == 0 || v["backlog_max s1 h2"][0] < 30; try++ { // the packets begin when they can
		if try == 10 {
			t.Fatalf("a queue of 40 packets is not seen to be full: %v", v)
		}
		_, v = run(t, i, probes["queue"])
	}
	of := func(metric string) float64 { return v[metric][0] }
	if most := of("backlog_max s1 h2"); most > 41 || most != slices.Max(v["backlog s1 h2"]) || of("backlog_mean s1 h2") > most || of("backlog_p99 s1 h2") > most ||
		of("backlog_bytes_max s1 h2") > most*1514 || of("backlog_time_max s1 h2") != of("backlog_bytes_max s1 h2")*8/10e6 {
		t.Errorf("a full queue of 40 packets: %v", v)
	}
	if of("dropped s1 h2") == 0 || of("dropped s1 h2") != floats.Sum(v["dropped_over_time s1 h2"]) || of("drop_ratio s1 h2") <= 0 || of("drop_ratio s1 h2") >= 1 {
		t.Errorf("drops of a full queue: %v", v)
	}
	if of("backlog_max h2 s1") > 1 || of("dropped h2 s1") != 0 {
		t.Errorf("the other direction: %v", v)
	}
	if v["backlog h1 s1"] != nil || of("dropped h1 s1") != 0 {
		t.Errorf("a link without a queue: %v", v)
	}
	if _, v = run(t, i, probes["one"]); v["dropped h1 s1"] == nil || v["dropped s1 h1"] == nil || v["dropped s1 h2"] != nil {
		t.Errorf("of one link: %v", v)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestQueueSums proves that counters that begin anew are added up, that parallel links are told
// apart, and that a queue without a bandwidth has no backlog as time.
func TestQueueSums(t *testing.T) {
	w := queueWatch{all: map[lab.Place]*sampledQueue{}}
	for _, dropped := range []uint64{5, 9, 2} { // 4 more, then 2 since it was made anew
		var links []lab.LinkTraffic
		for _, device := range []string{"s1-eth1", "s1-eth2"} {
			links = append(links, lab.LinkTraffic{Directions: [2]lab.LinkDirection{{
				From: lab.Place{Node: "s1", Interface: device}, To: lab.Place{Node: "s2"},
				Sent: &counters.Traffic{}, Queue: &lab.Backlog{Packets: dropped, Dropped: dropped},
			}}})
		}
		w.look(1, links)
	}
	interfaces := map[string]bool{}
	for _, m := range w.measurements() {
		interfaces[m.Labels["interface"]] = true
		if m.Metric == "dropped" && m.Values[0] != 6 || m.Metric == "backlog_max" && m.Values[0] != 9 || m.Metric == "backlog_time" {
			t.Errorf("%+v", m)
		}
	}
	if len(interfaces) != 2 {
		t.Errorf("parallel links: %v", interfaces)
	}
}
