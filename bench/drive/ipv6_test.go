package drive

import (
	"errors"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
)

// overIPv6 has each probe that can go over IPv6, on a link whose delay and loss of IPv4 alone would
// be seen.
const overIPv6 = `
topology: linear,2
lab: {datapath: DATAPATH, controller: CONTROLLER, target: TARGET, ipv6: assigned}
probes:
  - ping: {from: h1, to: h2, count: 4, interval: 5ms, ipv6: true}
  - ping: {name: each, all: true, count: 2, interval: 5ms, ipv6: true}
  - iperf3: {name: tcp, from: h1, to: h2, time: 1s, bitrate: 5mbit, ipv6: true}
  - iperf3: {name: udp, from: h1, to: h2, time: 1s, protocol: udp, bitrate: 2mbit, ipv6: true}
  - packets: {from: h1, to: h2, time: 500ms, rate: 200, ipv6: true}
  - convergence: {from: h1, to: h2, time: 500ms, interval: 5ms, ipv6: true}
  - flow_setup: {from: h1, to: h2, count: 5, rate: 20, ipv6: true}
  - flow_setup: {name: hosts, from: h1, to: h2, count: 5, rate: 20, new: hosts, ipv6: true}
  - traceroute: {from: h1, to: h2, ipv6: true}
  - ditg: {from: h1, to: h2, time: 500ms, rate: 100, ipv6: true}
`

// TestIPv6 proves that probes go over IPv6 where they are asked to, in Trivet's labs and in
// Mininet's: by the tools' own words, and since IPv4 is taken away from the receiver first.
func TestIPv6(t *testing.T) {
	for _, where := range [][3]string{{"local", "bridge", "none"}, {"local", "embedded", "trivet"}, {"mininet", "bridge", "none"}} {
		t.Run(strings.Join(where[:], " "), func(t *testing.T) {
			t.Parallel()
			needs(t, "iperf3", "traceroute", "ITGSend")
			if where[0] == "mininet" {
				needs(t, "mn", "brctl")
			}
			i, probes := bring(t, strings.NewReplacer("TARGET", where[0], "DATAPATH", where[1], "CONTROLLER", where[2]).Replace(overIPv6))
			b := &bed{nodes: i.(*instance).lab}
			if out, err := b.output(t.Context(), "h2", "ip", "-4", "address", "flush", "dev", "h2-eth0"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_, v := run(t, i, probes["ping"])
			if len(v["rtt h1 h2"]) != 4 || v["loss h1 h2"][0] != 0 {
				t.Errorf("ping: %v", v)
			}
			if _, v = run(t, i, probes["each"]); len(v["rtt h1 h2"]) != 2 || len(v["rtt h2 h1"]) != 2 {
				t.Errorf("each: %v", v)
			}
			for _, name := range []string{"tcp", "udp"} {
				o, v := run(t, i, probes[name])
				if len(v["throughput h1 h2"]) != 1 || v["throughput h1 h2"][0] <= 0 || !strings.Contains(string(o.Details), `"remote_host":"fd00`) {
					t.Errorf("%s: %v\n%s", name, v, o.Details)
				}
			}
			for _, name := range []string{"packets", "convergence", "ditg"} {
				if _, v := run(t, i, probes[name]); len(v["received h1 h2"]) != 1 || v["received h1 h2"][0] < 10 {
					t.Errorf("%s: %v", name, v)
				}
			}
			for _, name := range []string{"flow_setup", "hosts"} {
				if _, v := run(t, i, probes[name]); len(v["flow_setup h1 h2"]) != 5 || v["first_loss h1 h2"][0] != 0 || v["following_loss h1 h2"][0] != 0 {
					t.Errorf("%s: %v", name, v)
				}
			}
			o, v := run(t, i, probes["traceroute"])
			last := o.Measurements[len(o.Measurements)-1].Labels["address"]
			if v["hops h1 h2"][0] != 1 || !strings.HasPrefix(last, "fd00:") {
				t.Errorf("traceroute: %v, to %q", v, last)
			}
		})
	}
}

// TestNoIPv6 proves that a probe over IPv6 is refused before anything runs where a node has no such
// address, and that what is said tells which node, and what to do.
func TestNoIPv6(t *testing.T) {
	const nodes = "topology:\n  nodes: {s1: switch, h1: host, h2: host}\n  links: [h1 -- s1, h2 -- s1]\n"
	for text, want := range map[string]string{
		nodes + "probes: [packets: {from: h1, to: h2, rate: 10, ipv6: true}]":                                                                                       "packets: h1 has no IPv6 address, as the lab assigns none; write lab: {ipv6: assigned}",
		nodes + "lab: {ipv6: off}\nprobes: [ping: {all: true, ipv6: true}]":                                                                                         "ping: h1 has no IPv6 address",
		nodes + "lab: {ipv6: assigned}\nprobes: [ping: {all: true, ipv6: true}]":                                                                                    "",
		nodes + "factors: {ip: {4: {lab: off, probe: off}, 6: {lab: auto, probe: on}}}\nlab: {ipv6: '${ip.lab}'}\nprobes: [ping: {all: true, ipv6: '${ip.probe}'}]": "",
	} {
		e, problems := experiment.Read("x.yaml", []byte(text), Vocabulary())
		p, more := e.Plan()
		if err := errors.Join(problems.Err(), more.Err(), p.Check(lab.Defaults).Err()); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		err := Check(p)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, not %q", text, err, want)
		}
	}
}
