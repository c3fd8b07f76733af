package openflow

// BarrierRequest is BARRIER_REQUEST: the switch answers when it has done all that was asked for
// before (section 7.3.8).
type BarrierRequest struct{ Xid }

// BarrierReply is BARRIER_REPLY (section 7.3.8).
type BarrierReply struct{ Xid }

// Type returns TypeBarrierRequest.
func (m *BarrierRequest) Type() Type { return TypeBarrierRequest }

// Type returns TypeBarrierReply.
func (m *BarrierReply) Type() Type { return TypeBarrierReply }

// AppendTo appends the encoded message.
func (m *BarrierRequest) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, nil) }

// AppendTo appends the encoded message.
func (m *BarrierReply) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, nil) }

func (m *BarrierRequest) decode(d decoder) error { return d.exactly(HeaderLen) }

func (m *BarrierReply) decode(d decoder) error { return d.exactly(HeaderLen) }

// String describes the message.
func (m *BarrierRequest) String() string { return "BARRIER_REQUEST" }

// String describes the message.
func (m *BarrierReply) String() string { return "BARRIER_REPLY" }
