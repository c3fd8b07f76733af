package site

import (
	"fmt"
	"net/netip"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestPortsOf proves which ports a placed topology has in networks: of ends in a network that is
// there, of both ends of a link that is one because the list says so, or because a router of the
// provider's is at an end; which of them are its routers', with what routes and addresses; and that
// such a lab may become one with the same, and with no other.
func TestPortsOf(t *testing.T) {
	mac := topology.MAC{2, 0, 0, 0, 0, 1}
	route := topology.Route{To: netip.MustParsePrefix("10.9.0.0/24"), Via: netip.MustParseAddr("10.0.1.2"), Computed: true}
	lab := func() *topology.Topology {
		end := func(node, address string) topology.Endpoint {
			e := topology.Endpoint{Node: node, Interface: node + "-eth0", MAC: mac}
			if address != "" {
				e.Addresses = []netip.Prefix{netip.MustParsePrefix(address)}
			}
			return e
		}
		return &topology.Topology{
			Nodes: []*topology.Node{
				{Name: "h1", Kind: topology.Host, On: "i1"}, {Name: "h2", Kind: topology.Host, On: "i2"}, {Name: "s1", Kind: topology.Switch, Datapath: topology.Embedded, On: "i1"},
				{Name: "q1", Kind: topology.Router, Datapath: topology.Neutron, On: topology.AtProvider, Routes: []topology.Route{route}},
			},
			Links: []*topology.Link{
				{Ends: [2]topology.Endpoint{end("h1", "10.0.0.2/24"), end("h2", "10.0.0.3/24")}},
				{Ends: [2]topology.Endpoint{end("h1", "10.0.2.2/24"), end("s1", "")}},
				{Ends: [2]topology.Endpoint{end("s1", ""), end("q1", "10.0.1.1/24")}},
				{Ends: [2]topology.Endpoint{end("q1", ""), {Network: "net1"}}},
				{Ends: [2]topology.Endpoint{end("h2", "10.5.0.2/24"), {Network: "net1"}}},
			},
		}
	}
	said := func(ports []*Port) (out []string) {
		for _, p := range ports {
			out = append(out, fmt.Sprintf("%s of %s at %s, network %q, router %v, %v, asks %v", p.Link, p.Node, p.Site, p.Network, p.Router != nil, p.Addresses, p.Addressed))
		}
		return out
	}
	top := lab()
	for joins, more := range map[bool][]string{false: nil, true: {
		`h1-h2 of h1 at i1, network "", router false, [], asks false`,
		`h1-h2 of h2 at i2, network "", router false, [], asks false`,
	}} {
		l := &List{Provided: &Provided{Joins: joins}}
		want := append(more, []string{
			`s1-q1 of s1 at i1, network "", router false, [], asks false`,
			`s1-q1 of q1 at @provider, network "", router true, [10.0.1.1/24], asks false`,
			`q1-net1 of q1 at @provider, network "net1", router true, [], asks true`,
			`h2-net1 of h2 at i2, network "net1", router false, [10.5.0.2/24], asks true`,
		}...)
		if got := said(l.PortsOf(top, top)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("joins %v:\n%q, want\n%q", joins, got, want)
		}
	}
	l := &List{Provided: &Provided{}}
	l.Provided.Ports = l.PortsOf(top, top)
	if a, b := l.Provided.Ports[1].Router, l.Provided.Ports[2].Router; a != b || a.Node != "q1" || len(a.Routes) != 1 {
		t.Errorf("the routers of ports of one are %+v and %+v", a, b)
	}
	if err := l.CheckPorts(top); err != nil {
		t.Error("the lab cannot stay what it is: ", err)
	}
	for what, change := range map[string]func(*topology.Topology){
		"other routes":   func(t *topology.Topology) { t.Nodes[3].Routes = nil },
		"another router": func(t *topology.Topology) { t.Nodes[3].Datapath = topology.Kernel },
		"another address": func(t *topology.Topology) {
			t.Links[2].Ends[1].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.1.9/24")}
		},
		"another port": func(t *topology.Topology) { t.Links[0].Ends[1].Node = "q1" },
	} {
		other := lab()
		change(other)
		if l.CheckPorts(other) == nil {
			t.Errorf("%s: it may", what)
		}
	}
}

// TestPortsOfMachines proves that links of a host that is a machine itself are networks, also where
// links between machines are tunnels, with the host's MAC address at its end; and no others.
func TestPortsOfMachines(t *testing.T) {
	end := func(node string) topology.Endpoint {
		return topology.Endpoint{Node: node, Interface: node + "-eth0", MAC: topology.MAC{2, 0, 0, 0, 0, 7}}
	}
	top := &topology.Topology{
		Nodes: []*topology.Node{
			{Name: "h1", Kind: topology.Host, On: "vm1", Native: true}, {Name: "h2", Kind: topology.Host, On: "i2"},
			{Name: "s1", Kind: topology.Switch, On: "i1"}, {Name: "s2", Kind: topology.Switch, On: "i2"},
		},
		Links: []*topology.Link{
			{Ends: [2]topology.Endpoint{end("s1"), end("h1")}}, {Ends: [2]topology.Endpoint{end("s1"), end("s2")}},
			{Ends: [2]topology.Endpoint{end("s2"), end("h2")}},
		},
	}
	var got []string
	for _, p := range (&List{Provided: &Provided{}}).PortsOf(top, top) {
		got = append(got, fmt.Sprintf("%s of %s at %s, %v", p.Link, p.Node, p.Site, p.MAC))
	}
	if want := "[s1-h1 of s1 at i1, 00:00:00:00:00:00 s1-h1 of h1 at vm1, 02:00:00:00:00:07]"; fmt.Sprint(got) != want {
		t.Errorf("%q, want %s", got, want)
	}
	if got := (&List{}).PortsOf(top, top); len(got) > 0 {
		t.Errorf("without a provider: %+v", got)
	}
}
