package drive

import (
	"slices"

	"trivet.dev/trivet/bench/experiment"
)

// toolsOf are the programs of others that a probe, or a level of lab's options, makes use of.
var toolsOf = map[string][]string{
	"iperf3": {"iperf3"}, "traceroute": {"traceroute"}, "ditg": {"ITGSend"},
	"ovs": {"ovs-vswitchd"}, "ovs-testcontroller": {"ovs-testcontroller"}, "frr": {"/usr/lib/frr/zebra"}, "bird": {"bird"}, onMininet: {"mn"},
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
