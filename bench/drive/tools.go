package drive

import (
	"context"
	"slices"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/lab"
)

// toolsOf are the programs of others that a probe, or a level of lab's options, makes use of.
var toolsOf = map[string][]string{
	"iperf3": {"iperf3"}, "traceroute": {"traceroute"}, "ditg": {"ITGSend"},
	"ovs": {"ovs-vswitchd"}, "frr": {"/usr/lib/frr/zebra"}, "bird": {"bird"}, onMininet: {"mn"},
}

// Tools are the programs whose versions belong to the results of a plan.
func Tools(p *experiment.Plan) (out []string) {
	for i := range p.Cells {
		l := p.Cells[i].Lab.Options
		words := []string{l["datapath"], l["controller"], l["target"]}
		for _, probe := range slices.Concat(p.Cells[i].Groups...) {
			words = append(words, probe.Kind)
		}
		for _, w := range words {
			out = append(out, toolsOf[w]...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Controllers are the controllers of others in a plan, and who knows their versions.
func Controllers(p *experiment.Plan) map[string]environment.Ask {
	out := map[string]environment.Ask{}
	for i := range p.Cells {
		if c := foreign.Lookup(p.Cells[i].Lab.Options["controller"]); c != nil {
			out[c.Name] = func(ctx context.Context) (string, error) { return c.Version(ctx, foreign.PlacesOf(lab.Owner())) }
		}
	}
	return out
}
