package miniedit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// drawing is a random topology, and what a .mn file of it is known to lose.
type drawing struct {
	*rapid.T
	top  *topology.Topology
	lost map[string]bool // "subject: field"
}

func (d *drawing) lose(subject, field string) { d.lost[subject+": "+field] = true }

func (d *drawing) yes(what string) bool { return rapid.IntRange(0, 3).Draw(d.T, what) == 0 }

// draw makes a network that MiniEdit can represent in full.
func draw(t *rapid.T) *drawing {
	d := &drawing{T: t, top: &topology.Topology{}, lost: map[string]bool{}}
	if d.yes("subnet") {
		d.top.Subnet = netip.MustParsePrefix("172.20.0.0/16")
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "controllers") {
		d.top.AddNode(topology.Controller, fmt.Sprintf("ctl%d", i)).Address = fmt.Sprintf("tcp:192.0.2.%d:6653", i+1)
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "switches") {
		d.drawSwitch(d.top.AddNode(topology.Switch, []string{"s1", "core", "s9", "s1x1"}[i]))
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "routers") {
		d.top.AddNode(topology.Router, fmt.Sprintf("r%d", i+1)).Datapath = topology.Kernel
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "hosts") {
		d.drawHost(d.top.AddNode(topology.Host, []string{"h1", "web", "h3", "h20", "9lives"}[i]), i)
	}
	for _, n := range d.top.Nodes {
		if d.yes("place") {
			n.Place = &topology.Point{X: rapid.Float64Range(-1e6, 1e6).Draw(t, "x"), Y: 7}
		}
		if n.Kind == topology.Switch || n.Kind == topology.Controller {
			continue
		}
		for range rapid.IntRange(0, 2).Draw(t, "links") {
			d.drawLink(n.Name)
		}
	}
	return d
}

func (d *drawing) drawSwitch(n *topology.Node) {
	switch rapid.IntRange(0, 3).Draw(d.T, "controller") {
	case 0:
		n.Controllers = []string{topology.ControllerNone}
		n.FailMode = rapid.SampledFrom([]topology.FailMode{"", topology.Standalone}).Draw(d.T, "fail mode")
		return
	case 1:
		n.Controllers = []string{"tcp:198.51.100.7:6633", "ssl:[2001:db8::1]:6654"}
		n.FailMode = rapid.SampledFrom([]topology.FailMode{"", topology.Secure}).Draw(d.T, "fail mode")
	case 2:
		if d.top.Nodes[0].Kind == topology.Controller {
			n.Controllers = []string{d.top.Nodes[0].Name}
		}
	}
	n.DPID = topology.DPID(rapid.SampledFrom([]uint64{0, 0, uint64(len(d.top.Nodes)) << 40}).Draw(d.T, "dpid"))
	n.Datapath = rapid.SampledFrom([]topology.Datapath{"", topology.Embedded, topology.OVS}).Draw(d.T, "datapath")
	n.Start = rapid.SampledFrom([]string{"", "echo \"<&>\" ü"}).Draw(d.T, "start")
	n.StartMayFail = n.Start != ""
}

func (d *drawing) drawHost(n *topology.Node, i int) {
	if d.yes("address") {
		bits := rapid.SampledFrom([]int{8, 16, 24}).Draw(d.T, "bits")
		n.Addresses = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 2, byte(i + 1)}), bits)}
	}
	n.Unaddressed = len(n.Addresses) == 0 && d.yes("no address")
	if d.yes("gateway") {
		n.Gateways = []netip.Addr{netip.MustParseAddr("10.1.2.254")}
	}
	if d.yes("cpu") {
		n.CPU.Share = topology.Fraction(rapid.Float64Range(0.001, 1).Draw(d.T, "share"))
	}
	if d.yes("cores") {
		n.Cores = rapid.SampledFrom([][]int{{0}, {0, 1}, {3, 1}}).Draw(d.T, "cores")
	}
	if d.yes("commands") {
		n.Start, n.Stop, n.StartMayFail = "sleep 1 &\nwait", "kill %1", true
	}
	if d.yes("dirs") {
		n.Dirs = []topology.PrivateDir{{Path: "/var/log"}, {Path: "/var/run", Source: "/tmp/run"}}
	}
}

