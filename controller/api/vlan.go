package api

import (
	"fmt"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// vid is the VLAN of a packet's tag, and whether it has one.
func vid(p packet) (vlan int, tagged bool) {
	v, ok := p.fields.Get(openflow.FieldVLANVID)
	return int(v.Value.Lo &^ openflow.VLANPresent), ok && v.Value.Lo&openflow.VLANPresent != 0
}

// vlanOf says which frames such a packet is one of.
func vlanOf(p packet) string {
	if vlan, tagged := vid(p); tagged {
		return fmt.Sprintf("of VLAN %d", vlan)
	}
	return "without a tag"
}

// classify gives a packet the tag of its VLAN as it comes in by a port, and says whether it comes
// in: what datapath/embedded/pipeline does with it.
func classify(p *packet, v topology.PortVLANs) bool {
	vlan, tagged := vid(*p)
	if v == (topology.PortVLANs{}) {
		return true
	}
	if tagged && vlan != 0 {
		set := v.Trunk.Set()
		return set.Has(vlan)
	}
	if v.Untagged != 0 {
		p.fields = p.fields.With(openflow.VLANVID(uint16(v.Untagged)))
	}
	return v.Untagged != 0
}

// declassify takes the tag of a packet away that it does not have outside of a port, and says
// whether it goes out there.
func declassify(p *packet, v topology.PortVLANs) bool {
	vlan, tagged := vid(*p)
	switch {
	case v == topology.PortVLANs{}:
		return true
	case !tagged:
		return v.Untagged != 0
	case vlan == v.Untagged:
		p.fields = p.fields.With(openflow.VLANNone()).Without(openflow.FieldVLANPCP)
		return true
	}
	set := v.Trunk.Set()
	return set.Has(vlan)
}
