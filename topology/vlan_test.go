package topology

import (
	"slices"
	"strings"
	"testing"
)

// TestParseVLANs proves which texts are sets of VLANs, that each set has one text, and that all
// else is refused.
func TestParseVLANs(t *testing.T) {
	for text, want := range map[string]VLANs{
		"10": "10", "20,10": "10,20", "1-3": "1-3", "1,2": "1,2", " 5 , 7 - 9 ,6": "5-9", "all": "all", "1-4094": "all", "2-2": "2", "4094": "4094",
	} {
		got, err := ParseVLANs(text)
		if again, _ := ParseVLANs(string(got)); err != nil || got != want || again != got {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
		set := got.Set()
		if set.text() != got || set.Has(0) || set.Has(4095) {
			t.Errorf("%q has the members %v", text, set.List())
		}
	}
	for _, text := range []string{"", "0", "4095", "9-7", "x", "1-", "-1", "1,,2", "1;2", "1-4095", "none", "10 20"} {
		if got, err := ParseVLANs(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

// TestVLANProblems proves of each way in which VLANs of links can be wrong that it is refused, with
// where and why.
func TestVLANProblems(t *testing.T) {
	for want, change := range map[string]func(top *Topology){
		"link s1 -- h1: 4095 is no VLAN":                                               func(top *Topology) { top.Links[0].VLAN = 4095 },
		"link s1 -- h1: 99999 is no VLAN":                                              func(top *Topology) { top.Links[0].VLAN, top.Links[0].Trunk = 99999, AllVLANs },
		"link s1 -- h1: -2 is no VLAN":                                                 func(top *Topology) { top.Links[0].VLAN, top.Links[0].Trunk = -2, "10" },
		"link s1 -- h1: -1 is no VLAN":                                                 func(top *Topology) { top.Links[0].Ends[0].VLAN = -1 },
		"vlan and trunk are of switches' ports, and h1 has none; give them to the end": func(top *Topology) { top.Links[0].Ends[1].VLAN = 10 },
		"link h1 -- h2: vlan and trunk are of switches' ports; give them":              func(top *Topology) { top.AddLink("h1", "h2").Trunk = "10" },
		`link s1 -- h1: trunk: "x" is no VLAN; write [10, 20, 30-39]`:                  func(top *Topology) { top.Links[0].Trunk = "20,10,x" },
		"Open vSwitch tells VLANs of ports apart only where it forwards by learning, and switch s2 has a controller; use controller: none": func(top *Topology) {
			top.NodesByName()["s2"].Datapath = OVS
			top.Links[2].Trunk = "10"
		},
	} {
		top := &Topology{}
		for _, s := range []string{"s1", "s2"} {
			top.AddNode(Switch, s)
		}
		for _, h := range []string{"h1", "h2"} {
			top.AddNode(Host, h)
		}
		top.AddLink("s1", "h1")
		top.AddLink("s2", "h2")
		top.AddLink("s1", "s2")
		change(top)
		_, problems := Resolve(top, Defaults{Controller: ControllerTrivet, Controlled: Embedded, Datapath: Bridge})
		text := ""
		if err := problems.Err(); err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("the problems are\n%s\nwant\n%s", text, want)
		}
	}
}

// TestVLANSubnets proves that addresses follow VLANs: with a router on a stick the hosts of one
// VLAN, at whichever switches, are in the subnet of the router's interface of that VLAN, also where
// a link has one VLAN without tags, and a switch in between knows of no VLANs; and that hosts of
// another have another subnet.
func TestVLANSubnets(t *testing.T) {
	top := &Topology{}
	r := top.AddNode(Router, "r1")
	r.Datapath = Kernel
	r.Interfaces = []Interface{{Name: "v10", VLAN: 10, On: "r1-eth0", Addresses: prefixes("10.10.0.1/24")}, {Name: "v20", VLAN: 20, On: "r1-eth0", Addresses: prefixes("10.20.0.1/24")}}
	for _, s := range []string{"s1", "s2", "plain"} {
		top.AddNode(Switch, s)
	}
	link := func(a, b string) *Link {
		if top.NodesByName()[b] == nil {
			top.AddNode(Host, b)
		}
		return top.AddLink(a, b)
	}
	link("r1", "s1").Trunk = "10,20"
	link("s1", "h1").VLAN = 10
	link("s1", "h2").VLAN = 20
	link("s1", "plain").Trunk = AllVLANs // of which VLAN 20 has no tag at s2
	l := link("plain", "s2")
	l.Ends[1].Trunk = "10,20"
	link("s2", "h3").VLAN = 10
	link("s2", "h4").VLAN = 20
	link("s2", "h5") // in VLAN 1
	out, problems := Resolve(top, Defaults{Controller: ControllerTrivet, Controlled: Embedded, Datapath: Bridge})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	for host, want := range map[string][]string{"h1": {"10.10.0.2/24", "10.10.0.1"}, "h3": {"10.10.0.3/24", "10.10.0.1"},
		"h2": {"10.20.0.2/24", "10.20.0.1"}, "h4": {"10.20.0.3/24", "10.20.0.1"}} {
		n := out.NodesByName()[host]
		if got := AddressesOf(out, n); len(got) != 1 || got[0].String() != want[0] || len(n.Gateways) != 1 || n.Gateways[0].String() != want[1] {
			t.Errorf("%s has %v and the gateways %v, want %v", host, got, n.Gateways, want)
		}
	}
	if n := out.NodesByName()["h5"]; len(n.Gateways) > 0 || slices.ContainsFunc(r.Interfaces, func(i Interface) bool { return i.Addresses[0].Masked() == AddressesOf(out, n)[0].Masked() }) {
		t.Errorf("h5, in VLAN 1, has %v and the gateways %v", AddressesOf(out, n), n.Gateways)
	}
}

// TestVLANPorts proves which VLANs the ports of switches have: those of the link, those of the end
// in their place, VLAN 1 and all others where nothing is said and another port of the switch has
// some, and none at switches of which nothing is said.
func TestVLANPorts(t *testing.T) {
	top := &Topology{}
	for _, s := range []string{"s1", "s2", "s3"} {
		top.AddNode(Switch, s)
	}
	top.AddNode(Host, "h1")
	access := top.AddLink("s1", "h1")
	access.VLAN = 10
	both := top.AddLink("s1", "s2")
	both.Trunk, both.Ends[1].VLAN = "10,20", 30
	unsaid := top.AddLink("s3", "s2")
	got := VLANPorts(top)
	want := map[*Link][2]PortVLANs{access: {{10, ""}, {}}, both: {{0, "10,20"}, {30, ""}}, unsaid: {{}, {1, AllVLANs}}}
	for l, ports := range want {
		if got[l] != ports {
			t.Errorf("link %s has %v, want %v", l.Name(), got[l], ports)
		}
	}
	access.VLAN, both.Trunk, both.Ends[1].VLAN = 0, "", 0
	if got := VLANPorts(top); len(got) > 0 {
		t.Errorf("without VLANs ports have %v", got)
	}
}
