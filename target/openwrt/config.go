package openwrt

import (
	"context"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// fabric is a switch by Open vSwitch to what reads its configuration and loads it. Its ports are
// those of a topology by number.
type fabric struct {
	datapath.Base
	topology *topology.Topology
	login    *site.Login
	plan     Plan
}

// Fabric reads and loads the configuration of the switch, whose agent is Open vSwitch.
func (p Plan) Fabric(t *topology.Topology, l *site.Login) datapath.Fabric {
	return fabric{topology: t, login: l, plan: p}
}

// FlowEntries are those of the switch.
func (s fabric) FlowEntries(ctx context.Context, _ *topology.Node) ([]string, error) {
	text, err := s.plan.ofctl(ctx, s.login, "", "dump-flows", "--no-stats", "--no-names")
	if err != nil {
		return nil, err
	}
	return ovs.Entries(text), nil
}

// ChangeFlows removes entries, and then adds others.
func (s fabric) ChangeFlows(ctx context.Context, _ *topology.Node, remove, add []string) error {
	lines := ovs.Changes(remove, add)
	if lines == "" {
		return nil
	}
	_, err := s.plan.ofctl(ctx, s.login, lines, "add-flows", "-")
	return err
}

// Vsctl runs commands of ovs-vsctl at the device, in one transaction.
func (s fabric) Vsctl(ctx context.Context, commands ...[]string) (string, error) {
	arguments := []string{"vsctl"}
	for _, c := range commands {
		arguments = append(append(arguments, "--"), c...)
	}
	return run(ctx, s.login, s.plan.ID, arguments...)
}

// RecordsOf are the names that the device's bridge and ports have.
func (s fabric) RecordsOf(n *topology.Node) (bridge string, ports []ovs.RecordedPort) {
	for _, e := range topology.EndsOf(s.topology)[n.Name] {
		i := slices.IndexFunc(s.plan.Ports, func(p Port) bool { return p.Number == int(n.OpenFlowPort(*e)) })
		if i >= 0 {
			ports = append(ports,
				ovs.RecordedPort{Name: e.Interface, Record: s.plan.Ports[i].Device, Blocked: s.plan.Ports[i].Blocked})
		}
	}
	return topology.DeviceName(n.Name), ports
}
