package openflow

import "encoding/binary"

// Nicira is the experimenter id of Open vSwitch's extensions.
const Nicira = 0x00002320

const (
	checkPacketLarger = 49 // NXAST_CHECK_PKT_LARGER
	metadataHeader    = uint32(ClassBasic)<<16 | uint32(FieldMetadata)<<9 | 8
)

// CheckPacketLarger sets a bit of the packet's metadata if the packet, with its Ethernet header, is
// longer than so many bytes, and clears it if not: check_pkt_larger of ovs-actions(7), which Open
// vSwitch has since 2.12. No match of OpenFlow's looks at the length of packets.
func CheckPacketLarger(bytes uint16, bit uint8) Action {
	b := binary.BigEndian.AppendUint16(nil, checkPacketLarger)
	b = binary.BigEndian.AppendUint16(b, bytes)
	b = binary.BigEndian.AppendUint16(b, uint16(bit))
	return ExperimenterAction(Nicira, string(binary.BigEndian.AppendUint32(b, metadataHeader)))
}

// AsCheckPacketLarger returns the arguments of CheckPacketLarger, if the action is from it.
func (a *Action) AsCheckPacketLarger() (bytes uint16, bit uint8, is bool) {
	if a.Type != ActionExperimenter || a.Experimenter != Nicira || len(a.Data) < 16 {
		return 0, 0, false
	}
	b := []byte(a.Data)
	bytes, bit = get16(b, 2), b[5]
	is = get16(b, 0) == checkPacketLarger && b[4] == 0 && bit < 64 && get32(b, 6) == metadataHeader
	return bytes, bit, is
}
