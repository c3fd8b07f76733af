package drive

import (
	"context"
	"slices"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// toolOf is the program of others that a level of lab's options makes use of.
var toolOf = map[string]string{"ovs": "ovs-vswitchd", "frr": "/usr/lib/frr/zebra", "bird": "bird", onMininet: "mn"}

// Tools are the programs whose versions belong to the results of a plan.
func Tools(p *experiment.Plan) (out []string) {
	for i := range p.Cells {
		l := p.Cells[i].Lab.Options
		for _, level := range []string{l["datapath"], l["controller"], l["target"]} {
			if tool := toolOf[level]; tool != "" {
				out = append(out, tool)
			}
		}
		for _, probe := range slices.Concat(p.Cells[i].Groups...) {
			out = append(out, kinds[probe.Kind].tools...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Asks are what is to be asked for the record of a plan besides versions of programs: those of the
// controllers of others, and where Open vSwitch forwards.
func Asks(p *experiment.Plan) map[string]environment.Ask {
	out := map[string]environment.Ask{}
	for i := range p.Cells {
		if l := &p.Cells[i].Lab; out[environment.OVSForwards] == nil && hasOVS(l, p.Experiment.Dir()) {
			out[environment.OVSForwards] = ovsForwards
		}
		if c := foreign.Lookup(p.Cells[i].Lab.Options["controller"]); c != nil {
			out[c.Name] = func(ctx context.Context) (string, error) {
				return c.Version(ctx, foreign.PlacesOf(lab.Owner()))
			}
		}
	}
	return out
}

func hasOVS(l *experiment.Lab, dir string) bool {
	t, problems := l.Resolve(dir, defaultsOf(l))
	return problems.Err() == nil &&
		slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.Datapath == topology.OVS })
}

// ovsForwards says where Open vSwitch forwards on this machine: Trivet's own instances, and
// Mininet's.
func ovsForwards(context.Context) (string, error) {
	info, err := ovs.Probe()
	if err != nil {
		return "", err
	}
	if info.Kernel != nil {
		return environment.InUserSpace + ": this kernel has no module for it", nil
	}
	return "in the kernel", nil
}
