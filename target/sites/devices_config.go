package sites

import (
	"context"
	"slices"
	"sync"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

// switchOf is the node of a topology that a device is, to what reads and loads its configuration.
func (l *Lab) switchOf(t *topology.Topology, n *topology.Node, d *device,
	p configured.Plan) (in datapath.Running, err error) {
	login, err := d.now()
	return datapath.Running{Node: n, Fabric: p.Fabric(t, login),
		Foreign: len(topology.ForeignControllers(t, n)) > 0, ByHand: l.owner.ByHand}, err
}

// eachConfigured calls f, at once, for all devices that are a switch of a topology which takes
// configuration of its own.
func (l *Lab) eachConfigured(t *topology.Topology, f func(*topology.Node, *device, configured.Plan) error) error {
	return parallel.All(l.devices, func(d *device) error {
		n, _ := portsAt(t, d.machine, nil, nil)
		if p := d.is(); n != nil && p != nil && p.Facts().Config {
			return f(n, d, p)
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
	err = l.eachConfigured(to, func(n *topology.Node, d *device, p configured.Plan) error {
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
	return l.eachConfigured(t, func(n *topology.Node, d *device, p configured.Plan) error {
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
	p := d.is()
	switch {
	case p == nil || d.gone.Load():
		out.Remarks = append(out.Remarks,
			d.machine.Name+" is no switch of the lab now: what is configured there is not saved")
		return out, nil
	case !p.Facts().Config:
		is := d.machine.Device().A()
		if d.machine.Agent != "" {
			is = "a device with the agent " + d.machine.Agent
		}
		out.Remarks = append(out.Remarks, "it is "+is+": what is configured there is not saved")
		return out, nil
	}
	in, err := l.switchOf(l.Topology(), n, d, p)
	if err != nil {
		out.Remarks = append(out.Remarks, err.Error()+": what is configured there is not saved")
		return out, nil
	}
	out.Config, out.Remarks, err = datapath.ReadConfigs(ctx, in)
	return out, err
}
