package mininet

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/losses"
)

// TestMain sets a smaller default number of random cases, as each starts Python.
func TestMain(m *testing.M) {
	flag.Set("rapid.checks", "30")
	flag.Parse()
	os.Exit(m.Run())
}

// TestHoldTwice proves, without Python and on many topologies, that applying hold twice gives the
// same as once.
func TestHoldTwice(t *testing.T) {
	for seed := range 2000 {
		once := hold(topologies.Example(seed))
		if a, b := asJSON(once), asJSON(hold(once)); a != b {
			t.Fatalf("once\n%s\ntwice\n%s", a, b)
		}
	}
}

// TestQuotes proves that no name or command breaks out of its quotes: they read back unchanged, and
// nothing else runs.
func TestQuotes(t *testing.T) {
	top := &topology.Topology{Name: "a\"\n    raise SystemExit('out')\n#"}
	for _, name := range []string{`h1"); import os; os._exit(1) #`, "h'\\", "h\n\t2", "h{{.}}%s", "hé𝔥\u2028"} {
		n := top.AddNode(topology.Host, name)
		n.Start, n.StartMayFail = name, true // as read back from the program
	}
	for i := range 4 {
		top.AddLink(top.Nodes[i].Name, top.Nodes[i+1].Name)
	}
	data, lost, err := Write(top)
	if got := readBack(t, data); err != nil || len(lost) > 0 || asJSON(got) != asJSON(top) {
		t.Fatalf("%v %v\n%s\n%s", lost, err, asJSON(got), data)
	}
}

// TestRoundTrip proves, on random topologies in which every field of a topology is set now and
// then, that the losses Write reports are exactly the differences between the topology and what is
// read back from the program; that this is precisely what hold says; and that a second round trip
// changes nothing.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := topologies.Draw(rt, "topology")
		data, lost, err := Write(want)
		if err != nil {
			rt.Fatal(err)
		}
		got := readBack(rt, data)
		if a, b := asJSON(hold(want)), asJSON(got); a != b {
			rt.Fatalf("held\n%s\nread\n%s\nprogram\n%s", a, b, data)
		}
		if a, b := fmt.Sprint(losses.Between(relevant(want), relevant(got))), fmt.Sprint(lost); a != b {
			rt.Fatalf("differences\n%s\nlosses\n%s", a, b)
		}
		again, lost, _ := Write(got)
		if len(lost) > 0 || string(again) != string(data) {
			rt.Fatalf("second writing loses %v\n%s\n%s", lost, data, again)
		}
	})
}

func readBack(t interface{ Fatalf(string, ...any) }, data []byte) *topology.Topology {
	got, problems := Read("back.py", data, formats.Options{})
	for range 5 { // on a busy machine Python may not finish in time
		if !strings.Contains(problems.Error(), "stopped") {
			break
		}
		got, problems = Read("back.py", data, formats.Options{})
	}
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, w := range problems {
		if !strings.HasPrefix(w.Message, "CLI(") {
			t.Fatalf("warning %v\n%s", w, data)
		}
	}
	return got
}

func asJSON(t *topology.Topology) string {
	t = t.Clone()
	t.Nodes = append(topology.Topology{}.Nodes, t.Nodes...) // nil or empty is the same
	b, _ := json.MarshalIndent(t, "", " ")
	return string(b)
}

