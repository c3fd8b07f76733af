package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// build makes a topology from a short text: "h:h1 s:s1 r:r1" are nodes (n: a NAT), "h1-s1" links.
func build(t testing.TB, text string) *Topology {
	t.Helper()
	top := &Topology{Name: "t"}
	for _, word := range strings.Fields(text) {
		if kind, name, ok := strings.Cut(word, ":"); ok {
			n := top.AddNode(map[string]Kind{"h": Host, "s": Switch, "r": Router, "n": Router, "c": Controller}[kind], name)
			n.NAT = kind == "n"
			continue
		}
		a, b, ok := strings.Cut(word, "-")
		if !ok {
			t.Fatalf("%q is no node or link", word)
		}
		top.AddLink(a, b)
	}
	return top
}

var plain = Defaults{Datapath: Bridge, Controller: ControllerNone}

func resolved(t testing.TB, top *Topology) *Topology {
	t.Helper()
	r, problems := Resolve(top, plain)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// addressesOf lists all addresses in the order of the links: "h1 10.0.0.1/8".
func addressesOf(t *Topology) string {
	var out []string
	for _, l := range t.Links {
		for _, e := range l.Ends {
			for _, a := range e.Addresses {
				out = append(out, e.Node+" "+a.String())
			}
		}
	}
	return strings.Join(out, ", ")
}

func prefixes(words ...string) (out []netip.Prefix) {
	for _, w := range words {
		out = append(out, netip.MustParsePrefix(w))
	}
	return out
}

// TestAddresses proves which addresses are assigned in flat and routed networks, alongside given
// ones, behind a NAT, in both families, and in the smallest subnets.
func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		edit func(*Topology)
		want string
	}{
		"flat": {"h:h1 h:h2 s:s1 h1-s1 h2-s1", nil, "h1 10.0.0.1/8, h2 10.0.0.2/8"},
		"flat: apart, but one pool": {"h:h1 h:h2 h:h3 h:h4 h1-h2 h3-h4", nil,
			"h1 10.0.0.1/8, h2 10.0.0.2/8, h3 10.0.0.3/8, h4 10.0.0.4/8"},
		"flat: the second interface has none": {"h:h1 s:s1 s:s2 h1-s1 h1-s2", nil, "h1 10.0.0.1/8"},
		"flat: given, counted on":             {"h:h1 h:h2 h:h3 s:s1 h1-s1 h2-s1 h3-s1", func(t *Topology) { t.Nodes[0].Addresses = prefixes("10.0.0.3/8") }, "h1 10.0.0.3/8, h2 10.0.0.2/8, h3 10.0.0.4/8"},
		"flat: a subnet":                      {"h:h1 h:h2 s:s1 h1-s1 h2-s1", func(t *Topology) { t.Subnet = netip.MustParsePrefix("192.168.7.0/24") }, "h1 192.168.7.1/24, h2 192.168.7.2/24"},
		"flat: from the middle":               {"h:h1 h:h2 s:s1 h1-s1 h2-s1", func(t *Topology) { t.Subnet = netip.MustParsePrefix("10.0.0.100/24") }, "h1 10.0.0.100/24, h2 10.0.0.101/24"},
		"flat: just enough":                   {"h:h1 h:h2 s:s1 h1-s1 h2-s1", func(t *Topology) { t.Subnet = netip.MustParsePrefix("10.1.1.0/30") }, "h1 10.1.1.1/30, h2 10.1.1.2/30"},
		"flat: both families": {"h:h1 h:h2 h1-h2", func(t *Topology) { t.IPv6 = IPv6Assigned },
			"h1 10.0.0.1/8, h1 fd00::1/64, h2 10.0.0.2/8, h2 fd00::2/64"},
		"NAT alone is flat": {"h:h1 s:s1 n:nat h1-s1 nat-s1", nil, "h1 10.0.0.1/8, nat 10.0.0.2/8"},
		"routed": {"h:h1 h:h2 r:r1 h1-r1 h2-r1", nil,
			"h1 10.0.1.2/24, r1 10.0.1.1/24, h2 10.0.2.2/24, r1 10.0.2.1/24"},
		"routed: between routers": {"r:r1 r:r2 h:h1 h1-r1 r1-r2", nil, "h1 10.0.1.2/24, r1 10.0.1.1/24, r1 172.16.0.1/30, r2 172.16.0.2/30"},
		"routed: given to one": {"h:h1 h:h2 s:s1 r:r1 h1-s1 h2-s1 s1-r1", func(t *Topology) { t.Nodes[1].Addresses = prefixes("10.9.0.7/16") },
			"h1 10.9.0.2/16, h2 10.9.0.7/16, r1 10.9.0.1/16"},
		"routed: past a given subnet": {"h:h1 h:h2 r:r1 h1-r1 h2-r1", func(t *Topology) { t.Nodes[0].Addresses = prefixes("10.0.1.9/24") },
			"h1 10.0.1.9/24, r1 10.0.1.1/24, h2 10.0.2.2/24, r1 10.0.2.1/24"},
		"routed: past a large given subnet": {"h:h1 h:h2 r:r1 h1-r1 h2-r1", func(t *Topology) { t.Nodes[0].Addresses = prefixes("10.0.9.9/16") },
			"h1 10.0.9.9/16, r1 10.0.0.1/16, h2 10.1.0.2/24, r1 10.1.0.1/24"},
		"routed: two in a /31": {"r:r1 r:r2 r1-r2", func(t *Topology) { t.Links[0].Ends[0].Addresses = prefixes("10.9.9.1/31") },
			"r1 10.9.9.1/31, r2 10.9.9.0/31"},
		"routed: the pool is one subnet": {"h:h1 r:r1 h1-r1", func(t *Topology) { t.Subnet = netip.MustParsePrefix("192.168.1.0/24") },
			"h1 192.168.1.2/24, r1 192.168.1.1/24"},
		"routed: IPv6": {"h:h1 r:r1 r:r2 h1-r1 r1-r2", func(t *Topology) { t.IPv6 = IPv6Assigned },
			"h1 10.0.1.2/24, h1 fd00::2/64, r1 10.0.1.1/24, r1 fd00::1/64, r1 172.16.0.1/30, r1 fd00:ffff::1/64, r2 172.16.0.2/30, r2 fd00:ffff::2/64"},
	} {
		top := build(t, c.text)
		if c.edit != nil {
			c.edit(top)
		}
		if got := addressesOf(resolved(t, top)); got != c.want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", name, got, c.want)
		}
	}
}

