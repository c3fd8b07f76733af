package api

import (
	"fmt"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// vid returns the VLAN of a packet's tag, if it has one.
func vid(p packet) (vlan int, tagged bool) {
	v, ok := p.fields.Get(openflow.FieldVLANVID)
	return int(v.Value.Lo &^ openflow.VLANPresent), ok && v.Value.Lo&openflow.VLANPresent != 0
}

// vlanOf describes the VLAN of a packet, for messages.
func vlanOf(p packet) string {
	if vlan, tagged := vid(p); tagged {
		return fmt.Sprintf("of VLAN %d", vlan)
	}
	return "without a tag"
}

// classify adds the VLAN tag to a packet that enters by a port, and reports whether the port
// accepts it, as datapath/embedded/pipeline does.
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

// declassify removes a VLAN tag that the packet must not have when it leaves by a port, and reports
// whether the port lets it out.
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
