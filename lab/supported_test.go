package lab

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestSupported proves that a topology whose switches cannot talk to their controllers is refused
// before anything is made, and why: two names for one controller, or an OpenFlow version that one
// side does not speak.
func TestSupported(t *testing.T) {
	for _, c := range []struct {
		what        string
		controllers []string
		datapath    topology.Datapath
		versions    []string
		says        string
	}{
		{"two names of one address", []string{"c0", "c1"}, topology.OVS, nil, "c0 and c1 are both at tcp:127.0.0.1:6653"},
		{"a name and its address", []string{"c0", "tcp:127.0.0.1"}, topology.OVS, nil, "are both at tcp:127.0.0.1:6653"},
		{"two controllers", []string{"c0", "tcp:127.0.0.1:6654"}, topology.OVS, nil, ""},
		{"Trivet's, 1.0", []string{"trivet"}, topology.OVS, []string{"1.0"}, "Trivet's controller speaks 1.3"},
		{"Trivet's by a node's name, 1.0", []string{"c2"}, topology.OVS, []string{"1.0"}, "Trivet's controller speaks 1.3"},
		{"Trivet's, 1.0 or 1.3", []string{"trivet"}, topology.OVS, []string{"1.0", "1.3"}, ""},
		{"another one, 1.0", []string{"c0"}, topology.OVS, []string{"1.0"}, ""},
		{"embedded, 1.0", []string{"c0"}, topology.Embedded, []string{"1.0"}, "an embedded switch speaks 1.3"},
	} {
		controller := func(name, address string) *topology.Node {
			return &topology.Node{Name: name, Kind: topology.Controller, Address: address}
		}
		topo := &topology.Topology{Name: "x", Nodes: []*topology.Node{
			controller("c0", "tcp:127.0.0.1:6653"), controller("c1", "tcp:127.0.0.1:6653"), controller("c2", topology.ControllerTrivet),
			{Name: "s1", Kind: topology.Switch, Datapath: c.datapath, Controllers: c.controllers, OpenFlow: c.versions, DPID: 1},
		}}
		switch err := Supported(topo); {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
	}
}
