package topology

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// advertising is a router with hosts behind a switch and one beside it, which accept advertisements
// but for the last.
func advertising() *Topology {
	hosts := []*Node{{Name: "h1", Kind: Host, AcceptRA: true}, {Name: "h2", Kind: Host, AcceptRA: true}, {Name: "h3", Kind: Host}}
	return &Topology{IPv6: IPv6Assigned, Nodes: append(hosts, &Node{Name: "s1", Kind: Switch},
		&Node{Name: "r1", Kind: Router, Datapath: Kernel, RA: &Advertisement{}}),
		Links: []*Link{
			{Ends: [2]Endpoint{{Node: "r1"}, {Node: "s1"}}},
			{Ends: [2]Endpoint{{Node: "s1"}, {Node: "h1", MAC: MAC{2, 0, 0, 0, 0, 1}}}},
			{Ends: [2]Endpoint{{Node: "s1"}, {Node: "h3"}}},
			{Ends: [2]Endpoint{{Node: "r1"}, {Node: "h2", MAC: MAC{2, 0, 0, 0, 0, 2}}}},
		}}
}

func sixes(list []netip.Prefix) (out []string) {
	for _, p := range list {
		if p.Addr().Is6() {
			out = append(out, p.String())
		}
	}
	return out
}

// TestAutoconfigure proves that nodes which take advertisements have the address that their kernels
// make of the router's prefix and their MAC (RFC 4291, appendix A: the bit u is inverted), no other
// of IPv6 and no gateway of it; that others are assigned what they would be without; that prefixes
// which are given replace the router's own, and those that are not of 64 bits make no address.
func TestAutoconfigure(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*Topology)
		want   [3]string // of h1, h2, h3: addresses and gateways of IPv6
		warns  string
	}{
		"all of a router": {func(*Topology) {}, [3]string{"fd00::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64 fd00::1"}, ""},
		"no default router": {func(t *Topology) { t.NodesByName()["r1"].RA.Lifetime = new(Duration(0)) },
			[3]string{"fd00::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64 fd00::1"}, ""},
		"a prefix that is given": {func(t *Topology) {
			t.Links[0].Ends[0].RA = &Advertisement{Prefixes: []netip.Prefix{netip.MustParsePrefix("fd07::/64")}}
		},
			[3]string{"fd07::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64 fd00::1"}, ""},
		"off at a link": {func(t *Topology) { t.Links[0].Ends[0].RA = &Advertisement{Off: true} },
			[3]string{"", "fd00::1:0:ff:fe00:2/64", "fd00::2/64 fd00::1"}, "h1: accept_ra: no router on the link advertises itself"},
		"not at an end": {func(t *Topology) { t.Links[1].Ends[1].AcceptRA = new(false) },
			[3]string{"fd00::2/64 fd00::1", "fd00::1:0:ff:fe00:2/64", "fd00::3/64 fd00::1"}, ""},
		"an address beside it": {func(t *Topology) { t.Links[1].Ends[1].Addresses = []netip.Prefix{netip.MustParsePrefix("fd00::77/64")} },
			[3]string{"fd00::77/64 fd00::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64 fd00::1"}, ""},
		"a prefix of 56 bits": {func(t *Topology) { t.Links[0].Ends[0].Addresses = []netip.Prefix{netip.MustParsePrefix("fd09::1/56")} },
			[3]string{"", "fd00::ff:fe00:2/64", "fd09::2/56 fd09::1"}, "hosts make no address of fd09::/56"},
		"no IPv6": {func(t *Topology) { t.IPv6 = IPv6Off }, [3]string{}, "ra has no effect, as the lab has no IPv6"},
		"the kernel's own, and a router with an address": {func(t *Topology) {
			t.IPv6, t.Links[0].Ends[0].Addresses = IPv6LinkLocal, []netip.Prefix{netip.MustParsePrefix("fd09::1/64")}
		}, [3]string{"fd09::ff:fe00:1/64", "", ""}, ""},
		"a routing node": {func(t *Topology) { t.NodesByName()["r1"].Datapath = Embedded },
			[3]string{"fd00::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64 fd00::1"}, ""},
		"a router at the end of a link of its own": {func(t *Topology) { t.Nodes[1].Kind, t.Nodes[1].Datapath = Router, Kernel },
			[3]string{"fd00::ff:fe00:1/64", "fd00:ffff::ff:fe00:2/64", "fd00::2/64 fd00::1"}, ""},
	} {
		topo := advertising()
		c.change(topo)
		r, problems := Resolve(topo, Defaults{Datapath: Embedded, Controlled: Embedded, Controller: ControllerTrivet})
		if r == nil {
			t.Errorf("%s: %v", what, problems.Err())
			continue
		}
		nodes, ends := r.NodesByName(), EndsOf(r)
		for i, name := range []string{"h1", "h2", "h3"} {
			got := sixes(ends[name][0].Addresses)
			for _, g := range nodes[name].Gateways {
				if g.Is6() {
					got = append(got, g.String())
				}
			}
			if strings.Join(got, " ") != c.want[i] {
				t.Errorf("%s: %s has %v, not %s", what, name, got, c.want[i])
			}
			for _, p := range ends[name][0].Given() {
				if strings.Contains(p.String(), "ff:fe") {
					t.Errorf("%s: %s is given %s", what, name, p)
				}
			}
		}
		if said := saidOf(problems); c.warns == "" && strings.Contains(said, "ra") || !strings.Contains(said, c.warns) {
			t.Errorf("%s: %s", what, said)
		}
	}
}

