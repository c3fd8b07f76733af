package ovs

import (
	"slices"
	"testing"

	"trivet.dev/trivet/datapath"
)

// TestDropsText proves that Open vSwitch's counters are read as ovs-appctl 3.1 prints them, summed
// over several datapaths; that packets dropped by an entry are left out, and so is what the
// user-space datapath calls lost but has forwarded.
func TestDropsText(t *testing.T) {
	got := parseLookups("netdev@ovs-netdev:\n  lookups: hit:90 missed:7 lost:2\n  flows: 3\n  port 0: ovs-netdev (tap)\nsystem@ovs-system:\n  lookups: hit:10 missed:5 lost:3\n")
	if want := []datapath.Drop{{Where: "Open vSwitch: packets to ovs-vswitchd", Dropped: 3, Passed: 109}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	got = parseCoverage("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=1:\ndatapath_drop_lock_error   0.0/sec     0.000/sec        0.0000/sec   total: 12\n" +
		"drop_action_of_pipeline  1.0/sec     0.000/sec        0.0000/sec   total: 99\n100 events never hit\n")
	for _, l := range got {
		if want := map[string]uint64{"Open vSwitch: datapath_drop_lock_error": 12}[l.Where]; l.Dropped != want || l.Passed != 0 {
			t.Errorf("%+v", l)
		}
	}
	if len(got) != len(coverageLost) {
		t.Errorf("%d counters: %v", len(got), got)
	}
}