// topologies draws topologies of a few nodes with anything in them.
var topologies = rapid.Custom(func(t *rapid.T) *topology.Topology {
	maybe := func(label string) bool { return rapid.IntRange(0, 4).Draw(t, label) == 0 }
	top := &topology.Topology{
		Name:     pick(t, "name", "", "campus", `a"b'c\`, "x\n"),
		Datapath: pick(t, "datapath", topology.Datapath(""), "", topology.OVS, topology.Bridge, topology.Embedded),
		IPv6:     pick(t, "ipv6", topology.IPv6(""), topology.IPv6Auto),
	}
	if maybe("subnet") {
		top.Subnet = netip.MustParsePrefix(pick(t, "pool", "192.168.0.0/16", "10.1.0.5/24", "10.0.0.0/30"))
	}
	if maybe("schedule") {
		top.Schedule = []topology.Event{{At: 1e9, Action: topology.Action{Node: "h1", Run: "true"}}}
	}
	var names []string
	for _, k := range []struct {
		prefix string
		kind   topology.Kind
		most   int
	}{{"c", topology.Controller, 2}, {"h", topology.Host, 4}, {"s", topology.Switch, 3}, {"r", topology.Router, 2}} {
		for i := range rapid.IntRange(0, k.most).Draw(t, k.prefix) {
			n := top.AddNode(k.kind, fmt.Sprintf("%s%d", k.prefix, i+1))
			if k.kind == topology.Switch && maybe("no number") {
				n.Name = "core" + string(rune('a'+i))
			}
			if k.kind != topology.Controller {
				names = append(names, n.Name)
			}
		}
	}
	top.Nodes = rapid.Permutation(top.Nodes).Draw(t, "order")
	controllers := []string{topology.ControllerNone, topology.ControllerTrivet, "tcp:192.0.2.1:6653", "tcp:[::1]:6653"}
	for _, n := range top.NodesOf(topology.Controller) {
		n.Address = pick(t, "address", "tcp:127.0.0.1:6653", "ssl:192.0.2.7:6633", "tcp:[::1]:1")
		controllers = append(controllers, n.Name)
	}
	if maybe("controllers") {
		top.Controllers = []string{rapid.SampledFrom(controllers).Draw(t, "controller")}
	}
	for _, n := range top.Nodes {
		drawNode(t, n, controllers, maybe)
	}
	if len(names) > 1 {
		for range rapid.IntRange(0, 6).Draw(t, "links") {
			drawLink(t, top, names, maybe)
		}
	}
	return top
})

func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func drawNode(t *rapid.T, n *topology.Node, controllers []string, maybe func(string) bool) {
	if maybe("start") {
		n.Start = pick(t, "command", "iperf -s &", `echo "it's"; \`, "ip route add 1.2.3.4 via 10.0.0.1")
	}
	if maybe("place") {
		n.Place = &topology.Point{X: 1, Y: 2}
	}
	switch n.Kind {
	case topology.Switch:
		n.Datapath = pick(t, "datapath", topology.Datapath(""), "", topology.OVS, topology.Bridge, topology.Embedded)
		n.DPID = pick(t, "dpid", topology.DPID(0), 0, topology.DPID(77+len(n.Name)*256+int(n.Name[len(n.Name)-1])))
		n.FailMode = pick(t, "fail", topology.FailMode(""), topology.Secure, topology.Standalone)
		n.STP = maybe("stp")
		if maybe("openflow") {
			n.OpenFlow = []string{"1.0", "1.3"}
		}
		if maybe("controllers") {
			n.Controllers = rapid.SliceOfNDistinct(rapid.SampledFrom(controllers[1:]), 1, 2, rapid.ID[string]).Draw(t, "list")
		}
	case topology.Host, topology.Router:
		drawHost(t, n, maybe)
	}
}

func drawHost(t *rapid.T, n *topology.Node, maybe func(string) bool) {
	for i := range rapid.IntRange(0, 2).Draw(t, "addresses") / 2 {
		n.Addresses = append(n.Addresses, netip.MustParsePrefix(fmt.Sprintf("172.16.%d.%d/24", n.Name[0], int(n.Name[1])+i)))
	}
	n.Unaddressed = len(n.Addresses) == 0 && maybe("none")
	if maybe("six") && !n.Unaddressed {
		n.Addresses = append(n.Addresses, netip.MustParsePrefix(fmt.Sprintf("fd00::%x/64", n.Name[1])))
		n.Gateways = append(n.Gateways, netip.MustParseAddr("fd00::ffff"))
	}
	if maybe("gateway") {
		n.Gateways = append(n.Gateways, netip.MustParseAddr("172.16.0.254"))
	}
	if maybe("mac") {
		n.MAC = topology.MAC{2, 0, 0, 1, n.Name[0], n.Name[1]}
	}
	if maybe("loopback") {
		n.Loopback = []netip.Prefix{netip.MustParsePrefix("10.255.0.1/32"), netip.MustParsePrefix("fd01::1/128")}
	}
	if maybe("routes") {
		n.Routes = []topology.Route{{To: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("172.16.0.3")},
			{To: netip.MustParsePrefix("fd02::/64"), Via: netip.MustParseAddr("fd00::3")}}
	}
	if maybe("dirs") {
		n.Dirs = []topology.PrivateDir{{Path: "/var/log"}, {Path: "/var/run", Source: "/tmp/'run"}}
	}
	if n.Kind == topology.Router {
		n.NAT = maybe("nat")
		n.Datapath = pick(t, "datapath", topology.Datapath(""), topology.Kernel, topology.Embedded, topology.FRR)
		if maybe("ospf") {
			n.Protocols.Set(&topology.OSPF{Area: 1})
		}
		return
	}
	n.CPU = pick(t, "cpu", topology.CPU{}, topology.CPU{Share: 0.25}, topology.CPU{CPUs: 2})
	if maybe("cores") {
		n.Cores = []int{0, 1}
	}
	if maybe("isolate") {
		n.Isolate = []string{"pid"}
	}
}

func drawLink(t *rapid.T, top *topology.Topology, names []string, maybe func(string) bool) {
	ends := rapid.Permutation(names).Draw(t, "ends")
	l := top.AddLink(ends[0], ends[1])
	i := len(top.Links)
	if maybe("external") {
		l.Ends[rapid.IntRange(0, 1).Draw(t, "side")] = topology.Endpoint{Interface: fmt.Sprintf("eth%d", i)}
	}
	l.Down = maybe("down")
	if maybe("ospf") {
		l.Protocols.Set(&topology.OSPFLink{Cost: 5})
		l.Ends[0].Protocols.Set(&topology.OSPFLink{Off: true})
	}
	if maybe("impaired") {
		l.Impairment = drawImpairment(t)
	}
	for j := range l.Ends {
		e := &l.Ends[j]
		if e.External() {
			continue
		}
		if maybe("egress") {
			leaves := drawImpairment(t)
			e.Egress = &leaves
		}
		if maybe("port") {
			port := 10*i + j
			e.Port = &port
		}
		if maybe("interface") {
			e.Interface = fmt.Sprintf("up%d-%d", i, j)
		}
		if maybe("mac") {
			e.MAC = topology.MAC{2, 0, 0, 2, byte(i), byte(j)}
		}
		if kind := top.Node(e.Node).Kind; kind != topology.Switch && maybe("addresses") {
			e.Addresses = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", 10*i+j)),
				netip.MustParsePrefix(fmt.Sprintf("fd03::%d/64", 10*i+j))}
		} else if kind != topology.Switch {
			e.Unaddressed = maybe("none")
		}
	}
}

func drawImpairment(t *rapid.T) topology.Impairment {
	return topology.Impairment{
		Bandwidth: pick(t, "bandwidth", topology.Rate(0), 10_000_000, 1_500_001, 1e9, 1e10),
		Delay:     pick(t, "delay", topology.Duration(0), 5e6, 250e3, 1_000_000_001),
		Jitter:    pick(t, "jitter", topology.Duration(0), 1e6),
		Loss:      pick(t, "loss", topology.Fraction(0), 0.001, 1),
		Queue:     topology.Queue{Limit: pick(t, "queue", 0, 100)},
	}
}

// TestRED proves that Mininet's RED is read as it is made there, with and without ECN, only where
// there is a bandwidth, and written again; and that other queues are said to be lost.
func TestRED(t *testing.T) {
	script := "from mininet.net import Mininet\nfrom mininet.link import TCLink\nnet = Mininet(link=TCLink)\n" +
		"h1, h2, h3 = [net.addHost('h%d' % i) for i in (1, 2, 3)]\n" +
		"net.addLink(h1, h2, bw=10, enable_ecn=True)\nnet.addLink(h2, h3, bw=10, enable_red=True)\nnet.addLink(h1, h3, delay='5ms', enable_ecn=True)\nnet.start()\n"
	top, p := Read("red.py", []byte(script), formats.Options{})
	if p.Err() != nil {
		t.Fatal(p)
	}
	for i, want := range []topology.Queue{topology.MininetRED(true), topology.MininetRED(false), {}} {
		if got := top.Links[i].Queue; got != want {
			t.Errorf("link %d has the queue %s, want %s", i, got, want)
		}
	}
	top.Links[2].Bandwidth, top.Links[2].Queue, top.Links[2].Corrupt = 1e7, topology.Queue{Discipline: topology.CoDel, Limit: 1000, Target: 5e6, Interval: 100e6}, 0.5
	data, lost, err := Write(top)
	if text := string(data); err != nil || strings.Count(text, "enable_ecn=True") != 1 || strings.Count(text, "enable_red=True") != 1 {
		t.Errorf("written: %s (%v)", text, err)
	}
	if text := fmt.Sprint(lost); !strings.Contains(text, "codel") || !strings.Contains(text, "corrupt") {
		t.Errorf("lost: %s", text)
	}
}