// TestLargeSegment proves that a segment with more hosts than a /24 holds gets the smallest subnet
// that does.
func TestLargeSegment(t *testing.T) {
	top := build(t, "r:r1 s:s1 r1-s1")
	for i := range 254 {
		name := fmt.Sprintf("h%d", i+1)
		top.AddNode(Host, name)
		top.AddLink(name, "s1")
	}
	r := resolved(t, top) // 255 interfaces, and a /24 has 254
	if got := r.Links[0].Ends[0].Addresses[0]; got != netip.MustParsePrefix("10.0.2.1/23") {
		t.Errorf("the router has %s", got)
	}
	if got := r.Links[254].Ends[0].Addresses[0]; got != netip.MustParsePrefix("10.0.2.255/23") {
		t.Errorf("the last host has %s", got)
	}
}

// TestResolveProblems proves that what cannot be assigned, or would clash, is an error that names
// it, and that nothing is assigned twice or left out.
func TestResolveProblems(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		edit func(*Topology)
		want string
	}{
		"full flat subnet": {"h:h1 h:h2 h:h3 s:s1 h1-s1 h2-s1 h3-s1", func(t *Topology) { t.Subnet = netip.MustParsePrefix("10.1.1.0/30") },
			"subnet 10.1.1.0/30 has too few addresses for all hosts"},
		"full given subnet": {"h:h1 h:h2 r:r1 s:s1 h1-s1 h2-s1 r1-s1", func(t *Topology) { t.Nodes[0].Addresses = prefixes("10.1.1.1/30") },
			"subnet 10.1.1.0/30 has too few addresses for 3 interfaces"},
		"full pool": {"h:h1 h:h2 r:r1 h1-r1 h2-r1", func(t *Topology) { t.Subnet = netip.MustParsePrefix("10.1.1.0/24") },
			"subnet 10.1.1.0/24 has too few addresses for all segments"},
		"an endless given subnet": {"h:h1 h:h2 r:r1 h1-r1 h2-r1", func(t *Topology) {
			t.IPv6, t.Subnet6 = IPv6Assigned, netip.MustParsePrefix("fd00::/8")
			t.Nodes[0].Addresses = prefixes("fd00::1/8")
		}, "subnet fd00::/8 has too few addresses for all segments"},
		"a MAC twice": {"h:h1 h:h2 s:s1 h1-s1 h2-s1", func(t *Topology) {
			t.Nodes[0].MAC, t.Nodes[1].MAC = MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 1}
		}, "02:00:00:00:00:01 of h2 is also the MAC of h1"},
		"a dpid twice": {"s:s1 s:s2", func(t *Topology) { t.Nodes[0].DPID, t.Nodes[1].DPID = 5, 5 }, "switch s2: the dpid 0000000000000005 is already that of s1"},
		"a device twice": {"s:s1 s:s1-eth1 h:h1 s1-h1", func(t *Topology) {
			t.Nodes = append(t.Nodes, &Node{Name: "s1-eth1", Kind: Switch})
		}, "the device name s1-eth1 at s1 is taken by switch s1-eth1"},
	} {
		text := strings.ReplaceAll(c.text, "s:s1-eth1 ", "") // edit adds a name with a dash
		top := build(t, text)
		c.edit(top)
		r, problems := Resolve(top, plain)
		if err := problems.Err(); r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestGateways proves that a host's default route is through the first router of its segment, in
// both families, and that given ones stay.
func TestGateways(t *testing.T) {
	top := build(t, "h:h1 h:h2 s:s1 r:r1 r:r2 h:h3 h1-s1 h2-s1 s1-r1 s1-r2 r2-h3")
	top.IPv6 = IPv6Assigned
	top.Nodes[1].Gateways = []netip.Addr{netip.MustParseAddr("10.0.1.2")}
	r := resolved(t, top)
	for node, want := range map[string]string{"h1": "[10.0.1.1 fd00::1]", "h2": "[10.0.1.2 fd00::1]", "h3": "[10.0.2.1 fd00:0:0:1::1]"} {
		if got := fmt.Sprint(r.Node(node).Gateways); got != want {
			t.Errorf("%s: gateways %s, want %s", node, got, want)
		}
	}
	nat := resolved(t, build(t, "h:h1 s:s1 n:nat h1-s1 nat-s1"))
	if got := fmt.Sprint(nat.Node("h1").Gateways); got != "[10.0.0.2]" {
		t.Errorf("behind a NAT: gateways %s", got)
	}
}

// TestPorts proves that ports count from 1 at switches and from 0 elsewhere, continue after the
// highest, and skip given ones.
func TestPorts(t *testing.T) {
	top := build(t, "h:h1 h:h2 h:h3 h:h4 s:s1 h1-s1 h2-s1 h3-s1 h4-s1 h1-h2")
	two, seven := 2, 7
	top.Links[1].Ends[1].Port, top.Links[3].Ends[1].Port = &seven, &two
	var got []string
	for _, l := range resolved(t, top).Links {
		got = append(got, l.Ends[0].Interface+" "+l.Ends[1].Interface)
	}
	want := []string{"h1-eth0 s1-eth1", "h2-eth0 s1-eth7", "h3-eth0 s1-eth8", "h4-eth0 s1-eth2", "h1-eth1 h2-eth1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDPIDs proves that a datapath id is the first number in the name, that given ones take
// precedence, and that the others get the lowest free ones.
func TestDPIDs(t *testing.T) {
	top := build(t, "s:s1 s:core s:x2y9 s:s01 s:s999999999999999999999 s:s0 s:s3")
	top.Nodes[6].DPID = 2
	var got []uint64
	for _, n := range resolved(t, top).Nodes {
		got = append(got, uint64(n.DPID))
	}
	if want := []uint64{1, 3, 4, 5, 6, 7, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestDeviceNames proves that device names fit into 15 bytes, differ if nodes or ports do, keep the
// port's number, and stay as they are if they are short.
func TestDeviceNames(t *testing.T) {
	if got := DeviceName("fifteen-eth1000"); got != "fifteen-eth1000" {
		t.Errorf("a name that fits became %s", got)
	}
	seen := map[string]string{}
	for _, node := range []string{"a-rather-long-name", "a-rather-long-nam", "another-rather-long-name", strings.Repeat("x", 63)} {
		for _, port := range []string{"-eth0", "-eth1", "-eth12", "-eth123", "-eth1234", "-eth65279", ""} {
			name := DeviceName(node + port)
			if len(name) > MaxDeviceName || !deviceName.MatchString(name) || len(port) <= 8 && !strings.HasSuffix(name, port) {
				t.Errorf("%s%s: %s", node, port, name)
			}
			if seen[name] != "" {
				t.Errorf("%s%s and %s are both %s", node, port, seen[name], name)
			}
			seen[name] = node + port
		}
	}
}

// TestMACsStay proves that a MAC address depends only on the names of topology, node and device:
// not on what else there is, nor on order.
func TestMACsStay(t *testing.T) {
	macs := func(t *Topology) map[string]MAC {
		out := map[string]MAC{}
		for _, l := range t.Links {
			for _, e := range l.Ends {
				out[e.Interface] = e.MAC
			}
		}
		return out
	}
	before := macs(resolved(t, build(t, "h:h1 h:h2 s:s1 h1-s1 h2-s1")))
	after := macs(resolved(t, build(t, "h:h9 s:s1 h:h2 h:h1 h1-s1 h2-s1 h9-s1")))
	for device, mac := range before {
		if after[device] != mac || mac[0] != 2 {
			t.Errorf("%s: %s became %s", device, mac, after[device])
		}
	}
	other := build(t, "h:h1 h:h2 s:s1 h1-s1 h2-s1")
	other.Name = "u"
	if macs(resolved(t, other))["h1-eth0"] == before["h1-eth0"] {
		t.Error("two topologies share a MAC")
	}
	seen := map[MAC]bool{}
	for _, l := range resolved(t, mustGenerate(t, "single,5000")).Links {
		for _, e := range l.Ends {
			if seen[e.MAC] {
				t.Fatalf("%s is there twice", e.MAC)
			}
			seen[e.MAC] = true
		}
	}
}

// TestDefaults proves that fail modes, controllers and datapaths are what the node specifies, else
// the file, else the command line's default; that overrides win, and do not affect nodes of other
// kinds; and that a router is a routing node if a controller routes.
func TestDefaults(t *testing.T) {
	top := build(t, "s:s1 s:s2 r:r1 n:nat h:h1 s1-h1 s2-h1 r1-s1 nat-s2")
	top.Controllers, top.Nodes[0].Controllers, top.Nodes[1].Datapath = []string{"tcp:127.0.0.1:6653"}, []string{ControllerNone}, OVS
	show := func(d Defaults) string {
		r, problems := Resolve(top, d)
		if r == nil {
			t.Fatal(problems)
		}
		var out []string
		for _, n := range r.Nodes[:4] {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s:%s %s %s", n.Name, n.Datapath, strings.Join(n.Controllers, "+"), n.FailMode)))
		}
		return strings.Join(out, ", ")
	}
	for want, d := range map[string]Defaults{
		"s1:bridge none standalone, s2:ovs tcp:127.0.0.1:6653 secure, r1:kernel, nat:kernel":        {Datapath: Bridge, Controlled: OVS},
		"s1:ovs none standalone, s2:ovs none standalone, r1:kernel, nat:kernel":                     {Datapath: Bridge, OverrideDatapath: OVS, OverrideController: []string{ControllerNone}},
		"s1:embedded none standalone, s2:embedded tcp:127.0.0.1:6653 secure, r1:kernel, nat:kernel": {OverrideDatapath: Embedded},
		"s1:embedded trivet secure, s2:ovs trivet secure, r1:embedded trivet secure, nat:kernel":    {OverrideController: []string{ControllerTrivet}, Controlled: Embedded, OverrideDatapath: ""},
	} {
		if got := show(d); got != want {
			t.Errorf("got\n  %s\nwant\n  %s", got, want)
		}
	}
}

// follow walks from a router towards an address along the next hops; it returns the router that
// owns the address's subnet.
func follow(t *Topology, from *Node, to netip.Addr) (reached string, err error) {
	owner := map[netip.Addr]*Node{}
	connected := map[string][]netip.Prefix{}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			for _, a := range e.Addresses {
				owner[a.Addr()] = t.Node(e.Node)
				connected[e.Node] = append(connected[e.Node], a.Masked())
			}
		}
	}
	at := from
	for range len(t.Nodes) + 1 {
		for _, p := range connected[at.Name] {
			if p.Contains(to) {
				return at.Name, nil
			}
		}
		i := slices.IndexFunc(at.Routes, func(r Route) bool { return r.To.Contains(to) })
		if i < 0 {
			return "", fmt.Errorf("%s has no route to %s", at.Name, to)
		}
		via := at.Routes[i].Via
		if !slices.ContainsFunc(connected[at.Name], func(p netip.Prefix) bool { return p.Contains(via) }) {
			return "", fmt.Errorf("%s: the next hop %s is not beside it", at.Name, via)
		}
		if at = owner[via]; at == nil {
			return "", fmt.Errorf("nobody has the next hop %s", via)
		}
	}
	return "", fmt.Errorf("a loop on the way from %s to %s", from.Name, to)
}

// routerGraphs draws connected networks of routers, some connected by switches, some with a host.
var routerGraphs = rapid.Custom(func(t *rapid.T) *Topology {
	top := &Topology{Name: "t", IPv6: rapid.SampledFrom([]IPv6{IPv6Off, IPv6Assigned}).Draw(t, "ipv6")}
	n := rapid.IntRange(2, 9).Draw(t, "routers")
	for i := range n {
		name := fmt.Sprintf("r%d", i+1)
		top.AddNode(Router, name)
		if i > 0 {
			top.AddLink(name, fmt.Sprintf("r%d", rapid.IntRange(1, i).Draw(t, "beside")))
		}
		if rapid.Bool().Draw(t, "host") {
			top.AddNode(Host, "h"+name)
			top.AddLink("h"+name, name)
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "more") {
		a, b := rapid.IntRange(1, n).Draw(t, "a"), rapid.IntRange(1, n).Draw(t, "b")
		if a != b {
			top.AddLink(fmt.Sprintf("r%d", a), fmt.Sprintf("r%d", b))
		}
	}
	if rapid.Bool().Draw(t, "lan") {
		top.AddNode(Switch, "s1")
		for i := range rapid.IntRange(1, n).Draw(t, "at the lan") {
			top.AddLink("s1", fmt.Sprintf("r%d", i+1))
		}
	}
	return top
})

// TestRoutesReach proves that in any connected network of routers, following the static routes from
// any router reaches every address, through next hops that exist and are adjacent, without a loop;
// and that RouterHops bounds the path.
func TestRoutesReach(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top := routerGraphs.Draw(rt, "topology")
		r, problems := Resolve(top, plain)
		if r == nil {
			rt.Fatal(problems)
		}
		if r.RouterHops < 1 && len(r.NodesOf(Router)) > 1 || r.RouterHops > len(r.NodesOf(Router)) {
			rt.Fatalf("%d hops over %d routers", r.RouterHops, len(r.NodesOf(Router)))
		}
		for _, from := range r.NodesOf(Router) {
			for _, l := range r.Links {
				for _, e := range l.Ends {
					for _, a := range e.Addresses {
						if _, err := follow(r, from, a.Addr()); err != nil {
							rt.Fatal(err)
						}
					}
				}
			}
		}
	})
}

// TestRoutesOnRing proves that on a ring, the routes take the shorter way round, and the longest
// path crosses half the ring.
func TestRoutesOnRing(t *testing.T) {
	top, err := Generate("ring,6", GenerateOptions{Nodes: Router})
	if err != nil {
		t.Fatal(err)
	}
	r := resolved(t, top)
	if r.RouterHops != 4 {
		t.Errorf("the longest way crosses %d routers, want 4", r.RouterHops)
	}
	lan := func(node string) netip.Prefix {
		i := slices.IndexFunc(r.Links, func(l *Link) bool { return l.Joins(node, strings.Replace(node, "r", "h", 1)) })
		return r.Links[i].Ends[0].Addresses[0].Masked()
	}
	for _, to := range []string{"r2", "r3"} {
		for _, route := range r.Node("r1").Routes {
			if route.To == lan(to) && !slices.ContainsFunc(endsAt(r, "r2"), func(p netip.Prefix) bool { return p.Addr() == route.Via }) {
				t.Errorf("r1 goes to %s via %s, not by r2", to, route.Via)
			}
		}
	}
}

// TestRouteOfSubnetGivenTwice proves that for a subnet that is given to two links, as a file may
// do, each router has one route, to the nearer link, and none if it is connected to either.
func TestRouteOfSubnetGivenTwice(t *testing.T) {
	top := build(t, "r:r1 r:r2 r:r3 r:r4 h:h1 h:h4 r1-r2 r2-r3 r3-r4 h1-r1 h4-r4")
	for _, l := range top.Links[3:] {
		l.Ends[1].Addresses = prefixes("192.0.2.1/24")
	}
	r := resolved(t, top)
	twice := netip.MustParsePrefix("192.0.2.0/24")
	for name, toward := range map[string]string{"r1": "", "r2": "r1", "r3": "r4", "r4": ""} {
		var by []netip.Addr
		for _, route := range r.Node(name).Routes {
			if route.To == twice {
				by = append(by, route.Via)
			}
		}
		switch at := func(p netip.Prefix) bool { return p.Addr() == by[0] }; {
		case toward == "" && len(by) == 0:
		case toward != "" && len(by) == 1 && slices.ContainsFunc(endsAt(r, toward), at):
		default:
			t.Errorf("%s goes there by %v, not by %q", name, by, toward)
		}
	}
}

func endsAt(t *Topology, node string) (out []netip.Prefix) {
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node == node {
				out = append(out, e.Addresses...)
			}
		}
	}
	return out
}

