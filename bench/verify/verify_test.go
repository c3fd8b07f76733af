package verify

import (
	"fmt"
	"math"
	"net"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// verifierOf a topology as it would be without a lab.
func verifierOf(t *testing.T, text string) *verifier {
	t.Helper()
	topo, problems := trivet.Read("t.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	topo, problems = topology.Resolve(topo, lab.Defaults)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	info := lab.Info{Topology: topo}
	for _, l := range topo.Links {
		info.Wires = append(info.Wires, lab.WireInfo{Link: l.Name(), Wire: datapath.Veth})
	}
	v := newVerifier(newNetwork(info), info)
	v.startResult()
	return v
}

func taskOf(t *testing.T, v *verifier, from, to string, several bool) *task {
	t.Helper()
	for _, one := range v.plan().tasks {
		if v.near(one.hop) == from && v.far(one.hop) == to && len(one.shares) > 1 == several {
			return one
		}
	}
	t.Fatalf("no task for %s → %s, several senders: %v", from, to, several)
	return nil
}

// A direction is measured by more than it is to carry wherever any pairs of hosts can bring so much
// over other links; where they cannot, the task names the narrowest of those. All that is sent fits
// the links on its way.
func TestTasks(t *testing.T) {
	star := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host, h3: host}\ndefaults: {link: {bandwidth: 10mbit}}\nlinks: [s1 -- h1, s1 -- h2, s1 -- h3]\n")
	in := taskOf(t, star, "s1", "h1", true)
	if in.narrow.link >= 0 || len(in.shares) != 2 || in.shares[0].from == in.shares[1].from || in.shares[0].to != "h1" {
		t.Errorf("two hosts of 10 Mbit/s bring enough to the third: %+v", in)
	}
	out := taskOf(t, star, "h1", "s1", true)
	if out.narrow.link >= 0 || out.shares[0].to == out.shares[1].to {
		t.Errorf("two hosts of 10 Mbit/s take enough from the third: %+v", out)
	}
	pair := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\ndefaults: {link: {bandwidth: 10mbit}}\nlinks: [s1 -- h1, s1 -- h2]\n")
	if alone := taskOf(t, pair, "s1", "h1", false); alone.narrow.link < 0 || pair.nameOf(alone.narrow) != "h2 → s1" {
		t.Errorf("nothing can show the second of two limits alike: %+v", alone)
	}
	wide := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2: {bandwidth: 10mbit}]\n")
	if alone := taskOf(t, wide, "s1", "h2", false); alone.narrow.link >= 0 || alone.shares[0].rate < enough*10e6 {
		t.Errorf("one host brings enough: %+v", alone)
	}
	for _, v := range []*verifier{star, pair, wide} {
		for _, one := range v.plan().tasks {
			sum := 0.0
			for _, s := range one.shares {
				sum += s.rate
				for _, h := range s.way {
					if r := v.rate(h); h != one.hop && r > 0 && s.rate > r*1.001 && one.narrow.link < 0 {
						t.Errorf("%s sends %v over %s, which carries %v", s.name(), s.rate, v.nameOf(h), r)
					}
				}
			}
			if one.narrow.link < 0 && sum < enough*v.rate(one.hop) {
				t.Errorf("%s: %v in sum is not enough for %v", v.nameOf(one.hop), sum, v.rate(one.hop))
			}
		}
	}
}

// The flows of a plan cross each direction that any packet can cross.
func TestCover(t *testing.T) {
	v := verifierOf(t, "nodes:\n  s[1-4]: switch\n  r1: router\n  h[1-8]: host\nlinks:\n"+
		"  - s1 -- s2 -- s3\n  - s3 -- r1\n  - r1 -- s4\n  - s1 -- h[1-3]\n  - s2 -- h4\n  - s3 -- h5\n  - s4 -- h[6-7]\n  - r1 -- h8\n")
	crossed := map[hop]bool{}
	for _, f := range v.plan().cover {
		for _, h := range f.way {
			crossed[h] = true
		}
	}
	if len(crossed) != 2*len(v.t.Links) {
		t.Errorf("%d of %d directions are crossed", len(crossed), 2*len(v.t.Links))
	}
}

