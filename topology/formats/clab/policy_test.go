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