func (d *drawing) drawLink(from string) {
	var others []string
	for _, n := range d.top.Nodes {
		if n.Name != from && n.Kind != topology.Controller {
			others = append(others, n.Name)
		}
	}
	l := d.top.AddLink(from, rapid.SampledFrom(others).Draw(d.T, "to"))
	if d.yes("turned") {
		l.Ends[0], l.Ends[1] = l.Ends[1], l.Ends[0]
	}
	if d.yes("impaired") {
		l.Impairment = topology.Impairment{
			Bandwidth: topology.Rate(rapid.Uint64Range(0, 1e11).Draw(d.T, "bandwidth")),
			Delay:     topology.Duration(rapid.Int64Range(0, 1e11).Draw(d.T, "delay")),
			Jitter:    topology.Duration(rapid.Int64Range(0, 1e9).Draw(d.T, "jitter")),
			Loss:      topology.Fraction(float64(rapid.IntRange(0, 100000).Draw(d.T, "loss")) / 100000),
			Queue:     topology.Queue{Limit: rapid.IntRange(0, 1000).Draw(d.T, "queue")},
		}
	}
}

// burden adds what a .mn file cannot hold.
func (d *drawing) burden() {
	t := d.top
	if d.yes("name") {
		t.Name = "lab"
		d.lose("topology", "name")
	}
	if d.yes("IPv6") {
		t.IPv6, t.Subnet6 = topology.IPv6Assigned, netip.MustParsePrefix("fd01::/64")
		d.lose("topology", "ipv6")
		d.lose("topology", "subnet6")
	}
	if d.yes("schedule") {
		e, _ := topology.ParseEvent("at 30s: h1 run true")
		t.Schedule = []topology.Event{e}
		d.lose("topology", "schedule")
	}
	if d.yes("foreign") {
		t.Foreign = map[string]any{"graphml": "x"}
		d.lose("topology", "what only graphml files have") // that format is not registered here
	}
	for i, n := range t.Nodes {
		d.burdenNode(n, i)
	}
	for _, l := range t.Links {
		d.burdenLink(l)
	}
}

func (d *drawing) burdenNode(n *topology.Node, i int) {
	subject := string(n.Kind) + " " + n.Name
	if d.yes("device") {
		n.Device = "pi-3"
		d.lose(subject, "device")
	}
	switch n.Kind {
	case topology.Host, topology.Router:
		if !n.Unaddressed && d.yes("second addresses") {
			n.Addresses = append(n.Addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 1}), 24), netip.MustParsePrefix(fmt.Sprintf("fd00::%d/64", i+1)))
			if len(n.Addresses) == 2 && n.Kind == topology.Host {
				n.Addresses = append(n.Addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 2}), 24))
			}
			d.lose(subject, "addresses")
		}
		if d.yes("mac") {
			n.MAC = topology.MAC{2, 0, 0, 0, 0, byte(i + 1)}
			d.lose(subject, "mac")
		}
		if d.yes("routes") {
			n.Loopback = []netip.Prefix{netip.MustParsePrefix("203.0.113.1/32")}
			n.Routes = []topology.Route{{To: netip.MustParsePrefix("10.2.0.0/16"), Via: netip.MustParseAddr("10.1.2.9")}}
			d.lose(subject, "loopback")
			d.lose(subject, "routes")
		}
		if d.yes("cpus") {
			n.CPU, n.Isolate = topology.CPU{CPUs: 0.5}, []string{"pid"}
			d.lose(subject, "cpu")
			d.lose(subject, "isolate")
		}
		if n.Kind == topology.Router && d.yes("datapath") {
			n.Datapath, n.DPID = topology.OVS, 77
			d.lose(subject, "datapath")
			d.lose(subject, "dpid")
		}
	case topology.Switch:
		if d.yes("stp") {
			n.STP = true
			d.lose(subject, "stp")
		}
		if d.yes("bridge") {
			n.Datapath = topology.Bridge
			d.lose(subject, "datapath")
		}
		if d.yes("versions") {
			n.OpenFlow = []string{"1.5"}
			d.lose(subject, "openflow")
		}
		if d.yes("fail mode") {
			n.FailMode = topology.Secure
			if slices.Equal(n.Controllers, []string{topology.ControllerNone}) || len(n.Controllers) == 0 {
				d.lose(subject, "fail_mode")
			}
		}
	}
}

