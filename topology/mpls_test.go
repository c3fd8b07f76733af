package topology

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func labelsAs(t *testing.T, texts ...string) (out []LabelRoute) {
	for _, text := range texts {
		l, err := ParseLabelRoute(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// TestParseLabelRoute proves that what becomes of labels is read and written alike, and that what
// no packet can have, or no router be told, is refused with what is meant instead.
func TestParseLabelRoute(t *testing.T) {
	for _, text := range []string{"16 swap 1048575 via 10.0.0.2", "100 swap 200/0/2/16 via fd00::2 dev r1-eth0", "1048575 pop via fe80::1 dev r1-eth0", "100 pop dev lo", "100 swap 2 via 10.0.0.2"} {
		l, err := ParseLabelRoute(text)
		if err != nil || l.String() != text {
			t.Errorf("%q is read as %q: %v", text, l, err)
		}
	}
	for text, want := range map[string]string{
		"": "", "100": "", "100 pop": "", "100 swap 200": "", "100 swap via 10.0.0.2": "", "100 swap 200 dev lo": "", "x pop dev lo": "", "100 pop 200 via 10.0.0.2": "",
		"100 pop via 10.0.0.2 via 10.0.0.3": "", "100 pop dev a dev b": "", "100 pop dev a via 10.0.0.2": "", "100 pop via fe80::1%a": "", "100 pop via x": "", "100 pop via": "",
		"100 push 200 via 10.0.0.2": "does not say what becomes of a label",
		"0 pop dev lo":              "known to every router", "2 pop dev lo": "known to every router", "3 pop via 10.0.0.2": "implicit null", "15 pop dev lo": "reserved",
		"1048576 pop dev lo": "is no label", "-1 pop dev lo": "is no label", "100 swap 3 via 10.0.0.2": "implicit null", "100 swap 15 via 10.0.0.2": "no label for packets",
		"100 swap 200/1048576 via 10.0.0.2": "no label for packets", "100 swap 200/ via 10.0.0.2": "not a stack", "100 swap /200 via 10.0.0.2": "not a stack", "100 swap +200 via 10.0.0.2": "not a stack",
		"100 swap 16" + strings.Repeat("/16", 16) + " via 10.0.0.2": "more than 16 labels",
	} {
		if l, err := ParseLabelRoute(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %q: %v, want %s", text, l, err, want)
		}
	}
	const route = "10.2.0.0/16 via 10.0.0.2 src 10.0.0.1 labels 100/200 table 7 metric 5"
	if r, err := ParseRoute(route); err != nil || r.String() != route || !slices.Equal(r.Labels.Labels(), []int{100, 200}) || StackOf([]int{100, 200}) != r.Labels || !r.OnlyKernels() {
		t.Errorf("%q is read as %q: %v", route, r, err)
	}
	for _, text := range []string{"10.2.0.0/16 via 10.0.0.2 labels", "10.2.0.0/16 via 10.0.0.2 labels 3", "10.2.0.0/16 via 10.0.0.2 labels 100 labels 200"} {
		if r, err := ParseRoute(text); err == nil {
			t.Errorf("%q is read as %q", text, r)
		}
	}
}

// TestMPLSResolved proves that a node's word holds for all its devices but VRFs, a link's for those
// of its ends that can have it, and an end's for that alone; that the device of a next hop follows
// from its address; that a router that says nothing of its datapath gets one that has MPLS; that
// the kernel knows as many labels as needed, or as many as its settings say; and that a part has
// the labels of its nodes, at the devices that these have there.
func TestMPLSResolved(t *testing.T) {
	top := policy(func(top *Topology) {
		n := top.Node("r1")
		n.Datapath, n.MPLS, n.On = "", true, "b"
		n.Labels = labelsAs(t, "300000 swap 200 via 10.2.0.2", "101 pop via fd01::7", "102 pop via 192.0.2.1 dev r1-eth0", "103 pop dev lo", "104 pop dev red")
		n.Interfaces = []Interface{{Name: "v", VLAN: 7, On: "r1-eth0"}, {Name: "red", VRF: []string{"r1-eth2"}, Table: 10}}
		top.Links[1].Ends[1].MPLS = true
		for _, name := range []string{"r2", "r3", "r4"} {
			top.AddNode(Router, name)
			top.AddLink("r1", name)
		}
		top.Links[3].MPLS = true
		s := top.AddNode(Switch, "s1")
		s.Datapath = Bridge
		top.AddLink("s1", "r4")
		top.Links[5].MPLS = true
		top.Node("r4").Sysctls = []Assignment{{Name: PlatformSetting, Value: "1000"}}
		top.Node("r4").Datapath = Kernel
	})
	out, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet})
	if out == nil {
		t.Fatal(problems)
	}
	var takes []string
	for _, l := range out.Links {
		for _, e := range l.Ends {
			if e.MPLS {
				takes = append(takes, e.Interface)
			}
		}
	}
	if got := strings.Join(takes, " "); got != "r1-eth0 r1-eth1 h2-eth0 r1-eth2 r1-eth3 r3-eth0 r1-eth4 r4-eth1" {
		t.Error("labels are taken at", got)
	}
	n := out.Node("r1")
	if n.Datapath != Kernel || out.Node("r3").Datapath != Kernel || out.Node("r2").Datapath != Embedded {
		t.Error("datapaths", n.Datapath, out.Node("r3").Datapath, out.Node("r2").Datapath)
	}
	if got := joined(n.Labels); got != "300000 swap 200 via 10.2.0.2 dev r1-eth1, 101 pop via fd01::7 dev r1-eth0, 102 pop via 192.0.2.1 dev r1-eth0, 103 pop dev lo, 104 pop dev red" {
		t.Error("labels", got)
	}
	if !n.Interfaces[0].MPLS || n.Interfaces[1].MPLS {
		t.Error("interfaces", n.Interfaces)
	}
	ends := EndsOf(out)
	for name, want := range map[string]int{"r1": 300001, "r2": 0, "r3": 100_000, "r4": 1000, "h1": 0, "h2": 100_000} {
		if got := out.Node(name).PlatformLabels(ends[name]); got != want {
			t.Errorf("%s knows %d labels, want %d", name, got, want)
		}
	}
	part := Part(out, "b", func(key string, _ *Link, _ int) *Carrier {
		if strings.Contains(key, "h1") {
			return &Carrier{NIC: "eth5", Wire: true}
		}
		return &Carrier{Node: "x"}
	})
	if got := joined(part.Node("r1").Labels); !strings.Contains(got, "via fd01::7 dev eth5") || !strings.Contains(got, "via 10.2.0.2 dev r1-eth1") || !part.Links[0].Ends[0].MPLS {
		t.Error("in a part", got)
	}
}

// TestMPLSRefused proves that what a node or link cannot have of MPLS is told of it, and that
// labels that have no effect are a warning.
func TestMPLSRefused(t *testing.T) {
	labels := func(texts ...string) func(*Topology) {
		return func(top *Topology) { top.Node("r1").Labels = labelsAs(t, texts...) }
	}
	routing := func(top *Topology) *Node {
		n := top.Node("r1")
		n.Datapath, n.Controllers = Embedded, []string{ControllerTrivet}
		return n
	}
	for want, change := range map[string]func(*Topology){
		"router r1: label 100: there are two of it":                                   labels("100 pop dev lo", "100 swap 200 via 10.2.0.2"),
		"router r1: label 100 pop via 10.9.0.1: none of its subnets has 10.9.0.1":     labels("100 pop via 10.9.0.1"),
		"router r1: label 100 pop via 10.2.0.2 dev r1-eth7: it has no device r1-eth7": labels("100 pop via 10.2.0.2 dev r1-eth7"),
		"10.2.0.1 is its own address":                                                 labels("100 pop via 10.2.0.1"),
		"label 100 pop dev r1-eth0: it does not say who gets the packet":              labels("100 pop dev r1-eth0"),
		"cannot be the address of a neighbour":                                        labels("100 pop via 224.0.0.5"),
		"mpls: only these have it":                                                    func(top *Topology) { top.AddNode(Switch, "s1").MPLS = true },
		"labels: only these have any":                                                 func(top *Topology) { top.AddNode(Switch, "s1").Labels = labelsAs(t, "100 pop dev lo") },
		"does not say what becomes of a label":                                        func(top *Topology) { top.Node("r1").Labels = []LabelRoute{{Label: 100, Device: "a b"}} },
		"labels: label 15 is reserved":                                                func(top *Topology) { top.Node("r1").Labels = []LabelRoute{{Label: 15, Device: "lo"}} },
		"packets with labels go to a router":                                          func(top *Topology) { top.Node("r1").Routes = routesAs(t, "10.9.0.0/16 dev r1-eth0 labels 100") },
		"is not a stack of labels": func(top *Topology) {
			top.Node("r1").Routes = []Route{{To: top.Links[0].Ends[0].Addresses[0], Via: netip.MustParseAddr("10.2.0.2"), Labels: "x"}}
		},
		"label 2000: sysctls let the node know only those below 1000": func(top *Topology) {
			labels("2000 pop dev lo")(top)
			top.Node("r1").Sysctls = []Assignment{{PlatformSetting, "1000"}}
		},
		"a routing node has no namespaces":                                    func(top *Topology) { routing(top).MPLS = true },
		"router r1: mpls: it has no namespace of its own that could have any": func(top *Topology) { routing(top); top.Links[0].Ends[0].MPLS = true },
		"route 10.9.0.0/16 via 10.2.0.2 labels 100: it has no namespace of its own": func(top *Topology) {
			top.Node("r1").Datapath = VM
			top.Node("r1").Routes = routesAs(t, "10.9.0.0/16 via 10.2.0.2 labels 100")
		},
		"mpls: not for virtual machines": func(top *Topology) { top.Node("h1").Guest, top.Node("h1").MPLS = &Guest{Image: "x"}, true },
		"labels: not for virtual machines": func(top *Topology) {
			n := top.Node("h1")
			n.Guest, n.Labels = &Guest{Image: "x"}, labelsAs(t, "100 pop dev lo")
		},
		"router r1: mpls and labels: it has no namespace of its own": func(top *Topology) { top.Node("r1").Datapath, top.Node("r1").MPLS = VM, true },
		"link s1 -- s2: mpls: only hosts and routers have it": func(top *Topology) {
			top.AddNode(Switch, "s1")
			top.AddNode(Switch, "s2")
			top.AddLink("s1", "s2").MPLS = true
		},
		"link s1 -- r1: mpls: only hosts and routers have it, and s1 is none":                                  func(top *Topology) { top.AddNode(Switch, "s1"); top.AddLink("s1", "r1").Ends[0].MPLS = true },
		"is left out, as the lab has no IPv6":                                                                  func(top *Topology) { top.IPv6 = IPv6Off; labels("100 pop via fd01::7")(top) },
		"label 100 swap 200 via 10.2.0.2 dev r1-eth1: the node with 10.2.0.2 takes no packets with labels":     labels("100 swap 200 via 10.2.0.2"),
		"router r1: route 10.9.0.0/16 via 10.2.0.2 labels 100: the node with 10.2.0.2 takes no packets with l": func(top *Topology) { top.Node("r1").Routes = routesAs(t, "10.9.0.0/16 via 10.2.0.2 labels 100") },
	} {
		top := policy(change)
		top.Links[1].Ends[1].Addresses = []netip.Prefix{netip.MustParsePrefix("10.2.0.2/24")}
		_, problems := Resolve(top, Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet})
		if got := problems.Error(); !strings.Contains(got, want) {
			t.Errorf("want %q of: %s", want, got)
		}
	}
}