// TestGivenRoutesStay proves that routes given by the user are left alone, and none are added to
// them.
func TestGivenRoutesStay(t *testing.T) {
	top := build(t, "r:r1 r:r2 h:h1 h:h2 h1-r1 r1-r2 r2-h2")
	given := Route{To: netip.MustParsePrefix("10.0.2.0/24"), Via: netip.MustParseAddr("172.16.0.2")}
	top.Nodes[0].Routes = []Route{given}
	r := resolved(t, top)
	if len(r.Nodes[0].Routes) != 1 || r.Nodes[0].Routes[0] != given || len(r.Nodes[1].Routes) != 0 {
		t.Errorf("routes %v and %v", r.Nodes[0].Routes, r.Nodes[1].Routes)
	}
}

// TestResolveWarnings proves that a topology that can be made, but is probably not what was meant,
// gets warnings: for an address that two interfaces share, and for one at a switch's port, which is
// left out.
func TestResolveWarnings(t *testing.T) {
	top := build(t, "h:h1 h:h2 s:s1 h1-s1 h2-s1")
	top.Nodes[0].Addresses, top.Nodes[1].Addresses = prefixes("10.0.0.1/8"), prefixes("10.0.0.1/24")
	top.Links[0].Ends[1].Addresses = prefixes("10.0.0.254/8")
	r, problems := Resolve(top, Defaults{Datapath: Bridge})
	if problems.Err() != nil || len(r.Links[0].Ends[1].Addresses) > 0 {
		t.Fatal(r, problems)
	}
	for _, want := range []string{"warning: 10.0.0.1 of h2 is also the address of h1", "warning: link h1-s1: a port of switch s1 has no address: 10.0.0.254/8 is left out"} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("%q is not in\n%v", want, problems)
		}
	}
}

