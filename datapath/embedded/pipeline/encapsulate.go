package pipeline

import (
	"encoding/binary"
	"slices"

	"trivet.dev/trivet/openflow"
)

// Actions on MPLS labels and PBB tags work on the bytes of a frame, as the headers below are known
// only once they are uncovered. Each returns the frame, which may have been moved, or leaves it
// unchanged if the action does not apply to it.

// pushMPLS adds a label after the VLAN tags, with the values of the one under it, or the TTL of IP
// (section 5.12.1).
func pushMPLS(frame []byte, k *Key, l *layout, ethType uint16) []byte {
	if k.EthType() < 0x600 {
		return frame
	}
	shim := uint32(1) << 8 // bottom of stack
	switch {
	case l.mpls != 0:
		shim = uint32(k[wordTags]) &^ (1 << 8)
	case k.shape()&shapeNoL3 == 0:
		shim |= uint32(k.TTL())
	}
	frame = slices.Insert(frame, l.l3, byte(shim>>24), byte(shim>>16), byte(shim>>8), byte(shim))
	binary.BigEndian.PutUint16(frame[l.typeAt:], ethType)
	return frame
}

// popMPLS removes the outermost label; ethType becomes the type of what it uncovers.
func popMPLS(frame []byte, l *layout, ethType uint16) []byte {
	if l.mpls == 0 {
		return frame
	}
	binary.BigEndian.PutUint16(frame[l.typeAt:], ethType)
	return slices.Delete(frame, l.mpls, l.mpls+4)
}

// pushPBB puts a header with the same addresses and a service tag before the frame; the values are
// those of the service tag under it, or the priority of a VLAN tag (section 5.12.1).
func pushPBB(frame []byte, k *Key, l *layout, ethType uint16) []byte {
	var header [18]byte
	copy(header[:12], frame)
	binary.BigEndian.PutUint16(header[12:], ethType)
	switch {
	case l.pbb != 0:
		copy(header[14:], frame[l.pbb:l.pbb+4])
	case l.tags > 0:
		header[14] = byte(k.tag()>>13) << 5
	}
	return slices.Insert(frame, 0, header[:]...)
}

// popPBB removes the service tag and the outer addresses; VLAN tags before it stay (section 7.2.5).
func popPBB(frame []byte, l *layout) []byte {
	if l.pbb == 0 {
		return frame
	}
	copy(frame, frame[l.pbb+4:l.pbb+16])
	return slices.Delete(frame, l.typeAt, l.pbb+16)
}

// ttlBelow returns the offset of the TTL in the header below the outermost label; 0 if there is
// none. What follows the last label shows in its first bits.
func ttlBelow(frame []byte, l *layout) int {
	at := l.mpls + 4
	switch {
	case l.mpls == 0 || len(frame) <= at:
		return 0
	case frame[l.mpls+2]&1 == 0 && len(frame) >= at+4:
		return at + 3
	case frame[l.mpls+2]&1 == 0:
		return 0
	case frame[at]>>4 == 4 && len(frame) >= at+20:
		return at + 8
	case frame[at]>>4 == 6 && len(frame) >= at+40:
		return at + 7
	}
	return 0
}

// copyTTLOut copies the TTL from the next-to-outermost header to the outermost one.
func copyTTLOut(frame []byte, l *layout) {
	if below := ttlBelow(frame, l); below != 0 {
		frame[l.mpls+3] = frame[below]
	}
}

// copyTTLIn copies it the other way.
func copyTTLIn(frame []byte, l *layout) {
	below := ttlBelow(frame, l)
	if below == 0 {
		return
	}
	at := l.mpls + 4
	if bottom := frame[l.mpls+2]&1 == 1; bottom && frame[at]>>4 == 4 {
		p := patch{frame: frame, l: &layout{l3: at}}
		p.write(below, []byte{frame[l.mpls+3]}, ipSum)
		return
	}
	frame[below] = frame[l.mpls+3]
}

// onBytes executes an action that adds or removes headers. The frame is changed in place where it
// has room.
func onBytes(a *openflow.Action, frame []byte, k *Key, l *layout) []byte {
	switch a.Type {
	case openflow.ActionPushMPLS:
		return pushMPLS(frame, k, l, a.EtherType)
	case openflow.ActionPopMPLS:
		return popMPLS(frame, l, a.EtherType)
	case openflow.ActionPushPBB:
		return pushPBB(frame, k, l, a.EtherType)
	case openflow.ActionPopPBB:
		return popPBB(frame, l)
	case openflow.ActionCopyTTLOut:
		copyTTLOut(frame, l)
	case openflow.ActionCopyTTLIn:
		copyTTLIn(frame, l)
	case openflow.ActionSetField:
		r := Rewrite{Sets: []Set{{a.Field.Field, a.Field.Value}}}
		r.fields(frame, 0, false)
	}
	return frame
}
