package ovs

import (
	"slices"

	"trivet.dev/trivet/topology"
)

// joins says whether a link between two bridges that nothing impairs is a patch.
func joins(a, b *topology.Node, nodes map[string]*topology.Node) bool {
	return !tooDeep(a, b, nodes) && !foreignDecides(a) && !foreignDecides(b)
}

// foreignDecides says whether a switch has a controller of others. Patch ports have no state: Open
// vSwitch can only take them away when their link is down, which others than Trivet's controller
// may take for a port that was unplugged for good. Those of devices change their state, as on any
// other switch.
func foreignDecides(n *topology.Node) bool {
	return slices.ContainsFunc(n.Controllers, func(c string) bool { return c != topology.ControllerTrivet && c != topology.ControllerNone })
}

// patchedBridges is how many bridges patches join at most. Open vSwitch follows a packet through
// patches and tables up to a depth of 64 (MAX_DEPTH in ofproto/ofproto-dpif-xlate.c) and drops it
// there; a bridge takes one for each table.
const patchedBridges = 16

// tooDeep says whether a link between two bridges is to be a device, so that no way over patches
// gets too long. Where there are many bridges, those whose datapath ids are in the same sixteen are
// joined: neighbours mostly, and the same ones whatever else changes.
func tooDeep(a, b *topology.Node, nodes map[string]*topology.Node) bool {
	if a.DPID/patchedBridges == b.DPID/patchedBridges {
		return false
	}
	bridges := 0
	for _, n := range nodes {
		if is(n) {
			bridges++
		}
	}
	return bridges > patchedBridges
}