// TestLearntRoutes proves that routes, given and computed, whose next hop is in a network that a
// node learns can be set before it has, as they name the device and that the neighbour is there;
// that others stay as they are; and that of a bridge only the bridge advertises, not its ports.
func TestLearntRoutes(t *testing.T) {
	t.Parallel()
	topo := advertising()
	nodes := topo.NodesByName()
	route, err := ParseRoute("fd70::/64 via fd00::1")
	if err != nil {
		t.Fatal(err)
	}
	nodes["h1"].Routes = []Route{route}
	nodes["h2"].Gateways = []netip.Addr{netip.MustParseAddr("fd00:0:0:1::1")}
	nodes["h3"].Routes = []Route{route}
	topo.Nodes = append(topo.Nodes, &Node{Name: "r2", Kind: Router, Datapath: Kernel, RA: &Advertisement{}, Interfaces: []Interface{
		{Name: "br0", Bridge: []string{"r2-eth0", "r2-eth1"}, Addresses: []netip.Prefix{netip.MustParsePrefix("fd08::1/64")}}}},
		&Node{Name: "h4", Kind: Host, AcceptRA: true}, &Node{Name: "h5", Kind: Host})
	topo.Links = append(topo.Links, &Link{Ends: [2]Endpoint{{Node: "r2"}, {Node: "h4", MAC: MAC{2, 0, 0, 0, 0, 4}}}}, &Link{Ends: [2]Endpoint{{Node: "r2"}, {Node: "h5"}}})
	r, problems := Resolve(topo, Defaults{Datapath: Embedded, Controlled: Embedded, Controller: ControllerTrivet})
	if r == nil {
		t.Fatal(problems.Err())
	}
	nodes = r.NodesByName()
	for node, want := range map[string]string{"h1": "fd70::/64 via fd00::1 dev h1-eth0 onlink", "h2": "::/0 via fd00:0:0:1::1 dev h2-eth0 onlink", "h3": "fd70::/64 via fd00::1"} {
		if got := nodes[node].Routes; len(got) != 1 || got[0].String() != want || node != "h3" && len(nodes[node].Gateways) != 1 {
			t.Errorf("%s has the routes %v, not %s, and the gateways %v", node, got, want, nodes[node].Gateways)
		}
	}
	for _, e := range EndsOf(r)["r2"] {
		if e.RA != nil {
			t.Errorf("%s, a port of a bridge, advertises", e.Interface)
		}
	}
	if nodes["r2"].Interfaces[0].RA == nil || !slices.Contains(sixes(EndsOf(r)["h4"][0].Addresses), "fd08::ff:fe00:4/64") {
		t.Errorf("br0 advertises %v, and h4 has %v", nodes["r2"].Interfaces[0].RA, EndsOf(r)["h4"][0].Addresses)
	}
}

