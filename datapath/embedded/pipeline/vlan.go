package pipeline

import "trivet.dev/trivet/openflow"

// VLANs are the VLANs of a port, as of a bridge's port (IEEE 802.1Q, clauses 6.9 and 8.6): frames
// of Untagged have no tag outside the port, those of Tagged have one, and all others are discarded.
// Within the switch, in its tables and for its controllers, each frame has the tag of its VLAN.
//
// Frames to the addresses that bridges never forward (table 8-1: LLDP, LACP, spanning trees) have
// no VLAN: they pass unchanged.
type VLANs struct {
	Untagged uint16     // 0: frames without a tag are discarded in both directions
	Tagged   [64]uint64 // a bit for each VLAN
}

func (v *VLANs) tagged(vlan uint16) bool { return v.Tagged[vlan/64]>>(vlan%64)&1 == 1 }

// reserved are the addresses 01-80-C2-00-00-00 to -0F.
const (
	reserved     = uint64(0x0180c2000000) << 16
	reservedMask = uint64(0xfffffffffff0) << 16
	tagged8021Q  = 0x8100
)

// SetVLANs sets the VLANs of a port; nil makes it pass all frames unchanged.
func (s *Switch) SetVLANs(number uint32, v *VLANs) {
	_ = s.net.change(func() error {
		p := s.ports[number]
		if p == nil || p.vlans == v || p.vlans != nil && v != nil && *p.vlans == *v {
			return nil
		}
		p.vlans = v
		s.learned.forgetPort(number)
		s.touch(ReadPlaces)
		s.touch(ReadPorts)
		return nil
	})
}

// untouched says whether a frame belongs to no VLAN, as frames between neighbouring bridges do.
func (t *translator) untouched() bool {
	t.look(wordDst, reservedMask)
	return t.st.key[wordDst]&reservedMask == reserved
}

// classify gives an arriving frame the tag of its VLAN, and says whether it may enter.
func (t *translator) classify(v *VLANs) bool {
	if t.untouched() {
		return true
	}
	t.look(wordSrc, tagVID)
	tag := t.st.key.tag()
	if vlan := tag & tagVID &^ tagPresent; vlan != 0 {
		return v.tagged(vlan)
	}
	switch {
	case v.Untagged == 0:
		return false
	case tag&tagPresent == 0:
		t.pushVLAN(tagged8021Q)
	}
	t.setTagField(openflow.FieldVLANVID, openflow.Value{Lo: uint64(v.Untagged) | tagPresent})
	return !t.stopped()
}

// declassify says whether a frame may leave, and removes a tag that it must not have outside. A
// frame without a tag can only be one that a controller has made: it belongs to the port's untagged
// VLAN.
func (t *translator) declassify(v *VLANs) bool {
	if t.untouched() {
		return true
	}
	t.look(wordSrc, tagVID)
	tag := t.st.key.tag()
	switch vlan := tag & tagVID &^ tagPresent; {
	case tag&tagPresent == 0:
		return v.Untagged != 0
	case vlan == v.Untagged && vlan != 0:
		t.popVLAN()
		return !t.stopped()
	default:
		return v.tagged(vlan)
	}
}
