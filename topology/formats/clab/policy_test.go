package clab

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestPolicyWritten proves that rules, routes in tables and permanent neighbours are commands of
// what containerlab runs in a node, for both families where the topology has both.
func TestPolicyWritten(t *testing.T) {
	top := &topology.Topology{IPv6: topology.IPv6Assigned}
	n := top.AddNode(topology.Host, "h1")
	top.AddNode(topology.Host, "h2")
	top.AddLink("h1", "h2")
	for _, text := range []string{"fwmark 7 table 20", "to 10.9.0.0/16 prohibit priority 5"} {
		rule, err := topology.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		n.Rules = append(n.Rules, rule)
	}
	neighbor, err := topology.ParseNeighbor("10.0.0.7 lladdr 02:00:00:00:00:07")
	if err != nil {
		t.Fatal(err)
	}
	route, err := topology.ParseRoute("0.0.0.0/0 via 192.0.2.1 dev h1-eth0 onlink src 10.0.0.1 table 20")
	if err != nil {
		t.Fatal(err)
	}
	n.Neighbors, n.Routes = []topology.Neighbor{neighbor}, []topology.Route{route}
	start := strings.ReplaceAll(inCommands(top).Node("h1").Start, "'", "")
	for _, want := range []string{"ip route replace 0.0.0.0/0 via 192.0.2.1 dev h1-eth0 onlink src 10.0.0.1 table 20",
		"ip neigh replace 10.0.0.7 lladdr 02:00:00:00:00:07 dev h1-eth0 nud permanent", "ip rule add fwmark 7 table 20 priority 10000",
		"ip -6 rule add fwmark 7 table 20 priority 10000", "ip rule add to 10.9.0.0/16 prohibit priority 5"} {
		if !strings.Contains(start, want) {
			t.Errorf("there is no %q in:\n%s", want, start)
		}
	}
	if strings.Contains(start, "-6 rule add to 10.9") {
		t.Errorf("a rule of IPv4 is one of IPv6, too:\n%s", start)
	}
}

// TestMPLSWritten proves that labels are commands of what containerlab runs in a node, and that
// nothing is told to be lost of them.
func TestMPLSWritten(t *testing.T) {
	top := &topology.Topology{IPv6: topology.IPv6Assigned}
	n := top.AddNode(topology.Router, "r1")
	n.Image, n.MPLS = "x", true
	top.AddNode(topology.Host, "h1").Image = "x"
	top.AddLink("r1", "h1").MPLS = true
	for _, text := range []string{"200000 swap 200/300 via 10.0.0.7 dev r1-eth0", "101 pop via fd00::7 dev r1-eth0", "102 pop dev lo"} {
		label, err := topology.ParseLabelRoute(text)
		if err != nil {
			t.Fatal(err)
		}
		n.Labels = append(n.Labels, label)
	}
	route, err := topology.ParseRoute("10.9.0.0/16 via 10.0.0.7 dev r1-eth0 labels 100/200")
	if err != nil {
		t.Fatal(err)
	}
	n.Routes = []topology.Route{route}
	held := inCommands(top)
	start := strings.ReplaceAll(held.Node("r1").Start, "'", "")
	for _, want := range []string{"sysctl -qw net/mpls/platform_labels=200001", "sysctl -qw net/mpls/conf/r1-eth0/input=1",
		"ip -f mpls route replace 200000 as 200/300 via inet 10.0.0.7 dev r1-eth0", "ip -f mpls route replace 101 via inet6 fd00::7 dev r1-eth0",
		"ip -f mpls route replace 102 dev lo", "ip route replace 10.9.0.0/16 encap mpls 100/200 via 10.0.0.7 dev r1-eth0"} {
		if !strings.Contains(start, want) {
			t.Errorf("there is no %q in:\n%s", want, start)
		}
	}
	if !strings.Contains(held.Node("h1").Start, "net/mpls/conf/h1-eth0/input=1") {
		t.Errorf("h1 takes no labels: %s", held.Node("h1").Start)
	}
	_, lost, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lost {
		if strings.Contains(l.Field, "mpls") || l.Field == "labels" || l.Field == "routes" {
			t.Error("it is said to be lost:", l)
		}
	}
}
