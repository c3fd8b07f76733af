package builtin

import (
	"cmp"
	"slices"

	"trivet.dev/trivet/cluster/report"
)

// Load is what the controller has to do for the switches that its apps see: each is a routing node,
// whether it routes or not, as all are in the paper. What is sent within this process is no
// southbound traffic.
func (c *Controller) Load() report.Load {
	var l report.Load
	var all []report.Switch
	for _, sw := range c.Switches() {
		s := report.Switch{DPID: sw.DPID()}
		if c.Routing != nil {
			s.Addresses = c.Routing.Answers(s.DPID)
		}
		if traffic, is := sw.Southbound(); is {
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

// heaviest are the switches that have more than twice what they would have if all had the same, of
// addresses or of traffic; of too many those that have the most times as much.
func heaviest(all []report.Switch, l report.Load) []report.Switch {
	times := func(s report.Switch) float64 {
		of := func(part, whole float64) float64 { return part * float64(l.Nodes) / max(1, whole) }
		return max(of(float64(s.Addresses), float64(l.Addresses)), of(float64(s.Southbound), float64(l.Southbound)))
	}
	all = slices.DeleteFunc(all, func(s report.Switch) bool { return times(s) <= 2 })
	slices.SortStableFunc(all, func(a, b report.Switch) int { return cmp.Compare(times(b), times(a)) })
	return all[:min(len(all), report.MostSwitches)]
}