// TestShortMAC proves that MAC addresses are read in the forms used by people and by Mininet's
// scripts.
func TestShortMAC(t *testing.T) {
	for text, want := range map[string]string{"0:0:0:0:0:2": "00:00:00:00:00:02", "02-0-0-A-b-1": "02:00:00:0a:0b:01", "02:00:00:00:00:01": "02:00:00:00:00:01"} {
		if m, err := ParseMAC(text); err != nil || m.String() != want {
			t.Errorf("%s: %s %v", text, m, err)
		}
	}
	for _, text := range []string{"0:0:0:0:2", "0:0:0:0:0:0:2", "000:0:0:0:0:2", "0::0:0:0:0:2", ":0:0:0:0:0:2", "020000000001", "0:0:0:0:0:x"} {
		if m, err := ParseMAC(text); err == nil {
			t.Errorf("%s is %s", text, m)
		}
	}
}

// TestRoutesAsWritten proves that as-written adds nothing: no gateway, no route, no address to a
// router that has some; and that there is a warning about this, but not for a router that
// masquerades, nor if routes are given by hand.
func TestRoutesAsWritten(t *testing.T) {
	top := build(t, "h:h1 h:h2 h:h3 r:r1 r:r2 h1-r1 h2-r2 r1-r2 h3-r2")
	top.Nodes[3].Addresses, top.Nodes[4].Addresses = prefixes("10.1.0.1/24"), prefixes("10.2.0.1/24")
	top.Nodes[0].Addresses, top.Nodes[1].Addresses = prefixes("10.1.0.2/24"), prefixes("10.2.0.2/24")
	top.Nodes[1].Gateways = []netip.Addr{netip.MustParseAddr("10.2.0.1")}
	top.Links[2].Ends[0].Addresses = prefixes("10.9.0.1/30")
	top.Links[2].Ends[1].Addresses = prefixes("10.9.0.2/30")
	top.Routes = RoutesAsWritten
	r, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Kernel})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	if len(r.Node("h1").Gateways)+len(r.Node("r1").Routes)+len(r.Node("r2").Routes)+len(r.Links[3].Ends[1].Addresses) > 0 || r.RouterHops != 2 {
		t.Errorf("something was added: %+v", r)
	}
	for _, want := range []string{"no gateway is written for h1;", "no route is written for r1, r2, to which some subnets are not connected; --routes computed"} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("%q is not in\n%v", want, problems)
		}
	}
	top.Nodes[4].Routes = []Route{{To: netip.MustParsePrefix("10.1.0.0/24"), Device: "r2-eth1"}}
	top.Nodes[3].Masquerade = []Masquerade{{From: netip.MustParsePrefix("10.1.0.0/24")}}
	if _, problems = Resolve(top, Defaults{Datapath: Bridge, Controlled: Kernel}); len(problems) > 0 {
		t.Error(problems)
	}
	top.Nodes[4].Routes[0].Device = "r2-eth7"
	if _, problems = Resolve(top, Defaults{Datapath: Bridge, Controlled: Kernel}); !strings.Contains(problems.Error(), "it has no device r2-eth7; did you mean r2-eth0?") {
		t.Error(problems)
	}
	top.Nodes[4].Routes, top.Nodes[3].Masquerade = nil, nil
	if _, problems = Resolve(top, Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet}); !strings.Contains(problems.Error(), "r1 is a routing node, which finds its routes itself") {
		t.Error(problems)
	}
}

