package ovs

import (
	"context"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// elsewhere is an Open vSwitch that calls ports otherwise than the topology does.
type elsewhere struct {
	datapath.Base
	asked [][]string
}

func (e *elsewhere) RecordsOf(*topology.Node) (bridge string, ports []RecordedPort) {
	return "s1", []RecordedPort{{Name: "s1-eth1", Record: "lan1"}, {Name: "s1-eth2", Record: "lan2", Blocked: true}}
}

func (e *elsewhere) Vsctl(_ context.Context, commands ...[]string) (string, error) {
	e.asked = commands
	var out []string
	for _, c := range commands {
		switch strings.Join(c, " ") {
		case "list-ifaces s1":
			return "lan1\nlan2\nlan3\n", nil
		case "--if-exists get port lan1 tag":
			out = append(out, "10")
		case "--if-exists get port lan2 trunks":
			out = append(out, "[4095]")
		case "--if-exists get port lan2 external_ids":
			out = append(out, `{trivet-vlans="{\"trunks\":[5]}"}`)
		default:
			out = append(out, "[]")
		}
	}
	return strings.Join(out, "\n") + "\n", nil
}

// TestConfigElsewhere proves that a configuration has the topology's names of ports, and Open
// vSwitch is asked and told by its own; also of a port whose VLANs are kept for when it may
// forward.
func TestConfigElsewhere(t *testing.T) {
	e := &elsewhere{}
	in := datapath.Running{Node: &topology.Node{Name: "s1", Kind: topology.Switch, Datapath: topology.OVS}, Fabric: e}
	text, err := readConfig(t.Context(), in, "")
	if want := "set port s1-eth1 tag=10\nset port s1-eth2 trunks=[5]\n"; err != nil || text != want {
		t.Errorf("it has %q (%v), not %q", text, err, want)
	}
	err = loadConfig(t.Context(), in, "set port s1-eth1 tag=10\nset port s1-eth2 trunks=[5]\n", "set interface s1-eth1 ingress_policing_rate=5\nset port s1-eth2 trunks=[6]\n")
	var told []string
	for _, c := range e.asked {
		told = append(told, strings.Join(c, " "))
	}
	want := []string{"--if-exists clear port lan1 tag", "--if-exists remove port lan2 external_ids trivet-vlans", "set interface lan1 ingress_policing_rate=5"}
	if err != nil || len(told) != 4 || !slices.Equal(told[:3], want) || !strings.HasPrefix(told[3], "set port lan2 external_ids:trivet-vlans=") {
		t.Errorf("%v: it is told\n%s", err, strings.Join(told, "\n"))
	}
}