// A direction is blamed for what is seen at its own ends: too much that comes out of it is wrong
// always; too little, only where more went in; what did not come to it is no fault of its own.
func TestFind(t *testing.T) {
	v := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2: {bandwidth: 10mbit}]\n")
	for _, c := range []struct {
		name    string
		in, out float64
		want    finding
	}{
		{"as asked", 15e6, 9.9e6, right}, {"more", 15e6, 14e6, tooMuch}, {"more, of unknown", math.NaN(), 11e6, tooMuch},
		{"less", 15e6, 8e6, tooLittle}, {"less came to it", 5e6, 5e6, atLeast}, {"less came to it, and less out of it", 5e6, 3e6, tooLittle},
		{"several ways", math.NaN(), 4e6, nothing},
	} {
		p := &passage{hop: hop{1, 0}, in: c.in, out: c.out, middle: c.out}
		p.drops = p.out < p.in*(1-rateOff)
		if got := v.find(p); got != c.want {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}

// What failed in some looks and held in others is never ok, and not wrong; what failed in all is.
func TestVerdict(t *testing.T) {
	v := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2: {bandwidth: 10mbit}]\n")
	for _, c := range []struct {
		right, failed int
		want          Verdict
	}{{1, 0, OK}, {2, 1, Untold}, {0, 3, Wrong}, {0, 0, Untold}} {
		e := &evidence{}
		for range c.right {
			e.holds(10e6)
		}
		for range c.failed {
			e.fails(5e6, "5 Mbit/s came")
		}
		got := v.verdict(Check{What: Rate, Asked: 10e6}, hop{1, 0}, e)
		if got.Verdict != c.want || got.Failed != c.failed || got.Looks != c.right+c.failed {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// A link is wrong whose ends saw full packets go in and none come out; links behind it, which got
// none, are not told.
func TestJudgeMTU(t *testing.T) {
	for _, c := range []struct {
		s    sizes
		want Verdict
	}{{sizes{1514, 1514, ""}, OK}, {sizes{1514, 1314, ""}, Wrong}, {sizes{1514, 60, ""}, Wrong}, {sizes{1314, 1314, ""}, Untold}, {sizes{1314, 60, ""}, Wrong}} {
		check := Check{What: MTU, Asked: 1500}
		if judgeMTU(&check, c.s); check.Verdict != c.want {
			t.Errorf("%+v: %+v", c.s, check)
		}
	}
}

// saw is a sample of a direction, the only one.
func (v *verifier) saw(h hop, s *sample) {
	v.seen[h], v.looks = []*sample{s}, 1
	v.judge()
}

// What nothing comes over is down, unless a controller of the user's own decides what goes there:
// it may be a firewall.
func TestJudgeFirewall(t *testing.T) {
	for controller, want := range map[string]Verdict{"trivet": Wrong, "none": Wrong, "tcp:127.0.0.1:6653": Untold} {
		v := verifierOf(t, "controller: "+controller+"\nnodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2]\n")
		v.saw(hop{1, 0}, &sample{of: 100, lost: 100, by: "h1 → h2"})
		v.saw(hop{0, 1}, &sample{of: 100, lost: 100, by: "h1 → h2"})
		for h, want := range map[hop]Verdict{{1, 0}: want, {0, 1}: Wrong} {
			for _, what := range []string{Up, Loss} {
				if c := v.check(h, what); c.Verdict != want {
					t.Errorf("controller %s, %s: %+v", controller, v.nameOf(h), c)
				}
			}
		}
	}
}

// TestJudgeNoRoute proves that a link into which a router puts nothing is not said to be down where
// the router may have no route over it, nor where nothing was put into it at all.
func TestJudgeNoRoute(t *testing.T) {
	text := "routes: %s\nnodes: {r1: {router: {datapath: kernel}}, h1: host, h2: host}\nlinks: [r1 -- h1, r1 -- h2]\n"
	for _, c := range []struct {
		routes   string
		lost, of int
		want     Verdict
	}{{"as-written", 100, 100, Untold}, {"computed", 100, 100, Wrong}, {"computed", 0, 0, Untold}, {"as-written", 50, 100, Wrong}} {
		v := verifierOf(t, fmt.Sprintf(text, c.routes))
		h := hop{1, 0}
		if v.near(h) != "r1" {
			h.out = 1
		}
		v.saw(h, &sample{of: c.of, lost: c.lost, by: "h1 → h2"})
		if got := v.check(h, Loss).Verdict; got != c.want {
			t.Errorf("%+v: loss is %s", c, got)
		}
		if got := v.check(h, Up).Verdict; c.lost == c.of && got != c.want {
			t.Errorf("%+v: up is %s", c, got)
		}
	}
}

// The machine's own address is no way out of the lab where one of its nodes has it too, at a link
// or on its loopback.
func TestMachineAddress(t *testing.T) {
	v := verifierOf(t, "nodes: {r1: {router: {loopback: 192.0.2.2}}, h1: host}\nlinks: [h1 -- r1]\n")
	at := func(text string) net.Addr {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return &net.IPNet{IP: ip, Mask: n.Mask}
	}
	all := []net.Addr{at("127.0.0.1/8"), at("192.0.2.2/24"), at(v.address["h1"].String() + "/24"), at("fd00::9/64"), at("198.51.100.7/24")}
	if got := machineAddress(v.t, all[:4]); got.IsValid() {
		t.Errorf("%s is of the lab", got)
	}
	if got := machineAddress(v.t, all); got.String() != "198.51.100.7" {
		t.Errorf("got %s", got)
	}
}

// A name is known by what stands first in /etc/hosts, of each family.
func TestNoName(t *testing.T) {
	v := verifierOf(t, "ipv6: assigned\nnodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n")
	a, b := v.address["h1"].String(), v.address["h2"].String()
	for _, c := range []struct{ hosts, node, want string }{
		{b + " h2", "h1", ""},
		{b + " h2\n" + a + " h2", "h1", ""},
		{a + " h2\n" + b + " h2", "h1", "as " + a},
		{"fd00::77 h2\n" + b + " h2", "h1", "as fd00::77"},
		{"127.0.1.1 h2", "h1", "as 127.0.1.1"},
		{"127.0.1.1 h2\n" + b + " h2", "h2", ""}, // itself
		{b + " h22", "h1", "does not resolve"},
	} {
		got := noName(&seen{Hosts: c.hosts}, c.node, "h2", v.t)
		if got != "" != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%q in %s: %q, not %q", c.hosts, c.node, got, c.want)
		}
	}
}

// What is lost on the way is lost where it was seen last, also where the taps at both ends of a
// link saw it at the same time; at a switch, on the way to whose MAC address it has; and nowhere
// where that is nobody's that is listened at.
func TestFollow(t *testing.T) {
	v := verifierOf(t, chain)
	mac := func(node string) string {
		for _, l := range v.t.Links {
			for _, e := range l.Ends {
				if e.Node == node {
					return e.MAC.String()
				}
			}
		}
		t.Fatal(node)
		return ""
	}
	flow := &flow{from: "h1", to: "h3", way: v.back(v.tree("h1", nil), "h3")}
	sight := func(i int, to string) sighting { // what the i-th direction of the way brought
		h := flow.way[i]
		s := packets.Sight{Device: v.t.Links[h.link].DeviceAt(1 - h.out), To: to}
		for n := range 20 {
			s.Numbers, s.At = append(s.Numbers, uint64(n)), append(s.At, int64(n)) // everywhere at once
		}
		return sighting{place: v.placeOf(v.far(h)), Sight: s}
	}
	for _, c := range []struct {
		what   string
		sights []sighting
		want   string
	}{
		{"at the receiver's link", []sighting{sight(2, mac("h3")), sight(1, mac("r1")), sight(0, mac("r1"))}, "s2 → h3"},
		{"at the router", []sighting{sight(1, mac("r1")), sight(0, mac("r1"))}, "r1 → s2"},
		{"on the way to the router", []sighting{sight(0, mac("r1"))}, "s1 → r1"},
		{"sent to another host", []sighting{sight(0, mac("h2"))}, ""},
		{"sent to nobody", []sighting{sight(1, "02:00:00:00:00:99"), sight(0, "02:00:00:00:00:99")}, ""},
	} {
		tr := &trace{flow: flow, sent: 24, full: 4, frame: 1514}
		v.follow(tr, c.sights, nil)
		got := ""
		if hops := tr.points[len(tr.points)-1].hops; len(hops) > 0 {
			got = v.nameOf(hops[len(hops)-1])
		}
		if got != c.want || tr.wayTaken() != nil || len(tr.points) != len(c.sights)+2 {
			t.Errorf("%s: lost on %q, not on %q; %d points", c.what, got, c.want, len(tr.points))
		}
	}
}

// A router that sends packets by a way that costs OSPF more than another is named; where several
// cost the same, or it is not known what they cost, none is.
func TestDetour(t *testing.T) {
	const ring = `
controller: none
nodes: {'r[1-4]': {router: {datapath: frr, ospf: area 0}}, 'h[1-3]': host}
links: [r1 -- r2: {ospf: {cost: 10}}, r2 -- r3, r3 -- r1, r3 -- r4, r4 -- r2, h1 -- r1, h2 -- r2, h3 -- r3]
`
	way := func(v *verifier, names ...string) (way []hop) {
		for i := 1; i < len(names); i++ {
			for _, h := range v.leaving[names[i-1]] {
				if v.far(h) == names[i] {
					way = append(way, h)
				}
			}
		}
		return way
	}
	v := verifierOf(t, ring)
	to := func(a, b string) *flow { return &flow{from: a, to: b} }
	if got := v.detour(to("h1", "h2"), way(v, "h1", "r1", "r3", "r2", "h2")); got != "" {
		t.Error(got)
	}
	if got := v.detour(to("h1", "h2"), way(v, "h1", "r1", "r2", "h2")); !strings.Contains(got, "r1 sends what is for h2 by r2") {
		t.Errorf("by the link that costs 10: %q", got)
	}
	if got := v.detour(to("h3", "h2"), way(v, "h3", "r3", "r4", "r2", "h2")); !strings.Contains(got, "r3 sends what is for h2 by r4") {
		t.Errorf("one router more: %q", got)
	}
	v = verifierOf(t, strings.Replace(ring, "area 0}}", "area 0, start: 'true'}}", 1))
	if got := v.detour(to("h1", "h2"), way(v, "h1", "r1", "r2", "h2")); got != "" {
		t.Errorf("routers with start commands: %q", got)
	}
}

// TestDevices proves what is expected of directions at nodes that stand for slow devices: the
// link's delay and what the device takes, at the end where packets go through it, of a host both
// ways; that a device that is faster or slower than its model is found, and one as it should be is
// not; that streams are thin enough for it; and that rates are measured only by ways that lead
// through none.
func TestDevices(t *testing.T) {
	v := verifierOf(t, "nodes: {h1: host, h2: host, s2: switch, s1: {switch: {model: {per_packet: 4ms, source: x}}}, pi: {host: {model: {per_packet: 1ms, rate: 10mbit, source: x}}}}\n"+
		"defaults: {link: {bandwidth: 10mbit}}\nlinks: [h1 -- s1, s1 -- s2: {delay: 2ms}, s2 -- h2, s2 -- pi]\n")
	of := func(from, to string) hop {
		for i := range v.t.Links {
			for out := range 2 {
				if h := (hop{i, out}); v.near(h) == from && v.far(h) == to {
					return h
				}
			}
		}
		t.Fatalf("there is no link %s → %s", from, to)
		return hop{}
	}
	took := func(ms float64) []float64 { return []float64{ms / 1e3, ms / 1e3, ms / 1e3} }
	for _, c := range []struct {
		from, to string
		want     float64 // ms
	}{{"h1", "s1", 4}, {"s1", "h1", 0}, {"s2", "s1", 6}, {"s1", "s2", 2}, {"s2", "pi", 1.064}, {"pi", "s2", 1.064}, {"s2", "h2", 0}} {
		h := of(c.from, c.to)
		asked := v.check(h, Delay).Asked
		if math.Abs(asked*1e3-c.want) > 1e-9 {
			t.Errorf("%s → %s: %v ms are asked, not %v", c.from, c.to, asked*1e3, c.want)
		}
		if why, _ := v.delayed(asked, h, took(c.want)); why != "" {
			t.Errorf("%s → %s, as it should be: %s", c.from, c.to, why)
		}
		if why, late := v.delayed(asked, h, took(c.want+20)); why == "" || !late {
			t.Errorf("%s → %s, 20 ms too slow: %s", c.from, c.to, why)
		}
		if why, late := v.delayed(asked, h, took(0.05)); c.want >= 1 && (why == "" || late) {
			t.Errorf("%s → %s, too fast: %s", c.from, c.to, why)
		}
	}
	for _, task := range v.plan().tasks {
		for _, s := range task.shares {
			if d := v.throughDevice(s.way); d != nil {
				t.Errorf("the rate of %s is measured through %s", v.nameOf(task.hop), d.Name)
			}
		}
	}
	way := []hop{of("h1", "s1"), of("s1", "s2"), of("s2", "h2")}
	for streams, together := range map[int]int{1: 1, 3: 3, 1000: v.atOnce()} { // no slower than need be, either
		crossing := map[*topology.Node]int{v.nodes["s1"]: streams, v.nodes["s2"]: streams}
		if p := v.paceOf(way, map[hop]int{}, crossing, true); math.Abs(p.rate*0.004*float64(together)-sparing) > 1e-9 {
			t.Errorf("%v packets/s, %d streams through a device of 4 ms each", p.rate, streams)
		}
	}
	if why := v.whyNoRate(of("h1", "s1")); !strings.Contains(why, "modelled device s1") {
		t.Error(why)
	}
}
