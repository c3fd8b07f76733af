package openflow

import "net/netip"

// Values of the field VLAN_VID: ofp_vlan_id (section 7.2.3.7).
const (
	VLANPresent = 0x1000 // set in the field when the packet has a VLAN tag
)

func basic(f Field, v uint64) OXM {
	return OXM{Class: ClassBasic, Field: f, Value: Value{Lo: v}.And(f.exact())}
}

// addrField is for addresses: of an IPv6 address in an IPv4 field, the last 32 bits are taken.
func addrField(f Field, a netip.Addr) OXM {
	return OXM{Class: ClassBasic, Field: f, Value: valueOfAddr(a.Unmap()).And(f.exact())}
}

// VLANNone is the field VLAN_VID of packets without a VLAN tag.
func VLANNone() OXM { return basic(FieldVLANVID, 0) }

// VLANAny is the field VLAN_VID of packets that have a VLAN tag.
func VLANAny() OXM { return basic(FieldVLANVID, VLANPresent).WithMask64(VLANPresent) }

// InPort is the field ingress port.
func InPort(port uint32) OXM { return basic(FieldInPort, uint64(port)) }

// InPhyPort is the field physical port under the logical one of InPort.
func InPhyPort(port uint32) OXM { return basic(FieldInPhyPort, uint64(port)) }

// Metadata is the field metadata between tables.
func Metadata(v uint64) OXM { return basic(FieldMetadata, v) }

// EthDst is the field Ethernet destination.
func EthDst(a MAC) OXM { return basic(FieldEthDst, a.value().Lo) }

// EthSrc is the field Ethernet source.
func EthSrc(a MAC) OXM { return basic(FieldEthSrc, a.value().Lo) }

// EthType is the field Ethernet type, after VLAN tags.
func EthType(v uint16) OXM { return basic(FieldEthType, uint64(v)) }

// VLANVID is the field VLAN of the outermost tag, 0 to 4095; the bit VLANPresent is set. See
// VLANNone, VLANAny.
func VLANVID(vid uint16) OXM { return basic(FieldVLANVID, VLANPresent|uint64(vid)) }

// VLANPCP is the field priority in the outermost VLAN tag, 0 to 7.
func VLANPCP(v uint8) OXM { return basic(FieldVLANPCP, uint64(v)) }

// IPDSCP is the field differentiated services code point, 0 to 63.
func IPDSCP(v uint8) OXM { return basic(FieldIPDSCP, uint64(v)) }

// IPECN is the field congestion notification bits, 0 to 3.
func IPECN(v uint8) OXM { return basic(FieldIPECN, uint64(v)) }

// IPProto is the field IP protocol.
func IPProto(v uint8) OXM { return basic(FieldIPProto, uint64(v)) }

// IPv4Src is the field IPv4 source.
func IPv4Src(a netip.Addr) OXM { return addrField(FieldIPv4Src, a) }

// IPv4Dst is the field IPv4 destination.
func IPv4Dst(a netip.Addr) OXM { return addrField(FieldIPv4Dst, a) }

// TCPSrc is the field TCP source port.
func TCPSrc(port uint16) OXM { return basic(FieldTCPSrc, uint64(port)) }

// TCPDst is the field TCP destination port.
func TCPDst(port uint16) OXM { return basic(FieldTCPDst, uint64(port)) }

// UDPSrc is the field UDP source port.
func UDPSrc(port uint16) OXM { return basic(FieldUDPSrc, uint64(port)) }

// UDPDst is the field UDP destination port.
func UDPDst(port uint16) OXM { return basic(FieldUDPDst, uint64(port)) }

// SCTPSrc is the field SCTP source port.
func SCTPSrc(port uint16) OXM { return basic(FieldSCTPSrc, uint64(port)) }

// SCTPDst is the field SCTP destination port.
func SCTPDst(port uint16) OXM { return basic(FieldSCTPDst, uint64(port)) }

// ICMPv4Type is the field ICMP type.
func ICMPv4Type(v uint8) OXM { return basic(FieldICMPv4Type, uint64(v)) }

// ICMPv4Code is the field ICMP code.
func ICMPv4Code(v uint8) OXM { return basic(FieldICMPv4Code, uint64(v)) }

// ARPOp is the field ARP opcode.
func ARPOp(v uint16) OXM { return basic(FieldARPOp, uint64(v)) }

// ARPSPA is the field IPv4 address of the sender in ARP.
func ARPSPA(a netip.Addr) OXM { return addrField(FieldARPSPA, a) }

// ARPTPA is the field IPv4 address asked for in ARP.
func ARPTPA(a netip.Addr) OXM { return addrField(FieldARPTPA, a) }

// ARPSHA is the field hardware address of the sender in ARP.
func ARPSHA(a MAC) OXM { return basic(FieldARPSHA, a.value().Lo) }

// ARPTHA is the field hardware address of the target in ARP.
func ARPTHA(a MAC) OXM { return basic(FieldARPTHA, a.value().Lo) }

// IPv6Src is the field IPv6 source.
func IPv6Src(a netip.Addr) OXM { return addrField(FieldIPv6Src, a) }

// IPv6Dst is the field IPv6 destination.
func IPv6Dst(a netip.Addr) OXM { return addrField(FieldIPv6Dst, a) }

// IPv6Flabel is the field IPv6 flow label, 20 bits.
func IPv6Flabel(v uint32) OXM { return basic(FieldIPv6Flabel, uint64(v)) }

// ICMPv6Type is the field ICMPv6 type.
func ICMPv6Type(v uint8) OXM { return basic(FieldICMPv6Type, uint64(v)) }

// ICMPv6Code is the field ICMPv6 code.
func ICMPv6Code(v uint8) OXM { return basic(FieldICMPv6Code, uint64(v)) }

// IPv6NDTarget is the field target of a neighbour discovery.
func IPv6NDTarget(a netip.Addr) OXM { return addrField(FieldIPv6NDTarget, a) }

// IPv6NDSLL is the field source link-layer address in a neighbour solicitation.
func IPv6NDSLL(a MAC) OXM { return basic(FieldIPv6NDSLL, a.value().Lo) }

// IPv6NDTLL is the field target link-layer address in a neighbour advertisement.
func IPv6NDTLL(a MAC) OXM { return basic(FieldIPv6NDTLL, a.value().Lo) }

// MPLSLabel is the field outermost MPLS label, 20 bits.
func MPLSLabel(v uint32) OXM { return basic(FieldMPLSLabel, uint64(v)) }

// MPLSTC is the field traffic class of the outermost MPLS label, 0 to 7.
func MPLSTC(v uint8) OXM { return basic(FieldMPLSTC, uint64(v)) }

// MPLSBOS is the field bottom-of-stack bit of the outermost MPLS label, 0 or 1.
func MPLSBOS(v uint8) OXM { return basic(FieldMPLSBOS, uint64(v)) }

// PBBISID is the field service id in the outermost PBB tag, 24 bits.
func PBBISID(v uint32) OXM { return basic(FieldPBBISID, uint64(v)) }

// TunnelID is the field id of the tunnel that the packet came by.
func TunnelID(v uint64) OXM { return basic(FieldTunnelID, v) }

// IPv6Exthdr is the field of the set of IPv6 extension headers that are there, 9 bits (section
// 7.2.3.7).
func IPv6Exthdr(v uint16) OXM { return basic(FieldIPv6Exthdr, uint64(v)) }
