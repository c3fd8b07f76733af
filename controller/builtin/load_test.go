package builtin

import (
	"testing"

	"trivet.dev/trivet/cluster/report"
)

// Proves which switches a load report names: those with more than twice their share, of addresses or
// of traffic, the heaviest first, and no more than a report has room for.
func TestHeaviest(t *testing.T) {
	var all []report.Switch
	l := report.Load{}
	add := func(dpid uint64, addresses int, southbound uint64) {
		all = append(all, report.Switch{DPID: dpid, Addresses: addresses, Southbound: southbound})
		l.Nodes, l.Addresses, l.Southbound = l.Nodes+1, l.Addresses+addresses, l.Southbound+southbound
	}
	if got := heaviest(nil, l); len(got) > 0 {
		t.Error("of nothing:", got)
	}
	for i := range uint64(96) {
		add(i, 1, 10)
	}
	add(96, 4, 10)  // 4 of 105, of 100 switches: 3.8 times
	add(97, 1, 500) // 500 of 1980: 25 times
	add(98, 3, 500)
	add(99, 1, 15) // less than twice
	got := heaviest(append([]report.Switch(nil), all...), l)
	if len(got) != 3 || got[0].DPID != 97 || got[1].DPID != 98 || got[2].DPID != 96 {
		t.Errorf("%+v", got)
	}
	for i := range uint64(1000) {
		add(1000+i, 1000, 0)
		add(2000+9*i, 0, 0)
		add(2001+9*i, 0, 0)
		add(2002+9*i, 0, 0)
	}
	if got := heaviest(all, l); len(got) != report.MostSwitches {
		t.Errorf("%d are named", len(got))
	}
}