// TestUnaddressed proves that interfaces that are to have no address get none, of neither family,
// whether a link's end or a node says so; that nothing else changes its address by that, and no
// route leads to or through such a router; and that resolving the result changes nothing.
func TestUnaddressed(t *testing.T) {
	make := func(edit func(top *Topology)) (*Topology, Problems) {
		top := build(t, "h:h1 h:h2 r:r1 r:r2 r:r3 h1-r1 h2-r2 r1-r2 r1-r3 r3-r2")
		top.IPv6 = IPv6Assigned
		edit(top)
		return Resolve(top, Defaults{Datapath: Bridge, Controlled: Kernel})
	}
	usual, _ := make(func(*Topology) {})
	drop := func(of string, lists ...string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(of, ", "), func(s string) bool {
			return slices.ContainsFunc(lists, func(p string) bool { return strings.HasPrefix(s, p) })
		}), ", ")
	}
	for name, c := range map[string]struct {
		edit func(*Topology)
		want string
	}{
		"an end": {func(top *Topology) { top.Links[2].Ends[0].Unaddressed = true }, drop(addressesOf(usual), "r1 172.16.0.1", "r1 fd00:ffff::1/")},
		"a node": {func(top *Topology) { top.Node("r1").Unaddressed = true }, drop(addressesOf(usual), "r1 ")},
		"a host": {func(top *Topology) { top.Node("h1").Unaddressed = true }, drop(addressesOf(usual), "h1 ")},
		"but one": {func(top *Topology) {
			top.Node("r1").Unaddressed, top.Links[0].Ends[1].Addresses = true, prefixes("10.0.1.1/24")
		},
			drop(addressesOf(usual), "r1 172", "r1 fd00:ffff")},
	} {
		top, problems := make(c.edit)
		if problems.Err() != nil {
			t.Fatal(name, problems)
		}
		if got := addressesOf(top); got != c.want {
			t.Errorf("%s: want\n%s\ngot\n%s", name, c.want, got)
		}
		again, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Kernel})
		if problems.Err() != nil || !Equal(top, again) {
			t.Errorf("%s: resolved again it is another: %v %v", name, problems, Diff(top, again))
		}
	}
	top, problems := make(func(top *Topology) { top.Links[2].Ends[0].Unaddressed = true })
	for _, route := range top.Node("r1").Routes {
		if !slices.ContainsFunc(top.Links[3].Ends[1].Addresses, func(p netip.Prefix) bool { return p.Addr() == route.Via }) {
			t.Errorf("r1 knows only the way through r3, and has %s", route)
		}
	}
	if len(top.Node("r1").Routes) < 4 || len(problems) > 0 {
		t.Errorf("%v %v", top.Node("r1").Routes, problems)
	}
	if top, problems = make(func(top *Topology) { top.Node("r1").Unaddressed = true }); !strings.Contains(problems.Error(), "h1: there is no gateway") {
		t.Errorf("%v %v", top.Node("h1").Gateways, problems)
	}
	for want, edit := range map[string]func(*Topology){
		"keep one of them": func(top *Topology) { n := top.Node("h1"); n.Unaddressed, n.Addresses = true, prefixes("10.0.0.1/8") },
		"link h1 -- r1: the address of h1 is none and 10.0.0.1/8": func(top *Topology) {
			top.Links[0].Ends[0].Unaddressed, top.Links[0].Ends[0].Addresses = true, prefixes("10.0.0.1/8")
		},
		"host h1: its link says that its first interface, h1-eth0, has no address, and it is given 10.0.0.1/8": func(top *Topology) {
			top.Links[0].Ends[0].Unaddressed, top.Node("h1").Addresses = true, prefixes("10.0.0.1/8")
		},
		"nothing can give r3-eth0 an address": func(top *Topology) {
			n := top.Node("r3")
			n.Unaddressed, n.Datapath = true, Embedded
			n.Controllers = []string{ControllerTrivet}
		},
	} {
		if _, problems := make(edit); !strings.Contains(problems.Error(), want) {
			t.Errorf("%q is not in\n%v", want, problems)
		}
	}
	flat := build(t, "h:h1 h:h2 h:h3 s:s1 h1-s1 h2-s1 h3-s1")
	flat.Node("h2").Unaddressed = true
	if got := addressesOf(resolved(t, flat)); got != "h1 10.0.0.1/8, h3 10.0.0.3/8" {
		t.Error(got)
	}
}

