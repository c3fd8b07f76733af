package sites

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

// deviceStatus says, for the switches that are devices, whether they are connected to their
// controllers.
func (l *Lab) deviceStatus(ctx context.Context) (out []datapath.SwitchStatus, err error) {
	var mu sync.Mutex
	err = l.eachDevice(func(d *device, p configured.Plan) error {
		login, err := d.now()
		if err != nil {
			return err
		}
		list, err := p.Status(ctx, login)
		d.mu.Lock()
		ports := maps.Clone(d.ports)
		d.mu.Unlock()
		for i := range list {
			for c, port := range ports {
				if strings.HasSuffix(list[i].Address, fmt.Sprintf(":%d", port)) {
					list[i].Address = c
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		out = append(out, datapath.SwitchStatus{Switch: p.Facts().Switch, Controllers: list})
		return err
	})
	return out, err
}

// deadDevices names the devices that should be switches of the lab but are not.
func (l *Lab) deadDevices() (out []string) {
	for _, d := range l.devices {
		switch p := d.is(); {
		case p == nil:
		case d.gone.Load():
			out = append(out, "switch "+p.Facts().Switch+" at "+d.machine.Name)
		case d.lost.Load():
			out = append(out, d.machine.Name)
		}
	}
	return out
}

// deviceInfo describes the devices that are switches.
func (l *Lab) deviceInfo() (out []lab.SiteInfo) {
	for _, d := range l.devices {
		if d.is() == nil {
			continue
		}
		o := lab.SiteInfo{Name: d.machine.Name, Machine: d.machine.String(), Kind: d.machine.Kind,
			Agent: d.machine.Agent}
		if _, err := d.now(); err != nil {
			o.Problem = err.Error()
		} else if d.gone.Load() {
			o.Problem = configured.ErrGone.Error()
		}
		out = append(out, o)
	}
	return out
}

// deviceEnds fills in the state of the links' ends at devices without asking them: as last set.
func (l *Lab) deviceEnds(ends [][2]lab.End) {
	for i, link := range l.Topology().Links {
		for j, e := range link.Ends {
			if e.External() || l.deviceOf(e.Node) == nil {
				continue
			}
			ends[i][j] = lab.End{Interface: e.Interface, State: lab.EndUp}
			if link.Down {
				ends[i][j].State = lab.EndDown
			}
		}
	}
}

// awaitDevices waits until f reports success for all devices that have some of the switches.
func (l *Lab) awaitDevices(ctx context.Context, switches []*topology.Node,
	f func(context.Context, *site.Login, configured.Plan) (missing string, err error)) error {
	return l.eachDevice(func(d *device, p configured.Plan) error {
		name := p.Facts().Switch
		if !slices.ContainsFunc(switches, func(n *topology.Node) bool { return n.Name == name }) {
			return nil
		}
		for missing := "no answer"; ; {
			if login, err := d.now(); err == nil {
				ask, done := datapath.Still(ctx)
				what, err := f(ask, login, p)
				done()
				if err == nil && what == "" {
					return nil
				}
				if missing = what; err != nil {
					missing = err.Error()
				}
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("switch %s at %s: %s", name, d.machine.Name, missing)
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
}

func connectedDevice(ctx context.Context, login *site.Login, p configured.Plan) (missing string, err error) {
	list, err := p.Status(ctx, login)
	if err != nil || slices.ContainsFunc(list, func(c datapath.ControllerStatus) bool { return c.Connected }) {
		return "", err
	}
	return "it did not connect to " + strings.Join(p.Facts().Controllers, ", "), nil
}

func flowsAtDevice(ctx context.Context, login *site.Login, p configured.Plan) (missing string, err error) {
	n, err := p.Flows(ctx, login)
	if err != nil || n > 0 {
		return "", err
	}
	return "its controller has installed no flow entry", nil
}
