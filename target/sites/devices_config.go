package sites

import (
	"context"
	"slices"
	"sync"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/openwrt"
	"trivet.dev/trivet/topology"
)

// deviceSwitch is the form in which the configuration of a device with Open vSwitch is read and
// loaded. Its ports are the topology's by number.
type deviceSwitch struct {
	datapath.Base
	topology *topology.Topology
	login    *site.Login
	plan     openwrt.Plan
}

// FlowEntries returns the flow entries of the switch.
func (s deviceSwitch) FlowEntries(ctx context.Context, _ *topology.Node) ([]string, error) {
	text, err := openwrt.Ofctl(ctx, s.login, s.plan, "", "dump-flows", "--no-stats", "--no-names")
	if err != nil {
		return nil, err
	}
	return ovs.Entries(text), nil
}

// ChangeFlows removes entries, and then adds others.
func (s deviceSwitch) ChangeFlows(ctx context.Context, _ *topology.Node, remove, add []string) error {
	lines := ovs.Changes(remove, add)
	if lines == "" {
		return nil
	}
	_, err := openwrt.Ofctl(ctx, s.login, s.plan, lines, "add-flows", "-")
	return err
}

// Vsctl runs commands of ovs-vsctl at the device.
func (s deviceSwitch) Vsctl(ctx context.Context, commands ...[]string) (string, error) {
	return openwrt.Vsctl(ctx, s.login, s.plan, commands...)
}

// RecordsOf returns the names of the device's bridge and ports.
func (s deviceSwitch) RecordsOf(n *topology.Node) (bridge string, ports []ovs.RecordedPort) {
	for _, e := range topology.EndsOf(s.topology)[n.Name] {
		i := slices.IndexFunc(s.plan.Ports, func(p openwrt.Port) bool { return p.Number == int(n.OpenFlowPort(*e)) })
		if i >= 0 {
			ports = append(ports,
				ovs.RecordedPort{Name: e.Interface, Record: s.plan.Ports[i].Device, Blocked: s.plan.Ports[i].Blocked})
		}
	}
	return topology.DeviceName(n.Name), ports
}

// switchOf returns a device's node in a topology, in the form in which its configuration is read
// and loaded.
func (l *Lab) switchOf(t *topology.Topology, n *topology.Node, d *device,
	p openwrt.Plan) (in datapath.Running, err error) {
	login, err := d.now()
	return datapath.Running{Node: n, Fabric: deviceSwitch{topology: t, login: login, plan: p},
		Foreign: len(topology.ForeignControllers(t, n)) > 0, ByHand: l.owner.ByHand}, err
}

// eachConfigured calls f concurrently for all devices with Open vSwitch that are switches of a
// topology.
func (l *Lab) eachConfigured(t *topology.Topology, f func(*topology.Node, *device, openwrt.Plan) error) error {
	return parallel.All(l.devices, func(d *device) error {
		n, _ := portsAt(t, d.machine, nil, nil)
		if p := d.plan.Load(); n != nil && p != nil && p.Agent == site.AgentOVS {
			return f(n, d, *p)
		}
		return nil
	})
}

// configureDevices loads the configurations of switches that are devices, in place of those that
// had returns for them (nil: none). It returns the switches at which it has begun.
func (l *Lab) configureDevices(ctx context.Context, to *topology.Topology,
	had func(d *device, node string) *topology.Node) (begun map[*device]bool, err error) {
	begun = map[*device]bool{}
	var mu sync.Mutex
	err = l.eachConfigured(to, func(n *topology.Node, d *device, p openwrt.Plan) error {
		old := had(d, n.Name)
		if old == nil {
			old = &topology.Node{}
		}
		if slices.Equal(old.Config, n.Config) {
			return nil
		}
		in, err := l.switchOf(to, n, d, p)
		if err != nil {
			return err
		}
		mu.Lock()
		begun[d] = true
		mu.Unlock()
		return datapath.LoadConfigs(ctx, in, old, false)
	})
	return begun, err
}

// loadDevicesAgain reloads flow entries: see LoadAgain.
func (l *Lab) loadDevicesAgain(ctx context.Context) error {
	t := l.Topology()
	return l.eachConfigured(t, func(n *topology.Node, d *device, p openwrt.Plan) error {
		in, err := l.switchOf(t, n, d, p)
		if err != nil {
			return nil // its entries are still there
		}
		return datapath.LoadFlowsAgain(ctx, in)
	})
}

// presentAt reads the configuration of a switch that is a device. It does not wait for one that is
// away.
func (l *Lab) presentAt(ctx context.Context, n *topology.Node, d *device) (out lab.Present, err error) {
	out = lab.Present{Node: n.Name, Config: []topology.ConfigFile{}}
	p := d.plan.Load()
	switch {
	case p == nil || d.gone.Load():
		out.Remarks = append(out.Remarks,
			d.machine.Name+" is no switch of the lab now: what is configured there is not saved")
		return out, nil
	case p.Agent != site.AgentOVS:
		out.Remarks = append(out.Remarks,
			"it is a device with the agent "+p.Agent+": what is configured there is not saved")
		return out, nil
	}
	in, err := l.switchOf(l.Topology(), n, d, *p)
	if err != nil {
		out.Remarks = append(out.Remarks, err.Error()+": what is configured there is not saved")
		return out, nil
	}
	out.Config, out.Remarks, err = datapath.ReadConfigs(ctx, in)
	return out, err
}
