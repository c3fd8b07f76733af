package openflow

import "fmt"

// FeaturesRequest is FEATURES_REQUEST (section 7.3.1).
type FeaturesRequest struct{ Xid }

// Capabilities is ofp_capabilities (section 7.3.1).
type Capabilities uint32

const (
	CapabilityFlowStats   Capabilities = 1 << 0
	CapabilityTableStats  Capabilities = 1 << 1
	CapabilityPortStats   Capabilities = 1 << 2
	CapabilityGroupStats  Capabilities = 1 << 3
	CapabilityIPReasm     Capabilities = 1 << 5
	CapabilityQueueStats  Capabilities = 1 << 6
	CapabilityPortBlocked Capabilities = 1 << 8
)

// String lists the names in the specification without their prefix OFPC_.
func (c Capabilities) String() string {
	return flagNames(uint32(c), "FLOW_STATS", "TABLE_STATS", "PORT_STATS", "GROUP_STATS", "", "IP_REASM", "QUEUE_STATS",
		"", "PORT_BLOCKED")
}

// FeaturesReply is FEATURES_REPLY, the answer of a switch (section 7.3.1).
type FeaturesReply struct {
	Xid
	DatapathID   uint64 // 16 bits of the implementer's, then a MAC address
	Buffers      uint32 // packets that the switch can keep
	Tables       uint8
	AuxiliaryID  uint8 // 0 on the main connection
	Capabilities Capabilities
	Reserved     uint32 // OpenFlow 1.0 had a set of actions here
}

// Type returns TypeFeaturesRequest.
func (m *FeaturesRequest) Type() Type { return TypeFeaturesRequest }

// Type returns TypeFeaturesReply.
func (m *FeaturesReply) Type() Type { return TypeFeaturesReply }

// AppendTo appends the encoded message.
func (m *FeaturesRequest) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, nil) }

func (m *FeaturesRequest) decode(d decoder) error { return d.exactly(HeaderLen) }

// String describes the message.
func (m *FeaturesRequest) String() string { return "FEATURES_REQUEST" }

// AppendTo appends the encoded message.
func (m *FeaturesReply) AppendTo(b []byte) []byte {
	b, p := start(b, TypeFeaturesReply, m.Xid, 32)
	put64(p, 8, m.DatapathID)
	put32(p, 16, m.Buffers)
	p[20], p[21] = m.Tables, m.AuxiliaryID
	put32(p, 24, uint32(m.Capabilities))
	put32(p, 28, m.Reserved)
	return b
}

func (m *FeaturesReply) decode(d decoder) error {
	if err := d.exactly(32); err != nil {
		return err
	}
	*m = FeaturesReply{
		DatapathID:   get64(d.b, 8),
		Buffers:      get32(d.b, 16),
		Tables:       d.b[20],
		AuxiliaryID:  d.b[21],
		Capabilities: Capabilities(get32(d.b, 24)),
		Reserved:     get32(d.b, 28),
	}
	return nil
}

// String describes the message.
func (m *FeaturesReply) String() string {
	return fmt.Sprintf("FEATURES_REPLY dpid=%016x n_buffers=%d n_tables=%d auxiliary=%d capabilities=%v",
		m.DatapathID, m.Buffers, m.Tables, m.AuxiliaryID, m.Capabilities)
}