// TestUnaddressedLater proves that an edit that takes an interface's address away, or has it
// assigned again, is a change of that, in the words of the file, and of no other interface.
func TestUnaddressedLater(t *testing.T) {
	top := build(t, "h:h1 h:h2 r:r1 h1-r1 h2-r1")
	before := resolved(t, top)
	edited := top.Clone()
	edited.Links[1].Ends[1].Unaddressed = true
	Inherit(edited, before)
	after := resolved(t, edited)
	const want = "~ host h2   gateways 10.0.2.1 → –\n~ link h2-r1   ends.1.addresses 10.0.2.1/24 → none"
	if got := changes(before, after); got != want {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
	Inherit(top, after)
	if back := resolved(t, top); !Equal(back, before) {
		t.Error(changes(before, back))
	}
}

func changes(old, new *Topology) string {
	var out []string
	for _, c := range Diff(old, new) {
		out = append(out, c.String())
	}
	return strings.Join(out, "\n")
}

// TestTwoWaysOut proves that of two routers to the outside, each uses its own uplink, so that
// packets do not loop between them.
func TestTwoWaysOut(t *testing.T) {
	top := build(t, "h:h1 s:s1 r:r1 r:nat1 r:nat2 h1-r1 r1-s1 nat1-s1 nat2-s1")
	top.Node("nat1").NAT, top.Node("nat2").NAT = true, true
	r, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Kernel})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	for _, name := range []string{"nat1", "nat2"} {
		for _, route := range r.Node(name).Routes {
			if route.To.Bits() == 0 {
				t.Errorf("%s has a default route through the lab: %s", name, route)
			}
		}
	}
	if routes := r.Node("r1").Routes; !slices.ContainsFunc(routes, func(rt Route) bool { return rt.To.Bits() == 0 }) {
		t.Errorf("r1 has no way out: %v", routes)
	}
}