// TestAdvertisementProblems proves that what RFC 4861, section 6.2.1, and RFC 8106 do not allow is
// refused, with what is allowed, and so are nodes that can neither advertise nor accept.
func TestAdvertisementProblems(t *testing.T) {
	t.Parallel()
	second := func(n int) Duration { return Duration(n) * Duration(time.Second) }
	router := func(a Advertisement) func(*Topology) { return func(t *Topology) { t.NodesByName()["r1"].RA = &a } }
	for want, change := range map[string]func(*Topology){
		"ra: interval is 2s; write whole seconds, 4s to 1800s":                   router(Advertisement{Interval: second(2)}),
		"ra: interval is 4.5s":                                                   router(Advertisement{Interval: Duration(4500 * time.Millisecond)}),
		"ra: lifetime is 20s, and hosts would forget the router":                 router(Advertisement{Interval: second(30), Lifetime: new(second(20))}),
		"ra: lifetime is 9001s":                                                  router(Advertisement{Lifetime: new(second(9001))}),
		"ra: preferred is 7200s, and addresses are valid for 3600s":              router(Advertisement{Valid: second(3600), Preferred: second(7200)}),
		"ra: mtu is 1000; write 1280 to 9216":                                    router(Advertisement{MTU: 1000}),
		"ra: prefixes: 10.0.0.0/8 is not a network of IPv6":                      router(Advertisement{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}),
		"ra: prefixes: fd00::1/64 is not a network":                              router(Advertisement{Prefixes: []netip.Prefix{netip.MustParsePrefix("fd00::1/64")}}),
		"ra: prefixes: these are more than 16":                                   router(Advertisement{Prefixes: slices.Repeat([]netip.Prefix{netip.MustParsePrefix("fd00::/64")}, 17)}),
		"ra: dns: 192.0.2.1 is not the IPv6 address of a server":                 router(Advertisement{DNS: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}),
		"ra: valid is 5s, and hosts would be without before they are told again": router(Advertisement{Valid: second(5)}),
		"router r1: vrf1: ra: a VRF has no hosts at it": func(t *Topology) {
			r := t.NodesByName()["r1"]
			r.Interfaces = []Interface{{Name: "vrf1", VRF: []string{"r1-eth0"}, Table: 7, RA: &Advertisement{}}}
		},
		`ra: search: "a b" is not a domain`:                                     router(Advertisement{Search: []string{"a b"}}),
		"host h1: ra: only routers advertise themselves; make it a router":      func(t *Topology) { t.Nodes[0].RA = &Advertisement{} },
		"h1: ra: only routers advertise themselves":                             func(t *Topology) { t.Links[1].Ends[1].RA = &Advertisement{} },
		"switch s1: accept_ra: only hosts and routers have addresses":           func(t *Topology) { t.NodesByName()["s1"].AcceptRA = true },
		"router r1: ra: the kernel that would advertise it is another one":      func(t *Topology) { t.NodesByName()["r1"].Datapath = VM },
		"router r1: accept_ra: it has no kernel of its own here":                func(t *Topology) { r := t.NodesByName()["r1"]; r.Datapath, r.AcceptRA = Embedded, true },
		"host h1: accept_ra: the system of a virtual machine says whether it":   func(t *Topology) { t.Nodes[0].Guest = &Guest{Image: "a.qcow2"} },
		"eth9: ra and accept_ra are of interfaces of nodes; say it of the node": func(t *Topology) { t.Links[2].Ends[0] = Endpoint{Interface: "eth9", AcceptRA: new(true)} },
	} {
		topo := advertising()
		change(topo)
		r, problems := Resolve(topo, Defaults{Datapath: Embedded, Controlled: Embedded, Controller: ControllerTrivet})
		if said := saidOf(problems); r != nil || !strings.Contains(said, want) {
			t.Errorf("%q is not said, but\n%s", want, said)
		}
	}
}

// TestInheritAutoconfigured proves that a changed topology keeps the addresses that were assigned
// where nothing changed, takes none that a kernel has made for one that is assigned, and none that
// was assigned where the kernel now makes one.
func TestInheritAutoconfigured(t *testing.T) {
	t.Parallel()
	defaults := Defaults{Datapath: Embedded, Controlled: Embedded, Controller: ControllerTrivet}
	first, _ := Resolve(advertising(), defaults)
	for what, c := range map[string]struct {
		change func(*Topology)
		want   [3]string
	}{
		"nothing":        {func(*Topology) {}, [3]string{"fd00::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64"}},
		"h1 is assigned": {func(t *Topology) { t.Nodes[0].AcceptRA = false }, [3]string{"fd00::3/64", "fd00::1:0:ff:fe00:2/64", "fd00::2/64"}},
		"h3 accepts as well": {func(t *Topology) { t.Nodes[2].AcceptRA, t.Links[2].Ends[1].MAC = true, MAC{2, 0, 0, 0, 0, 3} },
			[3]string{"fd00::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd00::ff:fe00:3/64"}},
		"another prefix": {func(t *Topology) {
			t.Links[0].Ends[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.1.1/24"), netip.MustParsePrefix("fd09::1/64")}
		},
			[3]string{"fd09::ff:fe00:1/64", "fd00::1:0:ff:fe00:2/64", "fd09::2/64"}},
	} {
		next := advertising()
		c.change(next)
		Inherit(next, first)
		r, problems := Resolve(next, defaults)
		if r == nil {
			t.Fatalf("%s: %v", what, problems.Err())
		}
		for i, name := range []string{"h1", "h2", "h3"} {
			if got := strings.Join(sixes(EndsOf(r)[name][0].Addresses), " "); got != c.want[i] {
				t.Errorf("%s: %s has %s, not %s", what, name, got, c.want[i])
			}
		}
	}
}

func saidOf(all Problems) string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}
