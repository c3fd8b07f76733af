package openflow

import "fmt"

// AsyncMasks says which asynchronous messages a controller gets: bit r of a mask stands for reason
// r of the message (1 << ReasonAction). Index 0 holds for the roles master and equal, 1 for slave
// (ofp_async_config, section 7.3.10).
type AsyncMasks struct {
	PacketIn    [2]uint32
	PortStatus  [2]uint32
	FlowRemoved [2]uint32
}

// GetAsyncRequest is GET_ASYNC_REQUEST (section 7.3.10).
type GetAsyncRequest struct{ Xid }

// GetAsyncReply is GET_ASYNC_REPLY (section 7.3.10).
type GetAsyncReply struct {
	Xid
	AsyncMasks
}

// SetAsync is SET_ASYNC (section 7.3.10); it has no answer.
type SetAsync struct {
	Xid
	AsyncMasks
}

// DefaultAsync returns what a switch starts with (section 6.3.5).
func DefaultAsync() AsyncMasks {
	return AsyncMasks{
		PacketIn:   [2]uint32{1<<ReasonNoMatch | 1<<ReasonAction, 0},
		PortStatus: [2]uint32{1<<PortAdd | 1<<PortDelete | 1<<PortModify, 1<<PortAdd | 1<<PortDelete | 1<<PortModify},
		FlowRemoved: [2]uint32{1<<RemovedIdleTimeout | 1<<RemovedHardTimeout | 1<<RemovedDelete |
			1<<RemovedGroupDelete, 0},
	}
}

// Type returns TypeGetAsyncRequest.
func (m *GetAsyncRequest) Type() Type { return TypeGetAsyncRequest }

// Type returns TypeGetAsyncReply.
func (m *GetAsyncReply) Type() Type { return TypeGetAsyncReply }

// Type returns TypeSetAsync.
func (m *SetAsync) Type() Type { return TypeSetAsync }

// AppendTo appends the encoded message.
func (m *GetAsyncRequest) AppendTo(b []byte) []byte { return appendData(b, m.Type(), m.Xid, nil) }

// AppendTo appends the encoded message.
func (m *GetAsyncReply) AppendTo(b []byte) []byte { return m.AsyncMasks.append(b, m.Type(), m.Xid) }

// AppendTo appends the encoded message.
func (m *SetAsync) AppendTo(b []byte) []byte { return m.AsyncMasks.append(b, m.Type(), m.Xid) }

func (a AsyncMasks) append(b []byte, t Type, x Xid) []byte {
	b, p := start(b, t, x, 32)
	for i, masks := range [...][2]uint32{a.PacketIn, a.PortStatus, a.FlowRemoved} {
		put32(p, 8+8*i, masks[0])
		put32(p, 12+8*i, masks[1])
	}
	return b
}

func (m *GetAsyncRequest) decode(d decoder) error { return d.exactly(HeaderLen) }

func (m *GetAsyncReply) decode(d decoder) error { return m.AsyncMasks.decode(d) }

func (m *SetAsync) decode(d decoder) error { return m.AsyncMasks.decode(d) }

func (a *AsyncMasks) decode(d decoder) error {
	if err := d.exactly(32); err != nil {
		return err
	}
	for i, masks := range [...]*[2]uint32{&a.PacketIn, &a.PortStatus, &a.FlowRemoved} {
		masks[0], masks[1] = get32(d.b, 8+8*i), get32(d.b, 12+8*i)
	}
	return nil
}

// String describes the message.
func (m *GetAsyncRequest) String() string { return "GET_ASYNC_REQUEST" }

// String describes the message.
func (m *GetAsyncReply) String() string { return "GET_ASYNC_REPLY " + m.AsyncMasks.String() }

// String describes the message.
func (m *SetAsync) String() string { return "SET_ASYNC " + m.AsyncMasks.String() }

// String describes the masks.
func (a AsyncMasks) String() string {
	return fmt.Sprintf("packet_in=%#x/%#x port_status=%#x/%#x flow_removed=%#x/%#x",
		a.PacketIn[0], a.PacketIn[1], a.PortStatus[0], a.PortStatus[1], a.FlowRemoved[0], a.FlowRemoved[1])
}
