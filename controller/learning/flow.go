package learning

import (
	"encoding/binary"
	"net/netip"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// matchFlow returns the match for a packet's flow: every field that distinguishes it from others,
// as far as the packet has it.
func matchFlow(p *controller.Packet) openflow.Match {
	fields := []openflow.OXM{openflow.InPort(p.InPort), openflow.EthSrc(p.Src), openflow.EthDst(p.Dst)}
	tag := binary.BigEndian.Uint16(p.Data[12:])
	switch {
	case tag == p.EtherType:
		fields = append(fields, openflow.VLANNone())
		fields = append(fields, payload(p.EtherType, p.Data[14:])...)
	case len(p.Data) >= 18:
		fields = append(fields, openflow.VLANVID(binary.BigEndian.Uint16(p.Data[14:])&0xfff))
		if binary.BigEndian.Uint16(p.Data[16:]) == p.EtherType { // otherwise switches differ on what the type is
			fields = append(fields, payload(p.EtherType, p.Data[18:])...)
		}
	}
	return openflow.NewMatch(fields...)
}

func payload(etherType uint16, b []byte) []openflow.OXM {
	if etherType < 0x600 {
		return nil // a length
	}
	fields := []openflow.OXM{openflow.EthType(etherType)}
	switch {
	case etherType == openflow.EthTypeARP && len(b) >= 28 && [6]byte(b[:6]) == [6]byte{0, 1, 8, 0, 6, 4}:
		return append(fields, openflow.ARPOp(binary.BigEndian.Uint16(b[6:])),
			openflow.ARPSPA(netip.AddrFrom4([4]byte(b[14:]))), openflow.ARPTPA(netip.AddrFrom4([4]byte(b[24:]))))
	case etherType == openflow.EthTypeIPv4 && len(b) >= 20:
		fields = append(fields, openflow.IPDSCP(b[1]>>2), openflow.IPProto(b[9]),
			openflow.IPv4Src(netip.AddrFrom4([4]byte(b[12:]))), openflow.IPv4Dst(netip.AddrFrom4([4]byte(b[16:]))))
		header := int(b[0]&0xf) * 4
		if fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0; fragment || header < 20 || len(b) < header {
			return fields
		}
		return append(fields, transport(b[9], b[header:])...)
	case etherType == openflow.EthTypeIPv6 && len(b) >= 40:
		fields = append(fields, openflow.IPv6Src(netip.AddrFrom16([16]byte(b[8:]))),
			openflow.IPv6Dst(netip.AddrFrom16([16]byte(b[24:]))))
		if more := transport(b[6], b[40:]); more != nil { // no further headers in between
			fields = append(append(fields, openflow.IPProto(b[6])), more...)
		}
	}
	return fields
}

func transport(protocol byte, b []byte) []openflow.OXM {
	if len(b) < 4 {
		return nil
	}
	x, y := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	switch protocol {
	case openflow.IPProtoTCP:
		return []openflow.OXM{openflow.TCPSrc(x), openflow.TCPDst(y)}
	case openflow.IPProtoUDP:
		return []openflow.OXM{openflow.UDPSrc(x), openflow.UDPDst(y)}
	case openflow.IPProtoSCTP:
		return []openflow.OXM{openflow.SCTPSrc(x), openflow.SCTPDst(y)}
	case openflow.IPProtoICMPv4:
		return []openflow.OXM{openflow.ICMPv4Type(b[0]), openflow.ICMPv4Code(b[1])}
	case openflow.IPProtoICMPv6:
		return []openflow.OXM{openflow.ICMPv6Type(b[0]), openflow.ICMPv6Code(b[1])}
	}
	return nil
}
