package builtin

import (
	"cmp"
	"slices"

	"trivet.dev/trivet/cluster/report"
)

// Load returns the controller's load from the switches of its apps. Each counts as a routing node,
// whether it routes or not, as in the paper. Messages within this process are not southbound
// traffic.
func (c *Controller) Load() report.Load {
	var l report.Load
	var all []report.Switch
	for _, sw := range c.Switches() {
		s := report.Switch{DPID: sw.DPID()}
		if c.Routing != nil {
			s.Addresses = c.Routing.Answers(s.DPID)
		}
		if traffic, ok := sw.Southbound(); ok {
			s.Southbound = traffic.Recent
		}
		l.Nodes++
		l.Addresses += s.Addresses
		l.Southbound += s.Southbound
		all = append(all, s)
	}
	l.Heaviest = heaviest(all, l)
	return l
}

// heaviest returns the switches with more than twice the average of addresses or traffic; if there
// are too many, those furthest above it.
func heaviest(all []report.Switch, l report.Load) []report.Switch {
	times := func(s report.Switch) float64 {
		of := func(part, whole float64) float64 { return part * float64(l.Nodes) / max(1, whole) }
		return max(of(float64(s.Addresses), float64(l.Addresses)), of(float64(s.Southbound), float64(l.Southbound)))
	}
	all = slices.DeleteFunc(all, func(s report.Switch) bool { return times(s) <= 2 })
	slices.SortStableFunc(all, func(a, b report.Switch) int { return cmp.Compare(times(b), times(a)) })
	return all[:min(len(all), report.MostSwitches)]
}
