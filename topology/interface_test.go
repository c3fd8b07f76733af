package topology

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// onRouter is a router r1 with links to hosts h1 to h4, and interfaces.
func onRouter(list ...Interface) *Topology {
	t := &Topology{}
	r := t.AddNode(Router, "r1")
	r.Datapath, r.Interfaces = Kernel, list
	for i := 1; i <= 4; i++ {
		h := t.AddNode(Host, fmt.Sprintf("h%d", i))
		t.AddLink("r1", h.Name)
	}
	return t
}

// TestInterfaceProblems proves of each way in which an interface of a node can be wrong that it is
// refused, with where and why.
func TestInterfaceProblems(t *testing.T) {
	a, b := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	six := netip.MustParseAddr("fd00::1")
	for want, list := range map[string][]Interface{
		"bond0123456789ab: the name is too long":                          {{Name: "bond0123456789ab", Dummy: true}},
		`"a/b" cannot be the name`:                                        {{Name: "a/b", Dummy: true}},
		"interface lo: the name is reserved":                              {{Name: "lo", Dummy: true}},
		"interface gre0: the name is reserved":                            {{Name: "gre0", Dummy: true}},
		"interface mgmt0: the name is reserved":                           {{Name: "mgmt0", Dummy: true}},
		"d: there are two of that name":                                   {{Name: "d", Dummy: true}, {Name: "d", Dummy: true}},
		"r1-eth0: a link has a device of that name":                       {{Name: "r1-eth0", Dummy: true}},
		"interface d: it is to be of one kind":                            {{Name: "d"}},
		"interface e: it is to be of one kind":                            {{Name: "e", Dummy: true, VLAN: 7, On: "r1-eth0"}},
		"4095 is no VLAN":                                                 {{Name: "v", VLAN: 4095, On: "r1-eth0"}},
		"-1 is no VLAN":                                                   {{Name: "v", VLAN: -1, On: "r1-eth0"}},
		"v: a VLAN is on another device":                                  {{Name: "v", VLAN: 10}},
		"a VLAN has no table":                                             {{Name: "v", VLAN: 10, On: "r1-eth0", Table: 10}},
		"a dummy has no mode":                                             {{Name: "d", Dummy: true, Mode: "802.3ad"}},
		"a VRF has no mac":                                                {{Name: "red", VRF: []string{"r1-eth0"}, Table: 10, MAC: MAC{2}}},
		"v: there is no device r1-eth9; did you mean":                     {{Name: "v", VLAN: 10, On: "r1-eth9"}},
		"br: there is no device h1-eth0":                                  {{Name: "br", Bridge: []string{"h1-eth0"}}},
		"r1-eth0 is a member twice":                                       {{Name: "br", Bridge: []string{"r1-eth0", "r1-eth0"}}},
		"bond: r1-eth0 is a member of br, too":                            {{Name: "br", Bridge: []string{"r1-eth0"}}, {Name: "bond", Bond: []string{"r1-eth0"}}},
		"red: r1-eth0 is a member of br, too":                             {{Name: "br", Bridge: []string{"r1-eth0"}}, {Name: "red", VRF: []string{"r1-eth0"}, Table: 7}},
		"inner, a bond, cannot be a member of a bond":                     {{Name: "inner", Bond: []string{"r1-eth0"}}, {Name: "outer", Bond: []string{"inner"}}},
		"v, a VLAN, cannot be a member of a bond":                         {{Name: "v", VLAN: 10, On: "r1-eth0"}, {Name: "outer", Bond: []string{"v"}}},
		"inner, a bridge, cannot be a member of a bridge":                 {{Name: "inner", Bridge: []string{"r1-eth0"}}, {Name: "outer", Bridge: []string{"inner"}}},
		"tun, a tunnel by GRE, cannot be a member of a bridge":            {{Name: "tun", GRE: b, Local: a}, {Name: "br", Bridge: []string{"tun"}}},
		"red, a VRF, cannot be a member of a VRF":                         {{Name: "red", VRF: []string{"r1-eth0"}, Table: 10}, {Name: "blue", VRF: []string{"red"}, Table: 11}},
		"there are no VLANs on tun, a tunnel by GRE":                      {{Name: "tun", GRE: b, Local: a}, {Name: "v", VLAN: 10, On: "tun"}},
		"interface x is made of itself":                                   {{Name: "x", VLAN: 10, On: "x"}},
		"y is made of itself":                                             {{Name: "y", VLAN: 10, On: "z"}, {Name: "z", Bridge: []string{"y"}}},
		`"fastest" is no mode of a bond`:                                  {{Name: "b", Bond: []string{"r1-eth0"}, Mode: "fastest"}},
		"a VRF has a routing table of its own, and 0 is none":             {{Name: "red", VRF: []string{"r1-eth0"}}},
		"and 254 is none":                                                 {{Name: "red", VRF: []string{"r1-eth0"}, Table: 254}},
		fmt.Sprintf("and %d is none", ManagementTable):                    {{Name: "red", VRF: []string{"r1-eth0"}, Table: ManagementTable}},
		"table: 10 is that of red":                                        {{Name: "red", VRF: []string{"r1-eth0"}, Table: 10}, {Name: "blue", VRF: []string{"r1-eth1"}, Table: 10}},
		"16777216 is no number of a VXLAN":                                {{Name: "vx", VXLAN: 1 << 24}},
		"10.9.0.1 and fd00::1 cannot be ends of one tunnel":               {{Name: "vx", VXLAN: 7, Local: a, Remote: six}},
		"both ends of the tunnel are 10.9.0.1":                            {{Name: "tun", GRE: a, Local: a}},
		"a tunnel has an address of the node at this end":                 {{Name: "tun", GRE: b}},
		"224.0.0.1 cannot be the end of a tunnel":                         {{Name: "tun", GRE: netip.MustParseAddr("224.0.0.1"), Local: a}},
		"mtu: IPv6 does not work with 1200":                               {{Name: "d", Dummy: true, MTU: 1200, Addresses: []netip.Prefix{netip.MustParsePrefix("fd00::1/64")}}},
		"mtu: 12 is none":                                                 {{Name: "d", Dummy: true, MTU: 12}},
		"mac: 01:00:00:00:00:00 is the address of a group":                {{Name: "d", Dummy: true, MAC: MAC{1}}},
		"interface d: 127.0.0.1/8 cannot be the address":                  {{Name: "d", Dummy: true, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}},
		fmt.Sprintf("interfaces: these are more than %d", mostInterfaces): slices.Repeat([]Interface{{Name: "d", Dummy: true}}, mostInterfaces+1),
	} {
		top := onRouter(list...)
		if _, problems := Resolve(top, Defaults{}); problems.Err() == nil || !strings.Contains(problems.Err().Error(), want) {
			t.Errorf("want %q, got %v", want, problems.Err())
		}
	}
	for want, change := range map[string]func(*Topology){
		"r1-eth0 is a member of br, and is given an address": func(t *Topology) { t.Nodes[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")} },
		"r1-eth1 is a member of br, and is given an address": func(t *Topology) {
			t.Links[1].Ends[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
		},
		"only these have any beside those of links":       func(t *Topology) { t.Nodes[0].Kind, t.Nodes[0].Datapath = Switch, "" },
		"a routing node has no namespaces":                func(t *Topology) { t.Nodes[0].Datapath = Embedded },
		"interfaces: it has no namespace of its own that": func(t *Topology) { t.Nodes[0].Datapath = VM },
		"route 10.7.0.0/16 dev br1: it has no device br1": func(t *Topology) {
			t.Nodes[0].Routes = []Route{{To: netip.MustParsePrefix("10.7.0.0/16"), Device: "br1"}}
		},
	} {
		top := onRouter(Interface{Name: "br", Bridge: []string{"r1-eth0", "r1-eth1"}})
		change(top)
		if _, problems := Resolve(top, Defaults{}); problems.Err() == nil || !strings.Contains(problems.Err().Error(), want) {
			t.Errorf("want %q, got %v", want, problems.Err())
		}
	}
}

// TestInterfaceAddresses proves which devices are assigned addresses beside interfaces of nodes:
// none that frames pass on to another; and that what is given to those counts as their network's:
// for the subnet, gateways, routes and names.
func TestInterfaceAddresses(t *testing.T) {
	given := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	top := onRouter(
		Interface{Name: "br", Bridge: []string{"r1-eth0", "r1-eth1"}, Addresses: given("10.7.0.1/24")},
		Interface{Name: "tagged", VLAN: 10, On: "r1-eth2", Addresses: given("10.8.0.1/24")},
		Interface{Name: "red", VRF: []string{"r1-eth3", "r1-eth5"}, Table: 10})
	top.Nodes[3].Interfaces = []Interface{{Name: "tagged", VLAN: 10, On: "h3-eth0", Addresses: given("10.8.0.3/24")}}
	far := top.AddNode(Router, "r2")
	far.Datapath = Kernel
	top.AddLink("r1", "r2")
	top.AddNode(Router, "r3").Datapath = Kernel // behind the VRF, with a host behind it
	top.AddLink("r1", "r3")
	top.AddNode(Host, "h6")
	top.AddLink("r3", "h6")
	top.AddNode(Switch, "s1") // with whom is not in the VLAN
	top.Links[2].Ends[1].Node = "s1"
	top.AddLink("s1", "h3")
	top.AddNode(Host, "h5")
	top.AddLink("s1", "h5")
	got, problems := Resolve(top, Defaults{})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	for i, want := range []string{"", "", "", "10.0.2.1/24", "172.16.0.1/30", "172.16.0.5/30"} {
		if is := joined(got.Links[i].Ends[0].Addresses); is != want || got.Links[i].Ends[0].Unaddressed != (want == "") {
			t.Errorf("r1-eth%d has %q, not %q", i, is, want)
		}
	}
	for i, want := range []string{"10.7.0.2/24", "10.7.0.3/24", "", "10.0.2.2/24", "172.16.0.2/30", "172.16.0.6/30", "10.0.3.2/24", "", "10.0.1.1/24"} {
		if is := joined(got.Links[i].Ends[1].Addresses); is != want {
			t.Errorf("the node at link %d has %q, not %q", i, is, want)
		}
	}
	for host, want := range map[string]string{"h1": "10.7.0.1", "h2": "10.7.0.1", "h3": "10.8.0.1", "h4": "10.0.2.1"} {
		if g := got.Node(host).Gateways; len(g) != 1 || g[0].String() != want {
			t.Errorf("the gateway of %s is %v, not %s", host, g, want)
		}
	}
	if g := got.Node("h5").Gateways; len(g) > 0 {
		t.Error("a host beside a VLAN has the gateway ", g)
	}
	if is := got.Node("r1").Routes; len(is) > 0 {
		t.Error("r1 has routes over its VRF: ", joined(is))
	}
	if is := joined(got.Node("r2").Routes); is != "10.7.0.0/24 via 172.16.0.1, 10.8.0.0/24 via 172.16.0.1" { // not into the VRF
		t.Error("r2 has the routes ", is)
	}
	if is := joined(AddressesOf(got, got.Node("r1"))); is != "10.0.2.1/24, 172.16.0.1/30, 172.16.0.5/30, 10.7.0.1/24, 10.8.0.1/24" {
		t.Error("r1 has ", is)
	}
	r1, ends := got.Node("r1"), EndsOf(got)["r1"]
	for route, want := range map[string]int{"10.99.0.0/16 via 10.0.2.9": 10, "10.99.0.0/16 dev r1-eth3": 10, "10.99.0.0/16 via 10.7.0.9": 0, "10.99.0.0/16 dev br": 0, "10.0.2.0/24 discard": 0} {
		r, err := ParseRoute(route)
		if err != nil || r1.TableOf(r, ends) != want {
			t.Errorf("%s is in table %d, not %d: %v", route, r1.TableOf(r, ends), want, err)
		}
	}
	placed := got.Clone()
	placed.Node("r1").On = "far"
	part := Part(placed, Head, func(string, *Link, int) *Carrier { return &Carrier{} })
	if !slices.Contains(part.Elsewhere, Named{"r1", netip.MustParseAddr("10.7.0.1")}) {
		t.Error("another site does not know of 10.7.0.1: ", part.Elsewhere)
	}
	if far := Part(placed, "far", func(string, *Link, int) *Carrier { return &Carrier{} }); len(far.Node("r1").Interfaces) != 3 {
		t.Error("the site of r1 does not know its interfaces")
	}
	top.Nodes[0].Interfaces = nil // what was a port is assigned an address, and none is when it is a port again
	edited := top.Clone()
	Inherit(edited, got)
	apart, _ := Resolve(edited, Defaults{})
	if is := joined(apart.Links[0].Ends[0].Addresses); is == "" {
		t.Error("a device that is no port any more has no address")
	}
	top.Nodes[0].Interfaces = onRouter(Interface{Name: "br", Bridge: []string{"r1-eth0", "r1-eth1"}}).Nodes[0].Interfaces
	edited = top.Clone()
	Inherit(edited, apart)
	if again, problems := Resolve(edited, Defaults{}); problems.Err() != nil || len(again.Links[0].Ends[0].Addresses) > 0 {
		t.Error("a port has inherited an address: ", problems.Err())
	}
}

// TestInterfaceFields proves that no field of an interface is forgotten: a copy shares none, and
// each shows in what differs between two topologies, or else they are not told apart.
func TestInterfaceFields(t *testing.T) {
	full := Interface{Name: "x", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, Bridge: []string{"a"}, Bond: []string{"b"}, VRF: []string{"c"}}
	top := onRouter(full)
	clone := top.Clone().Nodes[0].Interfaces[0]
	v, c := reflect.ValueOf(top.Nodes[0].Interfaces[0]), reflect.ValueOf(clone)
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Type.Kind() == reflect.Slice && v.FieldByIndex(f.Index).Pointer() == c.FieldByIndex(f.Index).Pointer() {
			t.Error(f.Name, " is shared with a copy")
		}
	}
	a := netip.MustParseAddr("10.9.0.1")
	for _, pair := range [][2]Interface{
		{{VLAN: 10, On: "a"}, {VLAN: 11, On: "a"}}, {{VLAN: 10, On: "a"}, {VLAN: 10, On: "b"}},
		{{Bridge: []string{"a"}}, {Bridge: []string{"a", "b"}}}, {{Bond: []string{"a"}}, {Bond: []string{"b"}}}, {{Bond: []string{"a"}}, {Bond: []string{"a"}, Mode: "802.3ad"}},
		{{VRF: []string{"a"}, Table: 1}, {VRF: []string{"a"}, Table: 2}}, {{VRF: []string{"a"}, Table: 1}, {VRF: []string{"b"}, Table: 1}},
		{{VXLAN: 1, Local: a}, {VXLAN: 2, Local: a}}, {{VXLAN: 1, Local: a}, {VXLAN: 1}}, {{VXLAN: 1, Remote: a}, {VXLAN: 1}},
		{{GRE: a}, {GRE: a.Next()}}, {{Dummy: true}, {VXLAN: 1}}, {{Dummy: true}, {Dummy: true, MTU: 1400}}, {{Dummy: true}, {Dummy: true, MAC: MAC{2}}},
		{{Dummy: true}, {Dummy: true, Addresses: full.Addresses}},
	} {
		pair[0].Name, pair[1].Name = "x", "x"
		changes := Diff(onRouter(pair[0]), onRouter(pair[1]))
		if len(changes) != 1 || len(changes[0].Fields) != 1 || changes[0].Fields[0].Name != "interfaces.x" {
			t.Errorf("%s and %s differ by %v", pair[0], pair[1], changes)
		}
	}
}