// TestUnreachableGateways proves that gateways and routes that the kernel would refuse are left out
// with a warning, so that the valid ones come up; and that a neighbour behind a route through a
// device counts as one.
func TestUnreachableGateways(t *testing.T) {
	top := build(t, "h:h1 h:h2 h:h3 s:s1 h1-s1 h2-s1 h3-s1")
	for i, n := range top.Nodes[:3] {
		n.Addresses = prefixes([]string{"10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"}[i])
	}
	top.Nodes[0].Gateways = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	top.Nodes[1].Gateways = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	top.Nodes[2].Routes = []Route{{To: netip.MustParsePrefix("10.5.0.0/16"), Via: netip.MustParseAddr("10.7.0.1")},
		{To: netip.MustParsePrefix("10.7.0.0/24"), Device: "h3-eth0"}, {To: netip.MustParsePrefix("10.6.0.0/16"), Via: netip.MustParseAddr("10.8.0.1")}}
	r, problems := Resolve(top, Defaults{Datapath: Bridge})
	if problems.Err() != nil || len(r.Nodes[0].Gateways)+len(r.Nodes[1].Gateways) > 0 || len(r.Nodes[2].Routes) != 2 {
		t.Fatal(problems, r.Nodes[2].Routes)
	}
	for _, want := range []string{"host h1: gateway 10.9.9.9 cannot be reached: it is left out", "host h2: gateway 10.0.0.2 is its own address", "route 10.6.0.0/16 via 10.8.0.1 cannot"} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("%q is not in\n%v", want, problems)
		}
	}
}
