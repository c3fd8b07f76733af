package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Meet has nothing to do: bridges get their controllers together with everything else.
func (f *fabric) Meet() error { return nil }

// Status returns the state of the connections between all switches and their controllers.
func (f *fabric) Status(ctx context.Context) (out []datapath.SwitchStatus, err error) {
	switches := f.switches.Load()
	if switches == nil {
		return nil, nil
	}
	bridges, err := switches.Status(ctx)
	for _, b := range bridges {
		s := datapath.SwitchStatus{Switch: b.Name, Controllers: []datapath.ControllerStatus{}}
		for _, c := range b.Controllers {
			s.Controllers = append(s.Controllers, datapath.ControllerStatus{Address: c.Target, Connected: c.Connected,
				Role: c.Role, Error: c.LastError})
		}
		out = append(out, s)
	}
	return out, err
}

// Flows counts the flow entries of a switch, or those for packets received on a port.
func (f *fabric) Flows(ctx context.Context, n *topology.Node, inPort uint32) (int, error) {
	text, err := f.switches.Load().Flows(ctx, topology.DeviceName(n.Name))
	if inPort == 0 {
		return strings.Count(text, "actions="), err
	}
	return strings.Count(text, fmt.Sprintf("in_port=%d,", inPort)) + strings.Count(text,
		fmt.Sprintf("in_port=%d ", inPort)), err
}

// Settle waits until no packet is forwarded by flow entries that a controller has removed: Open
// vSwitch revalidates cached flows some time after a change.
func (f *fabric) Settle(ctx context.Context) error {
	switches := f.switches.Load()
	if switches == nil {
		return nil
	}
	return switches.Settle(ctx)
}

func controllerAddresses(t *topology.Topology) []string {
	var out []string
	for _, n := range t.Nodes {
		if n.IsDatapath() {
			for _, c := range topology.ControllersOf(t, n) {
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// Wait waits until every switch with a controller is connected to one. If ctx ends first, or a
// controller refuses, the error names those that are not and why.
func (f *fabric) Wait(ctx context.Context) error {
	controllers := map[string][]string{} // of each bridge, as the topology calls them
	var bridges []string
	for _, n := range f.site.Topology().Nodes {
		if is(n) && !slices.Contains(n.Controllers, topology.ControllerTrivet) && len(f.site.Controllers(n)) > 0 {
			name := topology.DeviceName(n.Name)
			bridges, controllers[name] = append(bridges, name), topology.ForeignControllers(f.site.Topology(), n)
		}
	}
	if len(bridges) == 0 {
		return nil
	}
	start := time.Now()
	wait, stop := context.WithCancel(ctx)
	defer stop()
	if len(f.site.Programs()) == 0 { // programs of the lab may take their time
		go f.relays.watch(wait, patience.Refusing.Duration(), stop)
	}
	if f.switches.Load().WaitConnected(wait, bridges) == nil {
		return f.switches.Load().ForgetDecisions(ctx)
	}
	ask, done := datapath.Still(ctx)
	defer done()
	status, err := f.switches.Load().Status(ask)
	if err != nil {
		return err
	}
	missing := map[string][]string{} // switches without a controller, by the controllers they have
	for _, s := range status {
		if c := controllers[s.Name]; len(c) > 0 && !connected(s) {
			missing[strings.Join(c, " ")] = append(missing[strings.Join(c, " ")], s.Name)
		}
	}
	var lines []string
	for c, names := range missing {
		reason := "no answer"
		for address := range strings.FieldsSeq(c) {
			if err := f.relays.failure(address); err != nil {
				reason = err.Error()
			}
		}
		lines = append(lines, fmt.Sprintf("%s did not connect to %s within %.0f s: %s", listSwitches(names),
			listControllers(c), time.Since(start).Seconds(), reason))
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return errors.New(strings.Join(lines, "\n"))
}

func connected(s BridgeStatus) bool {
	return slices.ContainsFunc(s.Controllers, func(c ControllerStatus) bool { return c.Connected })
}

func listControllers(c string) string {
	if strings.Contains(c, " ") {
		return "any of the controllers " + strings.ReplaceAll(c, " ", ", ")
	}
	return "the controller " + c
}

// listSwitches lists switches, and abbreviates long lists.
func listSwitches(names []string) string {
	switch n := len(names); {
	case n == 1:
		return "switch " + names[0]
	case n > 6:
		return fmt.Sprintf("switches %s and %d more", strings.Join(names[:5], ", "), n-5)
	}
	return "switches " + strings.Join(names, ", ")
}