func (d *drawing) burdenLink(l *topology.Link) {
	subject := "link " + l.Name()
	if d.yes("down") {
		l.Down = true
		d.lose(subject, "down")
	}
	if e := &l.Ends[0]; d.yes("device name") {
		e.Interface, e.MAC = "wan0", topology.MAC{2, 1, 1, 1, 1, 1}
		d.lose(subject, "interface at "+e.Node)
		if n := d.top.Node(e.Node); n.Kind == topology.Switch {
			d.lose(subject, "mac at "+e.Node)
		} else {
			e.MAC = topology.MAC{}
		}
	}
	if d.yes("ospf") {
		l.Protocols.Set(&topology.OSPFLink{Cost: 5})
		l.Ends[1].Protocols.Set(&topology.OSPFLink{Off: true})
		d.lose(subject, "ospf.cost")
		d.lose(subject, "ospf.off at "+l.Ends[1].Node)
	}
	if d.yes("egress") {
		slower := l.Impairment
		slower.Delay += 1e6
		l.Ends[1].Egress = &slower
		d.lose(subject, "delay from "+l.Ends[1].Node)
	}
}

// asSet returns losses in the form of drawing.lost.
func asSet(losses []formats.Loss) map[string]bool {
	set := map[string]bool{}
	for _, l := range losses {
		set[l.Subject+": "+l.Field] = true
	}
	return set
}

// TestLosses proves, over random topologies, that Write reports as lost what a .mn file is known
// not to hold, no more and no less.
func TestLosses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw(rt)
		d.burden()
		_, losses, err := Write(d.top)
		if err != nil {
			rt.Fatal(err)
		}
		got := asSet(losses)
		for l := range d.lost {
			if !got[l] {
				rt.Errorf("not reported: %s", l)
			}
		}
		for l := range got {
			if !d.lost[l] {
				rt.Errorf("reported, but not lost: %s", l)
			}
		}
	})
}

// TestLossless proves that if nothing is reported as lost, the file resolves to the same network:
// ports, devices, MAC addresses, datapath ids, addresses, gateways and routes. Only controllers may
// be named instead of being given by address.
func TestLossless(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw(rt)
		data, losses, err := Write(d.top)
		if err != nil || len(losses) > 0 {
			rt.Fatal(err, losses)
		}
		back, problems := Read("", data, formats.Options{})
		if len(problems) > 0 {
			rt.Fatalf("problems: %v\n%s", problems, data)
		}
		want, problems := topology.Resolve(d.top, defaults)
		if want == nil {
			rt.Skip(problems)
		}
		got, problems := topology.Resolve(back, defaults)
		if got == nil {
			rt.Fatal(problems.Err())
		}
		for _, c := range topology.Diff(want, got) {
			if c.NewNode != nil && c.NewNode.Kind == topology.Controller && c.OldNode == nil {
				continue
			}
			for _, f := range c.Fields {
				if f.Name != "controllers" && !(f.Old == "" && f.Name == "addresses") { // of hosts without links
					rt.Errorf("%s", c)
				}
			}
			if len(c.Fields) == 0 {
				rt.Errorf("%s", c)
			}
		}
		again, _, _ := Write(back)
		if string(again) != string(data) {
			rt.Errorf("written again, the file is another:\n%s\n%s", data, again)
		}
	})
}

// TestPorts proves that a port is reported as lost exactly if it is not the one that the order of
// the links gives.
func TestPorts(t *testing.T) {
	port := func(p int) *int { return &p }
	top := &topology.Topology{}
	top.AddNode(topology.Switch, "s1")
	for _, h := range []string{"h1", "h2", "h3"} {
		top.AddNode(topology.Host, h)
		top.AddLink("s1", h)
	}
	top.Links[0].Ends[0].Port = port(1)
	top.Links[1].Ends[0].Port = port(5)
	top.Links = append(top.Links, &topology.Link{Ends: [2]topology.Endpoint{{Node: "s1"}, {Interface: "eth1"}}})
	_, losses, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range losses {
		got = append(got, l.String())
	}
	// MiniEdit attaches eth1 first: it gets port 1, and all others move.
	want := "link s1-h1: port at s1 (1)\nlink s1-h2: port at s1 (5)\nlink s1-h3: port at s1 (6)\nlink s1-eth1: port at s1 (7)"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
