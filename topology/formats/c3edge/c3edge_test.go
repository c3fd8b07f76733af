package c3edge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

var defaults = topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet}

func readFile(t testing.TB, file string) (*topology.Topology, topology.Problems) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !detect(data) {
		t.Errorf("%s is not detected", file)
	}
	top, problems := Read(file, data, formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return top, problems
}

// TestExample proves that the testbed's network reads as described, and comes up.
func TestExample(t *testing.T) {
	top, problems := readFile(t, "../../../examples/c3-edge.yml")
	if len(problems) > 0 {
		t.Error(problems)
	}
	var got []string
	for _, n := range top.Nodes {
		got = append(got, fmt.Sprintf("%s %v %s %s %d %v %s", n.Name, n.Addresses, n.MAC, n.Device, n.DPID, n.Controllers, n.FailMode))
	}
	for _, l := range top.Links {
		got = append(got, l.Name()+" "+l.Egress(0).Delay.String())
		if l.Egress(1) != (topology.Impairment{}) {
			t.Errorf("%s is impaired towards its src too: there is netem at one end only", l.Name())
		}
	}
	const zero = "00:00:00:00:00:00"
	want := []string{
		"mobile1 [10.0.1.100/16] 02:ff:0a:00:01:64 node1 0 [] ",
		"mobile2 [10.0.1.200/16] 02:ff:0a:00:01:c8 node2 0 [] ",
		"edge1 [10.0.2.100/16] 02:ff:0a:00:02:64 node22 0 [] ",
		"edge2 [10.0.2.200/16] 02:ff:0a:00:02:c8 node23 0 [] ",
		"cloud [10.0.3.100/16] 02:ff:0a:00:03:64 node3 0 [] ",
		"bs1 [] " + zero + "  1 [tcp:127.0.0.1:6653] secure",
		"bs2 [] " + zero + "  2 [tcp:127.0.0.1:6653] secure",
		"cloudgw [] " + zero + "  3 [tcp:127.0.0.1:6653] secure",
		"bs1-mobile1 0ns", "bs2-mobile2 0ns", "bs1-edge1 0ns", "bs2-edge2 5ms", "bs1-cloudgw 0ns", "bs2-cloudgw 10ms", "cloudgw-cloud 0ns",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, problems := topology.Resolve(top, defaults); problems.Err() != nil {
		t.Error(problems.Err())
	}
}

// TestFull proves what every key means, and that keys without a meaning are warned about, kept and
// written back.
func TestFull(t *testing.T) {
	top, problems := readFile(t, "testdata/full.yml")
	b, _ := json.MarshalIndent(top, "", " ")
	for _, want := range []string{`"10.0.1.200/16"`, `"10.0.7.9/16"`, `"02:ff:0a:00:07:09"`, `"device": "gateway"`, `"000000000000001a"`,
		`"tcp:127.0.0.1:6653",`, `"ssl:192.0.2.1:6654"`, `"none"`, `"standalone"`, `"bandwidth": "100mbit"`, `"bandwidth": "1.5gbit"`,
		`"loss": 0.005`, `"loss": 0.02`, `"jitter": "1ms"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("missing %s in\n%s", want, b)
		}
	}
	if d := top.Links[0].Egress(0).Delay; d != 5e6 {
		t.Errorf("a bare delay is in microseconds: got %s", d)
	}
	for _, want := range []string{
		"testdata/full.yml:2:1  warning: emu_public_gateway has no effect",
		`testdata/full.yml:3:1  warning: "extra" is not part of the emulation`,
		`testdata/full.yml:5:3  warning: emu: "version" is unknown and has no effect`,
		"host m1: mac has no effect: the MAC is derived from ip",
		"host m3: ip 192.168.7.9: only the last two bytes count: it becomes 10.0.7.9",
		`switch b: "stp" is unknown`,
		`link b-m3: "queue" is unknown`,
	} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("missing %q in\n%v", want, problems)
		}
	}
	data, losses, err := Write(top)
	if err != nil || len(losses) > 0 {
		t.Fatal(err, losses)
	}
	back, _ := Read("", data, formats.Options{})
	again, _, err := Write(back)
	if err != nil || string(again) != string(data) {
		t.Errorf("written again, the file is another: %v\n%s\n%s", err, data, again)
	}
	if !strings.Contains(string(data), "emu_public_gateway: cloudgw") || !strings.Contains(string(data), "note: gateway") {
		t.Errorf("something kept is gone:\n%s", data)
	}
}

// TestTemplate proves that an Ansible template in a place that only matters on racks is not an
// error, and survives.
func TestTemplate(t *testing.T) {
	for _, value := range []string{`"{{ groups.pis[0] }}"`, `{x: y}`} {
		top, problems := Read("f.yml", []byte("emu:\n  hosts:\n    a: {ip: 1.1, node: "+value+"}\n"), formats.Options{})
		if problems.Err() != nil || !strings.Contains(problems.Error(), "only a rack uses it") || top.Nodes[0].Device != "" {
			t.Fatal(problems)
		}
		data, lost, err := Write(top)
		if err != nil || len(lost) > 0 || !strings.Contains(string(data), "node: ") {
			t.Error(err, lost, string(data))
		}
	}
}

// TestDetect proves that only a key emu at the top level makes a YAML file a C3-Edge file.
func TestDetect(t *testing.T) {
	for data, want := range map[string]bool{
		"emu:\n  hosts:\n": true, "---\n\"emu\": {}\n": true, "a: 1\nemu:\r\n": true, "\uFEFFemu:\n": true,
		"nodes:\n  emu: host\n": false, "emulate: 1\n": false, "emu\n": false, "": false,
	} {
		if detect([]byte(data)) != want {
			t.Errorf("%q: want %v", data, want)
		}
	}
}

// draw makes a random topology and says what a C3-Edge file of it loses. Some names are such that
// YAML would take them for other things.
func draw(t *rapid.T) (*topology.Topology, map[string]bool) {
	top, lost := &topology.Topology{}, map[string]bool{}
	yes := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
	lose := func(subject, field string) { lost[subject+": "+field] = true }
	hosts := []string{"h1", "true", "7", "null", "1e3"}[:rapid.IntRange(1, 5).Draw(t, "hosts")]
	for i, h := range hosts {
		n, subject := top.AddNode(topology.Host, h), "host "+h
		a := netip.AddrFrom4([4]byte{10, 0, 9, byte(i + 1)})
		switch rapid.IntRange(0, 3).Draw(t, "address") {
		case 0:
			n.Addresses = []netip.Prefix{netip.PrefixFrom(a, 16)}
			n.MAC = topology.AddressMAC(a)
		case 1:
			n.Addresses = []netip.Prefix{netip.PrefixFrom(a, 24)}
			lose(subject, "addresses")
		case 2:
			n.Addresses = []netip.Prefix{netip.MustParsePrefix("172.16.9.1/16"), netip.MustParsePrefix("fd00::1/64")}
			lose(subject, "addresses")
		}
		if yes("device") {
			n.Device = rapid.SampledFrom([]string{"pi-3", "3", "no"}).Draw(t, "device")
		}
		if yes("burden") {
			n.CPU, n.Start, n.Place = topology.CPU{CPUs: 1}, "true", &topology.Point{X: 1}
			lose(subject, "cpu")
			lose(subject, "start")
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "switches") {
		n := top.AddNode(topology.Switch, fmt.Sprintf("bs%d", i+1))
		subject := "switch " + n.Name
		switch rapid.IntRange(0, 2).Draw(t, "controller") {
		case 0:
			n.Controllers, n.FailMode = []string{topology.ControllerNone}, topology.Standalone
		case 1:
			n.Controllers = []string{"tcp:192.0.2.1:6653", "ssl:[::1]:1"}
		default:
			lose(subject, "controllers") // the built-in one
		}
		n.DPID = topology.DPID(rapid.SampledFrom([]uint64{0, uint64(40 + i), 1<<63 + uint64(i)}).Draw(t, "dpid"))
		if yes("datapath") {
			n.Datapath = topology.OVS
			lose(subject, "datapath")
		}
		l := top.AddLink(n.Name, rapid.SampledFrom(hosts).Draw(t, "to"))
		l.Bandwidth = topology.Rate(rapid.Uint64Range(0, 1e10).Draw(t, "bandwidth"))
		l.Delay = topology.Duration(rapid.Int64Range(0, 1e10).Draw(t, "delay"))
		l.Jitter = topology.Duration(rapid.Int64Range(0, 1e9).Draw(t, "jitter"))
		l.Loss = topology.Fraction(float64(rapid.IntRange(0, 100000).Draw(t, "loss")) / 100000)
		netem := l.Delay+l.Jitter > 0 || l.Loss > 0
		switch back := l.Impairment; rapid.IntRange(0, 2).Draw(t, "ways") {
		case 0: // only from the switch
			l.Ends[1].Egress = &topology.Impairment{Bandwidth: l.Bandwidth}
		case 1: // only to it
			l.Ends[1].Egress, l.Impairment = &back, topology.Impairment{Bandwidth: l.Bandwidth}
		default:
			for field, set := range map[string]bool{"delay": l.Delay > 0, "jitter": l.Jitter > 0, "loss": l.Loss > 0} {
				if netem && set {
					lose("link "+l.Name(), field+" from "+l.Ends[1].Node)
				}
			}
		}
		if yes("queue") && l.Ends[1].Egress == nil {
			l.Queue.Limit, l.Down = 9, true
			lose("link "+l.Name(), "queue")
			lose("link "+l.Name(), "down")
		}
	}
	if yes("router") {
		top.AddNode(topology.Router, "r1")
		lose("router r1", "node")
		top.AddLink("bs1", "r1")
		lose("link bs1-r1", "link")
	}
	if yes("controller node") {
		top.AddNode(topology.Controller, "c0").Address = "tcp:192.0.2.7:6653"
		top.Nodes[len(hosts)].Controllers = []string{"c0"}
		delete(lost, "switch bs1: controllers")
		if top.Nodes[len(hosts)].FailMode == topology.Standalone {
			top.Nodes[len(hosts)].FailMode = ""
		}
		lose("controller c0", "node")
	}
	if yes("name") {
		top.Name, top.Subnet = "lab", netip.MustParsePrefix("10.0.0.0/16")
		lose("topology", "name")
		lose("topology", "subnet")
	}
	return top, lost
}

// TestLosses proves that Write reports what a C3-Edge file is known not to hold, no more and no
// less.
func TestLosses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top, want := draw(rt)
		data, losses, err := Write(top)
		if err != nil {
			rt.Fatal(err)
		}
		got := map[string]bool{}
		for _, l := range losses {
			got[l.Subject+": "+l.Field] = true
			if !want[l.Subject+": "+l.Field] {
				rt.Errorf("reported, but not lost: %s\n%s", l, data)
			}
		}
		for l := range want {
			if !got[l] {
				rt.Errorf("not reported: %s\n%s", l, data)
			}
		}
	})
}

// TestUncontrolled proves that two hosts with an uncontrolled link reach each other's address over
// it, that it is written as it was read, and that there is none at a switch.
func TestUncontrolled(t *testing.T) {
	const text = "emu:\n  hosts: {a: {ip: 1.1/16}, b: {ip: 1.2/16}}\n  switches: {s: {dpid: 1}}\n  links:\n" +
		"    - {src: s, dest: a}\n    - {src: s, dest: b}\n    - {src: %s, dest: b, uncontrolled: %s}\n"
	for _, c := range []struct{ src, is, want string }{
		{"a", "true", "a: 10.0.1.2/32 dev a-b; b: 10.0.1.1/32 dev b-a; "},
		{"a", "false", ""},
		{"s", "true", "f.yml:7:8  link s-b: an uncontrolled link joins two hosts: a switch controls what it forwards; leave uncontrolled out, or link two hosts"},
		{"a", "perhaps", `uncontrolled: "perhaps" is neither true nor false; write true or false`},
	} {
		top, problems := Read("f.yml", fmt.Appendf(nil, text, c.src, c.is), formats.Options{})
		if err := problems.Err(); err != nil {
			if c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v; want %s", c.src, c.is, err, c.want)
			}
			continue
		}
		got := ""
		for _, n := range top.Nodes {
			for _, r := range n.Routes {
				got += fmt.Sprintf("%s: %s; ", n.Name, r)
			}
		}
		if got != c.want {
			t.Errorf("%s %s: %q; want %q", c.src, c.is, got, c.want)
		}
		data, lost, err := Write(top)
		if err != nil || len(lost) > 0 || strings.Contains(string(data), "uncontrolled: true") != (c.is == "true") {
			t.Errorf("written: %v, %v: %s", err, lost, data)
		}
	}
}
