package drive

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// watched watches a lab while f runs, and returns what was dropped, by where, and what the verdict
// says of it.
func watched(t *testing.T, i experiment.Instance, f func()) (map[string]environment.Drops, []string) {
	t.Helper()
	o := i.Watch()
	o.NoPerf = true
	w, err := environment.StartWatch(o)
	if err != nil {
		t.Fatal(err)
	}
	f()
	u := w.Stop()
	drops := map[string]environment.Drops{}
	for _, d := range u.Drops {
		drops[d.Where] = d
	}
	var said []string
	for _, r := range environment.Judge(environment.Evidence{Usage: &u}, environment.DefaultLimits).Reasons {
		if r.Code == "drops" {
			said = append(said, r.Text)
		}
	}
	return drops, said
}

func dropsOf(t *testing.T, i experiment.Instance) []environment.DropCounter {
	t.Helper()
	all, err := i.(*instance).drops()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func shell(t *testing.T, i experiment.Instance, node, command string) {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if err := i.(*instance).lab.run(ctx, node, []string{"python3", "-c", command}, nil, &out, &errOut); err != nil {
		t.Fatalf("%s: %v: %s", node, err, errOut.String())
	}
}

// flood sends datagrams of 1,000 bytes that nobody waits for.
const flood = `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(2000):
    try: s.sendto(bytes(1000), ("10.0.0.2", 9000))
    except OSError: pass`

// TestUnwanted proves on real labs that what a socket has no room for is told and counts against
// the figure, and that what a slow link drops is told and does not; by Trivet's delay line or the
// kernel's queue, whatever this machine has.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	i, probes := bring(t, `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes: [ping: {from: h1, to: h2, count: 2, interval: 5ms}]
`)
	run(t, i, probes["ping"]) // no packet waits for an address to be known
	drops, said := watched(t, i, func() {
		shell(t, i, "h2", `import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.bind(("", 9000))
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(1000)
`)
		shell(t, i, "h1", flood)
	})
	const sockets = "kernel of h2: UdpRcvbufErrors"
	if d := drops[sockets]; d.Packets < 1000 || d.Expected || !strings.Contains(strings.Join(said, "\n"), sockets) {
		t.Errorf("%+v; %q", drops, said)
	}
	own := i.(*instance).lab.(*ownLab)
	if err := own.client.SetLink(t.Context(), lab.LinkRequest{A: "h1", B: "s1", Change: []string{"bandwidth=1mbit", "queue=10"}}); err != nil {
		t.Fatal(err)
	}
	info, err := own.client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i.(*instance).topology = info.Topology
	drops, said = watched(t, i, func() { shell(t, i, "h1", flood) })
	var all uint64
	for where, d := range drops {
		if where == sockets {
			continue // it goes on
		}
		if !d.Expected {
			t.Errorf("a slow link's: %+v", d)
		}
		if strings.Contains(where, "queue of port h1-eth0") || strings.Contains(where, "delay line h1 to s1, as asked for") {
			all += d.Packets
		}
	}
	if all < 1000 {
		t.Errorf("a queue of 10 packets dropped %d of 2,000: %+v; %q", all, drops, said)
	}
}

// TestDropsOfNobody proves that a lab that does not answer is no lab that has dropped nothing.
func TestDropsOfNobody(t *testing.T) {
	i := &instance{topology: &topology.Topology{}, cell: &experiment.Cell{}, lab: &ownLab{client: lab.NewClient(lab.State{Name: "nobody"})}}
	if all, err := i.drops(); err == nil || !strings.Contains(err.Error(), "ask the lab what it has dropped") {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestDatapathDrops proves that datapaths say what they have dropped: an embedded switch at a port
// whose link is down, which is expected; Open vSwitch nothing, while packets pass.
func TestDatapathDrops(t *testing.T) {
	t.Parallel()
	needs(t, "ovs-vswitchd")
	i, probes := bring(t, `
topology: {nodes: {s1: {switch: {datapath: embedded}}, s2: {switch: {datapath: embedded}}, s3: {switch: {datapath: ovs}}, 'h[1-3]': host}, links: [h1 -- s1, h2 -- s2, h3 -- s3, s1 -- s2, s2 -- s3]}
lab: {controller: trivet}
probes: [ping: {from: h1, to: h3, count: 3, interval: 10ms}]
`)
	passed := func(where string) (c environment.DropCounter) {
		for _, c = range dropsOf(t, i) {
			if strings.Contains(c.Where, where) {
				return c
			}
		}
		t.Fatalf("%s is not there", where)
		return c
	}
	if o := i.Watch().Offloads; o["hosts"]["scatter-gather"] == "" || o["switches"]["scatter-gather"] == "" {
		t.Errorf("offloads: %v", o)
	}
	drops, said := watched(t, i, func() { run(t, i, probes["ping"]) })
	if len(said) > 0 {
		t.Errorf("%+v", drops)
	}
	if c := passed("Open vSwitch: packets to ovs-vswitchd"); c.Passed == 0 {
		t.Errorf("%+v", c)
	}
	own := i.(*instance).lab.(*ownLab)
	if err := own.client.SetLink(t.Context(), lab.LinkRequest{A: "s1", B: "s2", Change: []string{"down"}}); err != nil {
		t.Fatal(err)
	}
	const entry = "priority=65535,in_port=1,actions=output:2" // whatever the controller thinks of it
	if _, err := own.client.Controller().AddFlow(t.Context(), api.FlowRequest{Switch: "s1", Flow: entry}); err != nil {
		t.Fatal(err)
	}
	before := passed("of the embedded switch s1")
	for end := time.Now().Add(longest); ; {
		_, _ = own.client.Ping(t.Context(), lab.PingRequest{From: "h1", To: "h3", Count: 3})
		var sum uint64
		for _, c := range dropsOf(t, i) {
			if strings.Contains(c.Where, "s1-eth2 of the embedded switch s1") {
				sum += c.Dropped
				if !c.Expected && c.Dropped > 0 {
					t.Fatalf("%+v", c)
				}
			}
		}
		if sum > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing is dropped at a link that is down: before %+v", before)
		}
	}
}
