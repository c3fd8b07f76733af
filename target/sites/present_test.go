package sites

import (
	"net/netip"
	"reflect"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// TestNameDevices proves that a host that is at a wire, whose device there is the machine's, is
// said to have addresses and routes at the interface that the topology gives it, as save compares
// them with its file; and that other devices keep their names.
func TestNameDevices(t *testing.T) {
	top := &topology.Topology{}
	top.AddNode(topology.Host, "h1")
	s1 := top.AddNode(topology.Switch, "s1")
	s1.Datapath = topology.OVS
	top.AddLink("s1", "h1")
	resolved, problems := topology.Resolve(top, lab.Defaults)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	resolved.Node("s1").On = "ap"
	l := headOf(t, resolved, &site.List{Machines: []*site.Machine{{Name: "ap", Host: "127.0.0.1", Kind: site.OpenWrt, Agent: site.AgentOVS}}})
	l.record.Wires = map[string]site.Wire{topology.LinkKeys(resolved)[0]: {Ends: [2]site.Plug{{Site: "ap", NIC: "lan1"}, {Site: topology.Head, NIC: "eth1"}}}}
	here, loopback := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}, []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}
	present := []lab.Present{{Node: "h1", Network: true, Addresses: map[string][]netip.Prefix{"eth1": here, "lo": loopback}, Routes: []topology.Route{{Device: "eth1"}, {Device: "other"}}}, {Node: "s1"}}
	l.nameDevices(present)
	want := lab.Present{Node: "h1", Network: true, Addresses: map[string][]netip.Prefix{"h1-eth0": here, "lo": loopback}, Routes: []topology.Route{{Device: "h1-eth0"}, {Device: "other"}}}
	if !reflect.DeepEqual(present[0], want) {
		t.Errorf("it has %+v, not %+v", present[0], want)
	}
}
