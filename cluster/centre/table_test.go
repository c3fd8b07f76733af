package centre

import (
	"testing"
	"time"

	"trivet.dev/trivet/cluster/report"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func says(member string, incarnation int64, sequence uint64, nodes, addresses int) report.Report {
	return report.Report{Member: member, Incarnation: incarnation, Sequence: sequence, Load: report.Load{Nodes: nodes, Addresses: addresses}}
}

// Proves that what was placed is counted until the member's report has it, the first first, or for
// 30 s; that a report in which it is not yet, that comes late, or that is a copy changes nothing;
// and that a member that begins anew has nothing placed.
func TestPlaced(t *testing.T) {
	tb := newTable(10 * time.Second)
	pending := func(after time.Duration, nodes, addresses int) {
		t.Helper()
		if n, a := tb.placedAt("c1", start.Add(after)); n != nodes || a != addresses {
			t.Errorf("after %v there are %d nodes, %d addresses to come; want %d, %d", after, n, a, nodes, addresses)
		}
	}
	tb.take(says("c1", 1, 5, 10, 20), start)
	tb.place("c1", 1, 2, start)
	tb.place("c1", 3, 6, start.Add(20*time.Second))
	pending(0, 4, 8)
	tb.take(says("c1", 1, 6, 10, 20), start.Add(time.Second))
	pending(time.Second, 4, 8)
	tb.take(says("c1", 1, 7, 12, 24), start.Add(2*time.Second)) // the first, and one node of the second
	pending(2*time.Second, 2, 4)
	tb.take(says("c1", 1, 3, 50, 50), start.Add(3*time.Second))
	tb.take(says("c1", 1, 7, 50, 50), start.Add(3*time.Second))
	pending(3*time.Second, 2, 4)
	pending(50*time.Second, 2, 4)
	pending(51*time.Second, 0, 0)
	tb.place("c1", 1, 1, start.Add(60*time.Second))
	tb.take(says("c1", 2, 1, 0, 0), start.Add(61*time.Second))
	pending(61*time.Second, 0, 0)
	tb.take(says("c1", 1, 99, 5, 5), start.Add(62*time.Second)) // of its life before
	if all, _ := tb.standings(Default, nil, nil, start.Add(62*time.Second)); all[0].Nodes != 0 {
		t.Errorf("%+v", all)
	}
}

// Proves who is a candidate: a live member with a fresh report. One that is live and says nothing, one
// that reports and is not live, and one whose report is stale are none; but where nobody has reported
// lately, all live ones are, by the switches that the store says they have.
func TestCandidates(t *testing.T) {
	tb := newTable(10 * time.Second)
	tb.take(says("stale", 1, 1, 0, 0), start)
	now := start.Add(11 * time.Second)
	tb.take(says("fresh", 1, 1, 30, 3), now)
	tb.take(says("other", 1, 1, 10, 1), now)
	tb.take(says("gone", 1, 1, 0, 0), now)
	live := []string{"fresh", "other", "silent", "stale"}
	masters := map[string]int{"fresh": 3, "other": 2, "silent": 1, "stale": 7}
	of := func(at time.Time) (map[string]Standing, bool) {
		all, reports := tb.standings(Default, live, masters, at)
		out := map[string]Standing{}
		for _, s := range all {
			out[s.Name] = s
		}
		return out, reports
	}
	got, reports := of(now)
	for name, want := range map[string]bool{"fresh": true, "other": true, "silent": false, "stale": false, "gone": false} {
		if got[name].Candidate != want || !want && got[name].Busyness != 0 {
			t.Errorf("%s: %+v", name, got[name])
		}
	}
	if !reports || !near(got["fresh"].RM, 0.75) || !near(got["other"].AM, 0.25) || got["stale"].Age != 11*time.Second || got["silent"].Reported || got["silent"].Switches != 1 {
		t.Errorf("%+v", got)
	}
	tb.place("silent", 2, 0, now.Add(time.Hour))
	got, reports = of(now.Add(time.Hour))
	if reports || got["gone"].Candidate || !got["stale"].Candidate || !near(got["silent"].RM, 3./15) || !near(got["stale"].RM, 7./15) {
		t.Errorf("without reports: %v %+v", reports, got)
	}
	if all, _ := tb.standings(Default, nil, nil, now.Add(time.Hour)); len(all) != 5 || all[0].Switches != -1 {
		t.Errorf("nobody lives: %+v", all)
	}
}

// Proves that a member that has not been heard of for long is forgotten, so that names do not pile up.
func TestForgotten(t *testing.T) {
	tb := newTable(10 * time.Second)
	tb.take(says("old", 1, 1, 0, 0), start)
	tb.take(says("new", 1, 1, 0, 0), start.Add(forgotten+time.Second))
	if all, _ := tb.standings(Default, nil, nil, start.Add(forgotten+time.Second)); len(all) != 1 || all[0].Name != "new" {
		t.Errorf("%+v", all)
	}
}

// Proves what switches are taken to cost: the heaviest what the report says, the others evenly what is
// left, and nothing is made of a report that is stale, or of a switch that is another's by now.
func TestSwitchCosts(t *testing.T) {
	tb := newTable(10 * time.Second)
	r := says("c1", 1, 1, 3, 100)
	r.Southbound = 1000
	r.Heaviest = []report.Switch{{DPID: 1, Addresses: 60, Southbound: 800}, {DPID: 1, Addresses: 60, Southbound: 800}, {DPID: 9, Addresses: 10, Southbound: 10}}
	tb.take(r, start)
	masters := map[uint64]string{1: "c1", 2: "c1", 3: "c1", 9: "c2"}
	of := func(at time.Time) map[uint64]Switch {
		out := map[uint64]Switch{}
		for _, s := range tb.switches(masters, func(dpid uint64) bool { return dpid == 3 }, at) {
			out[s.DPID] = s
		}
		return out
	}
	got := of(start)
	for dpid, want := range map[uint64]Switch{1: {1, "c1", false, 1, 60, 800}, 2: {2, "c1", false, 1, 20, 100}, 3: {3, "c1", true, 1, 20, 100}, 9: {9, "c2", false, 1, 0, 0}} {
		if got[dpid] != want {
			t.Errorf("%+v, want %+v", got[dpid], want)
		}
	}
	if got := of(start.Add(time.Minute)); got[1] != (Switch{1, "c1", false, 1, 0, 0}) {
		t.Errorf("of a stale report: %+v", got[1])
	}
}
