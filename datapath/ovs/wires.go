package ovs

import (
	"slices"

	"trivet.dev/trivet/topology"
)

// joins reports whether an unimpaired link between two bridges is a patch.
func joins(a, b *topology.Node, nodes map[string]*topology.Node) bool {
	return !tooDeep(a, b, nodes) && !foreignDecides(a) && !foreignDecides(b)
}

// foreignDecides reports whether a switch has a foreign controller. Patch ports have no link state:
// Open vSwitch can only remove them when their link is down, which a foreign controller may take as
// a port that was unplugged for good. Ports with devices change their state, as on any other
// switch.
func foreignDecides(n *topology.Node) bool {
	return slices.ContainsFunc(n.Controllers,
		func(c string) bool { return c != topology.ControllerTrivet && c != topology.ControllerNone })
}

// patchedBridges is the maximum number of bridges joined by patches. Open vSwitch follows a packet
// through patches and tables up to a depth of 64 (MAX_DEPTH in ofproto/ofproto-dpif-xlate.c) and
// then drops it; a bridge takes one level for each table.
const patchedBridges = 16

// tooDeep reports whether a link between two bridges must have devices, so that no path over
// patches gets too long. If there are many bridges, patches only join those whose datapath ids are
// in the same block of sixteen: mostly neighbours, and the same ones whatever else changes.
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
