package topology

import (
	"net/netip"
	"strings"
	"testing"
)

// TestParseRule proves that rules are read in the words of ip-rule(8) and written so that they read
// the same, and that what is no rule is refused.
func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{
		"from 10.1.0.0/16 table 100 priority 1000": "",
		"from 10.1.2.3/16 lookup 100 pref 7":       "from 10.1.0.0/16 table 100 priority 7",
		"from all to 10.0.0.1 lookup main":         "to 10.0.0.1/32 table main",
		"fwmark 7 table 20":                        "",
		"fwmark 0x7/0xff table 20":                 "",
		"not iif lo oif r1-eth0 dsfield 0x10 ipproto udp sport 53 dport 80-443 prohibit": "not iif lo oif r1-eth0 tos 0x10 ipproto udp sport 53 dport 80-443 prohibit",
		"table main suppress_prefixlength 0":                                             "",
		"from fd00::/64 blackhole":                                                       "",
		"table 254":                                                                      "table main",
	} {
		rule, err := ParseRule(text)
		if want == "" {
			want = text
		}
		if err != nil || rule.String() != want {
			t.Errorf("%q is read as %q: %v", text, rule, err)
		}
		if again, err := ParseRule(rule.String()); err != nil || again.String() != want {
			t.Errorf("%q is read again as %q: %v", text, again, err)
		}
	}
	for _, text := range []string{"", "from 10.0.0.0/8", "table 100 prohibit", "table 0", "table x", "table 4294967296", "from 10.0.0.0/8 to fd00::/64 table 1", "fwmark 0 table 1",
		"fwmark 7/0 table 1", "from 10.0.0.0/8 from 10.1.0.0/16 table 1", "table 1 lookup 2", "prohibit blackhole", "prohibit suppress_prefixlength 0", "ipproto ospf table 1",
		"ipproto tcp dport 9-8 table 1", "dport 0 table 1", "priority 0 table 1", "goto 7", "table", "from fe80::1%eth0 table 1", "tos 256 table 1"} {
		if rule, err := ParseRule(text); err == nil {
			t.Errorf("%q is read as %q", text, rule)
		}
	}
}

// TestParseNeighbor proves that neighbours are read and written in the words of ip-neighbour(8),
// and that what is none is refused.
func TestParseNeighbor(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.2 lladdr 02:00:00:00:00:02": "", "fd00::2 dev h1-eth0 lladdr 2:0:0:0:0:2": "fd00::2 lladdr 02:00:00:00:00:02 dev h1-eth0"} {
		n, err := ParseNeighbor(text)
		if want == "" {
			want = text
		}
		if err != nil || n.String() != want {
			t.Errorf("%q is read as %q: %v", text, n, err)
		}
	}
	for _, text := range []string{"", "10.0.0.2", "10.0.0.2 dev h1-eth0", "10.0.0.0/24 lladdr 02:00:00:00:00:02", "10.0.0.2 lladdr 01:00:00:00:00:02", "10.0.0.2 lladdr x",
		"10.0.0.2 lladdr 02:00:00:00:00:02 lladdr 02:00:00:00:00:02", "10.0.0.2 lladdr 02:00:00:00:00:02 nud", "fe80::1%a lladdr 02:00:00:00:00:02"} {
		if n, err := ParseNeighbor(text); err == nil {
			t.Errorf("%q is read as %q", text, n)
		}
	}
}

// TestParseRouteTable proves that routes in tables, by a neighbour on no subnet and with a sender
// are read and written alike, and that what cannot be is refused.
func TestParseRouteTable(t *testing.T) {
	for _, text := range []string{"10.3.0.0/16 via 10.0.0.2 table 100", "0.0.0.0/0 via 192.0.2.9 dev r1-eth0 onlink src 10.0.0.1 table 1000 metric 5", "10.0.0.0/8 discard table 7"} {
		r, err := ParseRoute(text)
		if err != nil || r.String() != text {
			t.Errorf("%q is read as %q: %v", text, r, err)
		}
	}
	for _, text := range []string{"10.3.0.0/16 via 10.0.0.2 onlink", "10.3.0.0/16 dev a onlink", "10.3.0.0/16 via 10.0.0.2 table 0", "10.3.0.0/16 via 10.0.0.2 src x"} {
		if r, err := ParseRoute(text); err == nil {
			t.Errorf("%q is read as %q", text, r)
		}
	}
}

