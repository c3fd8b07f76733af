package drive

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/ping"
)

const echoLab = `
topology:
  nodes: {r1: router, r2: router, r3: router, 'h[1-6]': host}
  links: [r1 -- r2 -- r3, "r1 -- h[1-3]", "r2 -- h[4-5]", r3 -- h6]
lab: {datapath: embedded}
probes: [controller_echo: {clients: CLIENTS, count: 40, interval: 2ms}]
`

// TestControllerEcho proves that clients are hosts of different routers as far as there are such,
// that each has its delay, its link's, and what is between them, that the mean is theirs, and that
// packets to routers come to the controller, while those of links do not.
func TestControllerEcho(t *testing.T) {
	i, probes := bring(t, strings.Replace(echoLab, "CLIENTS", "3", 1))
	echoes := func() (n uint64) {
		s, err := i.(*instance).lab.(*ownLab).client.Controller().Statistics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.PacketsIn {
			if p.Protocol == "icmp" {
				n += p.Packets
			}
		}
		return n
	}
	before := echoes()
	o, v := run(t, i, probes["controller_echo"])
	if asked := echoes() - before; asked < 3*40 || asked >= 3*40+3*10 { // with those that do not count
		t.Errorf("%d echoes came to the controller, of 120 to routers and 30 by flow entries", asked)
	}
	var times []float64
	for _, who := range []string{"h1 r1", "h4 r2", "h2 r1"} {
		packet, link, of := v["packet_delay "+who], v["link_delay "+who], v["controller_time "+who]
		if len(packet) != 1 || len(link) != 1 || len(of) != 1 || link[0] <= 0 || packet[0] <= link[0] || math.Abs(packet[0]-link[0]-of[0]) > 1e-12 {
			t.Fatalf("%s: %v", who, v)
		}
		times = append(times, of[0])
	}
	if got := v["controller_time_mean"]; len(got) != 1 || math.Abs(got[0]-(times[0]+times[1]+times[2])/3) > 1e-12 {
		t.Errorf("the mean of %v is %v", times, got)
	}
	var details map[string]any
	if err := json.Unmarshal(o.Details, &details); err != nil || details["sent"] != 120.0 || details["link_sent"] != 30.0 || details["cluster"] != nil {
		t.Errorf("%s: %v", o.Details, err)
	}
}

// TestControllerEchoFits proves that an experiment with more clients than hosts can be is refused
// before it begins: a host that is alone at its router is none.
func TestControllerEchoFits(t *testing.T) {
	planOf(t, strings.Replace(echoLab, "CLIENTS", "5", 1)) // or it fails
	e, problems := experiment.Read("x.yaml", []byte(strings.Replace(echoLab, "CLIENTS", "6", 1)), Vocabulary())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p, _ := e.Plan()
	if err := Check(p); err == nil || !strings.Contains(err.Error(), "the lab has 5 hosts that can be one") {
		t.Error(err)
	}
}

// TestControllerTimes proves what becomes of clients without answers: they are not in the mean,
// their packets are lost, and the verdict says so; and that medians are compared.
func TestControllerTimes(t *testing.T) {
	pair := func(from string, sent int, ms ...float64) ping.PairResult {
		return ping.PairResult{From: from, To: "r", Sent: sent, Received: len(ms), RTT: ms}
	}
	answers := lab.PingResult{Sent: 9, Received: 5, Pairs: []ping.PairResult{pair("a", 3, 2, 3, 50), pair("b", 3), pair("c", 3, 5, 5)}}
	links := lab.PingResult{Sent: 3, Received: 3, Pairs: []ping.PairResult{pair("a", 1, 1), pair("b", 1, 1), pair("c", 1, 2)}}
	out, reasons := controllerTimes(answers, links)
	find := func(metric string) result.Measurement {
		return out[slices.IndexFunc(out, func(m result.Measurement) bool { return m.Metric == metric })]
	}
	if got := find("controller_time_mean").Values[0]; math.Abs(got-0.0025) > 1e-12 {
		t.Errorf("the mean of 2 and 3 ms is %v s", got)
	}
	if loss := find("loss"); loss.Count != 4 || loss.Of != 9 {
		t.Errorf("%+v", loss)
	}
	if len(reasons) != 1 || !strings.Contains(reasons[0].Text, "1 of 3 clients") {
		t.Errorf("%v", reasons)
	}
}
