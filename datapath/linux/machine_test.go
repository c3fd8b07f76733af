package linux

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestMachineRefuses proves that interfaces of a virtual machine cannot have names that its other
// devices have, nor addresses by which they could not be told apart; in other routers they can.
func TestMachineRefuses(t *testing.T) {
	end := func(node, name string, last byte) topology.Endpoint {
		return topology.Endpoint{Node: node, Interface: name, MAC: topology.MAC{2, 0, 0, 0, 0, last}}
	}
	agent := end("r1", "r1-eth1", 0)
	agent.MAC = topology.MAC{0x52, 0x54, 0, 0, 0, 1}
	for _, c := range []struct {
		of   topology.Datapath
		ends []topology.Endpoint
		want string
	}{
		{topology.VM, []topology.Endpoint{end("r1", "r1-eth0", 1), end("r1", "vmx", 2)}, ""},
		{topology.VM, []topology.Endpoint{end("r1", "vm0", 1)}, "the device name vm0 is taken"},
		{topology.VM, []topology.Endpoint{end("r1", "device12", 1)}, "the device name device12 is taken"},
		{topology.VM, []topology.Endpoint{agent}, "another one has 52:54:00:00:00:01"},
		{topology.VM, []topology.Endpoint{end("r1", "a", 1), end("r1", "b", 1)}, "another one has 02:00:00:00:00:01"},
		{topology.Kernel, []topology.Endpoint{end("r1", "vm0", 1), end("r1", "b", 1)}, ""},
	} {
		lab := &topology.Topology{Nodes: []*topology.Node{{Name: "r1", Kind: topology.Router, Datapath: c.of}, {Name: "h1", Kind: topology.Host}}}
		for _, e := range c.ends {
			lab.Links = append(lab.Links, &topology.Link{Ends: [2]topology.Endpoint{e, {Node: "h1"}}})
		}
		said := ""
		if err := refuses(lab).Err(); err != nil {
			said = err.Error()
		}
		if c.want == "" && said != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s %v: %s", c.of, c.ends, said)
		}
	}
}