// policy is a lab of two hosts at a router whose datapath and words a test chooses.
func policy(change func(t *Topology)) *Topology {
	t := &Topology{IPv6: IPv6Assigned, Routes: RoutesAsWritten}
	for _, name := range []string{"h1", "h2"} {
		t.AddNode(Host, name)
	}
	r := t.AddNode(Router, "r1")
	r.Datapath = Kernel
	for _, name := range []string{"h1", "h2"} {
		t.AddLink("r1", name)
	}
	t.Links[0].Ends[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24"), netip.MustParsePrefix("fd01::1/64")}
	t.Links[1].Ends[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.2.0.1/24"), netip.MustParsePrefix("fd02::1/64")}
	change(t)
	return t
}

func rulesAs(t *testing.T, texts ...string) (out []Rule) {
	for _, text := range texts {
		rule, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rule)
	}
	return out
}

func neighborsAs(t *testing.T, texts ...string) (out []Neighbor) {
	for _, text := range texts {
		n, err := ParseNeighbor(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func routesAs(t *testing.T, texts ...string) (out []Route) {
	for _, text := range texts {
		r, err := ParseRoute(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestPolicyResolved proves that the device of a neighbour follows from its address, that rules
// without a priority get numbers in their order which nobody else has, that a router that says
// nothing of its datapath gets one that can have them, and that a route in a table of its own does
// not keep the others from being computed.
func TestPolicyResolved(t *testing.T) {
	top := policy(func(top *Topology) {
		top.Routes = ""
		n := top.Node("r1")
		n.Datapath = ""
		n.Rules = rulesAs(t, "from 10.1.0.0/24 table 100", "prohibit iif r1-eth0 priority 10001", "fwmark 7 table 20", "table 5 oif lo")
		n.Neighbors = neighborsAs(t, "10.2.0.7 lladdr 02:00:00:00:00:07", "fd01::7 lladdr 02:00:00:00:00:07", "192.0.2.1 lladdr 02:00:00:00:00:07 dev r1-eth0")
		n.Routes = routesAs(t, "0.0.0.0/0 via 10.2.0.2 table 100 src 10.1.0.1")
		top.AddNode(Router, "r2")
		top.AddNode(Host, "h3")
		top.AddLink("r1", "r2")
		top.AddLink("r2", "h3")
	})
	out, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet})
	if out == nil {
		t.Fatal(problems)
	}
	n := out.Node("r1")
	if n.Datapath != Kernel {
		t.Errorf("r1 has datapath %s", n.Datapath)
	}
	if got := joined(n.Rules); got != "from 10.1.0.0/24 table 100 priority 10000, iif r1-eth0 prohibit priority 10001, fwmark 7 table 20 priority 10002, oif lo table 5 priority 10003" {
		t.Errorf("rules %s", got)
	}
	if got := joined(n.Neighbors); got != "10.2.0.7 lladdr 02:00:00:00:00:07 dev r1-eth1, fd01::7 lladdr 02:00:00:00:00:07 dev r1-eth0, 192.0.2.1 lladdr 02:00:00:00:00:07 dev r1-eth0" {
		t.Errorf("neighbours %s", got)
	}
	if len(n.Routes) < 2 || !n.Routes[1].Computed || n.TableOf(n.Routes[0], nil) != 100 {
		t.Errorf("routes %v", n.Routes)
	}
}

// TestPolicyPart proves that a part has the rules, routes and neighbours of its nodes, at the
// devices that these have there: where a link is a wire of the machine, its interface; and that the
// whole topology keeps its own.
func TestPolicyPart(t *testing.T) {
	top := policy(func(top *Topology) {
		n := top.Node("r1")
		n.On = "b"
		n.Rules = rulesAs(t, "iif r1-eth0 oif r1-eth1 table 7")
		n.Neighbors = neighborsAs(t, "10.1.0.7 lladdr 02:00:00:00:00:07", "10.2.0.7 lladdr 02:00:00:00:00:07")
		n.Routes = routesAs(t, "10.9.0.0/16 dev r1-eth0 table 7")
		n.Interfaces = []Interface{{Name: "v", VLAN: 7, On: "r1-eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.7.0.1/24")}}}
	})
	whole, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet})
	if whole == nil {
		t.Fatal(problems)
	}
	before := whole.Clone()
	part := Part(whole, "b", func(key string, _ *Link, _ int) *Carrier {
		if strings.Contains(key, "h1") {
			return &Carrier{NIC: "eth5", Wire: true}
		}
		return &Carrier{Node: "h2"}
	})
	n := part.Node("r1")
	got := joined(n.Rules) + "; " + joined(n.Neighbors) + "; " + joined(n.Routes) + "; on " + n.Interfaces[0].On
	if got != "iif eth5 oif r1-eth1 table 7 priority 10000; 10.1.0.7 lladdr 02:00:00:00:00:07 dev eth5, 10.2.0.7 lladdr 02:00:00:00:00:07 dev r1-eth1; 10.9.0.0/16 dev eth5 table 7; on eth5" {
		t.Error(got)
	}
	if !Equal(before, whole) {
		t.Errorf("the whole has become another: %s", Diff(before, whole))
	}
}

// TestPolicyRefused proves that what a node cannot have of rules, tables and neighbours is told of
// it, and what has no effect in a lab without IPv6 is a warning.
func TestPolicyRefused(t *testing.T) {
	for want, change := range map[string]func(*Topology){
		"router r1: rule iif r1-eth7 prohibit: it has no device r1-eth7": func(top *Topology) { top.Node("r1").Rules = rulesAs(t, "iif r1-eth7 prohibit") },
		"there are two of it": func(top *Topology) { top.Node("r1").Rules = rulesAs(t, "table 7 priority 5", "table 7 priority 5") },
		"the kernel may take them for the same": func(top *Topology) {
			top.Node("r1").Rules = rulesAs(t, "from 10.1.0.0/24 table 7 priority 5", "table 7 priority 5")
		},
		"ports are those of a protocol":     func(top *Topology) { top.Node("r1").Rules = rulesAs(t, "dport 80 table 7") },
		"IPv6 has another protocol":         func(top *Topology) { top.Node("r1").Rules = rulesAs(t, "from fd00::/8 ipproto icmp table 7") },
		"is that of the management network": func(top *Topology) { top.Node("r1").Rules = rulesAs(t, "table 29810") },
		"is not a rule":                     func(top *Topology) { top.Node("r1").Rules = []Rule{{In: "a b", Table: 7}} },
		"rules: only these have any":        func(top *Topology) { top.AddNode(Switch, "s1").Rules = rulesAs(t, "table 7") },
		"a routing node has no namespaces": func(top *Topology) {
			n := top.Node("r1")
			n.Datapath, n.Controllers, n.Rules = Embedded, []string{ControllerTrivet}, rulesAs(t, "table 7")
		},
		"neighbour 10.9.0.1 lladdr 02:00:00:00:00:07: none of its subnets has the address": func(top *Topology) { top.Node("r1").Neighbors = neighborsAs(t, "10.9.0.1 lladdr 02:00:00:00:00:07") },
		"that is its own address": func(top *Topology) { top.Node("r1").Neighbors = neighborsAs(t, "10.1.0.1 lladdr 02:00:00:00:00:07") },
		"it has no device x": func(top *Topology) {
			top.Node("r1").Neighbors = neighborsAs(t, "10.1.0.7 lladdr 02:00:00:00:00:07 dev x")
		},
		"there are two of that address": func(top *Topology) {
			top.Node("r1").Neighbors = neighborsAs(t, "10.1.0.7 lladdr 02:00:00:00:00:07", "10.1.0.7 lladdr 02:00:00:00:00:08 dev r1-eth0")
		},
		"cannot be the address of a neighbour":  func(top *Topology) { top.Node("r1").Neighbors = neighborsAs(t, "224.0.0.5 lladdr 02:00:00:00:00:07") },
		"10.7.0.1 is not an address of its":     func(top *Topology) { top.Node("r1").Routes = routesAs(t, "10.3.0.0/16 dev r1-eth0 src 10.7.0.1") },
		"table 254 has no routes of a topology": func(top *Topology) { top.Node("r1").Routes = routesAs(t, "10.3.0.0/16 dev r1-eth0 table 254") },
		"it has no namespace of its own that could have it": func(top *Topology) {
			n := top.Node("r1")
			n.Datapath, n.Routes = VM, routesAs(t, "10.3.0.0/16 via 10.1.0.2 table 7")
		},
		"neighbors: it has no namespace of its own": func(top *Topology) {
			n := top.Node("r1")
			n.Datapath, n.Neighbors = VM, neighborsAs(t, "10.1.0.7 lladdr 02:00:00:00:00:07")
		},
		"rules: not for virtual machines":                                  func(top *Topology) { n := top.Node("h1"); n.Guest, n.Rules = &Guest{Image: "x"}, rulesAs(t, "table 7") },
		"rule from fd00::/8 table 7 has no effect, as the lab has no IPv6": func(top *Topology) { top.IPv6, top.Node("r1").Rules = IPv6Off, rulesAs(t, "from fd00::/8 table 7") },
		"neighbour fd01::7 lladdr 02:00:00:00:00:07 is left out": func(top *Topology) {
			top.IPv6, top.Node("r1").Neighbors = IPv6Off, neighborsAs(t, "fd01::7 lladdr 02:00:00:00:00:07")
		},
	} {
		_, problems := Resolve(policy(change), Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet})
		var said []string
		for _, p := range problems {
			said = append(said, p.Message)
		}
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%s: it says %q", want, said)
		}
	}
}
