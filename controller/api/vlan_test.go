package api

import (
	"fmt"
	"testing"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// TestTracedVLANs proves of packets between access ports, trunks and trunks with a native VLAN that
// the trace has them come in and go out with the tags that they have, or not at all; where nothing
// is said of VLANs, all pass as they are.
func TestTracedVLANs(t *testing.T) {
	access, other, trunk, native := topology.PortVLANs{Untagged: 10}, topology.PortVLANs{Untagged: 20}, topology.PortVLANs{Trunk: "10"}, topology.PortVLANs{Untagged: 20, Trunk: "10"}
	for _, c := range []struct {
		in, out topology.PortVLANs
		tag     int // -1: none
		want    string
	}{
		{access, access, -1, "none"}, {access, other, -1, "kept in"}, {access, trunk, -1, "10"}, {access, native, -1, "10"}, {access, access, 10, "kept out"},
		{access, trunk, 0, "10"}, {trunk, access, 10, "none"}, {trunk, access, -1, "kept out"}, {trunk, trunk, 30, "kept out"}, {native, other, -1, "none"},
		{native, trunk, -1, "kept in"}, {topology.PortVLANs{}, topology.PortVLANs{}, 77, "77"}, {topology.PortVLANs{}, topology.PortVLANs{}, -1, "none"},
	} {
		p := packet{fields: openflow.NewMatch(openflow.InPort(1), openflow.VLANNone())}
		if c.tag >= 0 {
			p.fields = p.fields.With(openflow.VLANVID(uint16(c.tag)))
		}
		got := "kept out"
		if classify(&p, c.in) {
			got = "kept in"
			if declassify(&p, c.out) {
				if got = "none"; vlanOf(p) != "without a tag" {
					vlan, _ := vid(p)
					got = fmt.Sprint(vlan)
				}
			}
		}
		if got != c.want {
			t.Errorf("tag %d from %+v to %+v: %s, want %s", c.tag, c.in, c.out, got, c.want)
		}
	}
}
