package openflow

// condition is a set of facts about a packet that determine which fields it has.
type condition uint32

const (
	ifInPort condition = 1 << iota
	ifVLAN
	ifIPv4
	ifIPv6
	ifARP
	ifMPLS
	ifPBB
	ifTCP
	ifUDP
	ifSCTP
	ifICMPv4
	ifICMPv6
	ifSolicitation  // ICMPv6 type 135
	ifAdvertisement // ICMPv6 type 136
)

// prerequisites holds the conditions of which a field needs at least one (section 7.2.3.6). They
// chain: TCP_SRC needs an IP_PROTO, which needs an ETH_TYPE.
var prerequisites = [NumFields]condition{
	FieldInPhyPort:    ifInPort,
	FieldVLANPCP:      ifVLAN,
	FieldIPDSCP:       ifIPv4 | ifIPv6,
	FieldIPECN:        ifIPv4 | ifIPv6,
	FieldIPProto:      ifIPv4 | ifIPv6,
	FieldIPv4Src:      ifIPv4,
	FieldIPv4Dst:      ifIPv4,
	FieldTCPSrc:       ifTCP,
	FieldTCPDst:       ifTCP,
	FieldUDPSrc:       ifUDP,
	FieldUDPDst:       ifUDP,
	FieldSCTPSrc:      ifSCTP,
	FieldSCTPDst:      ifSCTP,
	FieldICMPv4Type:   ifICMPv4,
	FieldICMPv4Code:   ifICMPv4,
	FieldARPOp:        ifARP,
	FieldARPSPA:       ifARP,
	FieldARPTPA:       ifARP,
	FieldARPSHA:       ifARP,
	FieldARPTHA:       ifARP,
	FieldIPv6Src:      ifIPv6,
	FieldIPv6Dst:      ifIPv6,
	FieldIPv6Flabel:   ifIPv6,
	FieldICMPv6Type:   ifICMPv6,
	FieldICMPv6Code:   ifICMPv6,
	FieldIPv6NDTarget: ifSolicitation | ifAdvertisement,
	FieldIPv6NDSLL:    ifSolicitation,
	FieldIPv6NDTLL:    ifAdvertisement,
	FieldMPLSLabel:    ifMPLS,
	FieldMPLSTC:       ifMPLS,
	FieldMPLSBOS:      ifMPLS,
	FieldPBBISID:      ifPBB,
	FieldIPv6Exthdr:   ifIPv6,
}

// Values of fields on which others depend.
const (
	EthTypeIPv4 = 0x0800
	EthTypeARP  = 0x0806
	EthTypeVLAN = 0x8100
	EthTypeIPv6 = 0x86dd
	EthTypeMPLS = 0x8847
	EthTypeQinQ = 0x88a8
	EthTypePBB  = 0x88e7
	EthTypeLLDP = 0x88cc

	ethTypeMPLSMulticast = 0x8848

	IPProtoICMPv4 = 1
	IPProtoTCP    = 6
	IPProtoUDP    = 17
	IPProtoICMPv6 = 58
	IPProtoSCTP   = 132

	icmpv6Solicitation  = 135
	icmpv6Advertisement = 136
)

// grants returns the conditions that a field of that value fulfils.
func grants(f Field, value uint64) condition {
	switch f {
	case FieldInPort:
		return ifInPort
	case FieldVLANVID:
		if value&VLANPresent != 0 {
			return ifVLAN
		}
	case FieldEthType:
		switch value {
		case EthTypeIPv4:
			return ifIPv4
		case EthTypeIPv6:
			return ifIPv6
		case EthTypeARP:
			return ifARP
		case EthTypeMPLS, ethTypeMPLSMulticast:
			return ifMPLS
		case EthTypePBB:
			return ifPBB
		}
	case FieldIPProto:
		switch value {
		case IPProtoTCP:
			return ifTCP
		case IPProtoUDP:
			return ifUDP
		case IPProtoSCTP:
			return ifSCTP
		case IPProtoICMPv4:
			return ifICMPv4
		case IPProtoICMPv6:
			return ifICMPv6
		}
	case FieldICMPv6Type:
		switch value {
		case icmpv6Solicitation:
			return ifSolicitation
		case icmpv6Advertisement:
			return ifAdvertisement
		}
	}
	return 0
}

// MissingPrerequisite returns the first field whose prerequisite is not in the match (section
// 7.2.3.6): a switch answers such a match with BadMatchBadPrereq. Decode has done so for FLOW_MOD
// and MULTIPART_REQUEST.
func (m Match) MissingPrerequisite() (f Field, missing bool) {
	var have condition
	for o := range m.All() {
		if o.Class != ClassBasic || o.Field >= NumFields {
			continue
		}
		if need := prerequisites[o.Field]; need != 0 && need&have == 0 {
			return o.Field, true
		}
		have |= grants(o.Field, o.Value.Lo)
	}
	return 0, false
}
