package topology_test

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// TestProvided proves what routers that a provider makes cannot be asked for, and that everything
// else holds for them: addresses, and routes along the shortest paths.
func TestProvided(t *testing.T) {
	const q = "nodes: {h1: host, h2: host, q1: {router: {datapath: neutron}}, q2: {router: {datapath: neutron}}}\nlinks: [h1 -- q1, q1 -- q2, q2 -- h2]\n"
	for text, want := range map[string]string{
		q: "",
		strings.Replace(q, "h1 -- q1", "{h1 -- q1: {from: {delay: 5ms}}}", 1):                        "",
		strings.Replace(q, "h1 -- q1", "{h1 -- q1: {delay: 5ms}}", 1):                                "link h1-q1: q1 cannot limit, delay or lose what it sends",
		strings.Replace(q, "q1 -- q2", "{q1 -- q2: {to: {bandwidth: 5mbit}}}", 1):                    "link q1-q2: q2 cannot limit",
		strings.Replace(q, "q1 -- q2", "{q1 -- q2: {down: true}}", 1):                                "neither q1 nor q2 can be made to set it down",
		strings.Replace(q, "h1 -- q1", "{h1 -- q1: {down: true}}", 1):                                "",
		strings.Replace(q, "h1 -- q1", "q1 -- interface:eth1", 1):                                    "q1 can have no interface of this machine",
		strings.Replace(q, "h1 -- q1", "q1 -- network:net1", 1):                                      "",
		strings.Replace(q, "neutron}", "neutron, ospf: area 0}", 1):                                  "router q1: a router of Neutron has no OSPF",
		strings.Replace(q, "neutron}", "neutron, loopback: 10.9.9.9/32}", 1):                         "has no loopback address",
		strings.Replace(q, "neutron}", "neutron, start: true}", 1):                                   "has no programs, namespaces or translation",
		strings.Replace(q, "neutron}", "neutron, cpu: 0.5}", 1):                                      "has no limits of processors",
		strings.Replace(q, "neutron}", "neutron, routes: [10.0.0.0/8 discard]}", 1):                  "takes routes through neighbours alone, not 10.0.0.0/8 discard",
		strings.Replace(q, "neutron}", "neutron, routes: [10.9.0.0/16 via 172.16.0.2 metric 5]}", 1): "takes routes through neighbours alone",
		"ipv6: assigned\n" + q: "has no IPv6 that a topology asks for",
	} {
		top, problems := trivet.Read("lab.yaml", []byte(text))
		if err := problems.Err(); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		r, problems := topology.Resolve(top, topology.Defaults{Controller: topology.ControllerNone, Datapath: topology.Bridge})
		switch err := problems.Err(); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case text == q:
			if q1 := r.Node("q1"); len(q1.Routes) != 1 || !q1.Routes[0].Computed || q1.RoutingNode() {
				t.Errorf("q1 is %+v", q1)
			}
		}
	}
}
