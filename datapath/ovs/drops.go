package ovs

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"trivet.dev/trivet/datapath"
)

// Drops returns the packets that Open vSwitch's datapath has dropped although no flow entry told it
// to, and those whose processing it gave up. Passed is 0 if it is not known.
func (s *Switches) Drops(ctx context.Context) ([]datapath.Drop, error) {
	return DropsOf(ctx, s.vswitch.control())
}

// DropsOf is Drops for any ovs-vswitchd, by the socket for ovs-appctl.
func DropsOf(ctx context.Context, socket string) ([]datapath.Drop, error) {
	show, err := call(ctx, socket, "dpctl/show")
	if err != nil {
		return nil, fmt.Errorf("ovs-vswitchd: %w", err)
	}
	coverage, err := call(ctx, socket, "coverage/show")
	if err != nil {
		return nil, fmt.Errorf("ovs-vswitchd: %w", err)
	}
	return append(parseLookups(show), parseCoverage(coverage)...), nil
}

var lookups = regexp.MustCompile(`(?m)^(\w+)@.*\n\s*lookups: hit:(\d+) missed:(\d+) lost:(\d+)`)

// parseLookups reads dpctl/show (ovs-dpctl(8)). In the kernel's datapath, "lost" are packets that
// missed and for which ovs-vswitchd had no room. The user-space datapath does not drop what it
// calls "lost": it counts there packets that it forwarded without caching a flow, as there were too
// many flows, in addition to those counted by datapath_drop_upcall_error.
func parseLookups(text string) []datapath.Drop {
	out := datapath.Drop{Where: "Open vSwitch: packets to ovs-vswitchd"}
	for _, m := range lookups.FindAllStringSubmatch(text, -1) {
		hit, _ := strconv.ParseUint(m[2], 10, 64)
		missed, _ := strconv.ParseUint(m[3], 10, 64)
		lost, _ := strconv.ParseUint(m[4], 10, 64)
		if DatapathType(m[1]) != System {
			out.Passed += hit + missed
			continue
		}
		out.Dropped, out.Passed = out.Dropped+lost, out.Passed+hit+missed-min(lost, missed)
	}
	return []datapath.Drop{out}
}

// Counters of ovs-vswitchd (coverage/show) of packets dropped for want of some resource, and not
// because of an entry, a meter or a blocked port. datapath_drop_userspace_action_error is left out:
// it counts packets that reach their controller all the same.
var coverageLost = []string{"datapath_drop_upcall_error", "datapath_drop_lock_error", "datapath_drop_tunnel_push_error",
	"datapath_drop_recirc_error",
	"datapath_drop_invalid_port", "datapath_drop_rx_invalid_packet", "drop_action_congestion",
	"drop_action_recursion_too_deep", "drop_action_too_many_resubmit", "drop_action_stack_too_deep",
	"drop_action_no_recirculation_context", "drop_action_recirculation_conflict"}

var coverageLine = regexp.MustCompile(`(?m)^(\w+)\s.*total: (\d+)`)

// parseCoverage reads coverage/show; counters that have never counted are not in it.
func parseCoverage(text string) (out []datapath.Drop) {
	counts := map[string]uint64{}
	for _, m := range coverageLine.FindAllStringSubmatch(text, -1) {
		counts[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
	}
	for _, name := range coverageLost {
		out = append(out, datapath.Drop{Where: "Open vSwitch: " + name, Dropped: counts[name]})
	}
	return out
}
