package flowload

import (
	"errors"
	"fmt"
	"math"

	"trivet.dev/trivet/openflow"
)

// What there is of OpenFlow 1.0 (specification 1.0.0), for controllers that know no other: the
// least with which they take a switch for one. Entries are not kept, and statistics are empty.

// Types of messages that have other numbers than in 1.3 (section 5.1).
const (
	statsRequest10   = 16
	statsReply10     = 17
	barrierRequest10 = 18
	barrierReply10   = 19
)

func (n *node) handle10(m []byte) error {
	switch openflow.Type(m[1]) {
	case openflow.TypeHello, openflow.TypeEchoReply, openflow.TypeSetConfig:
	case openflow.TypeError:
		return fmt.Errorf("the controller sent an error: % x", m)
	case openflow.TypeEchoRequest:
		n.reply10(m, uint8(openflow.TypeEchoReply), m[8:])
	case openflow.TypeFeaturesRequest:
		n.reply10(m, uint8(openflow.TypeFeaturesReply), n.features10())
		n.greeted()
	case openflow.TypeGetConfigRequest:
		n.reply10(m, uint8(openflow.TypeGetConfigReply), []byte{0, 0, 0, 128})
	case openflow.TypePacketOut:
		if n.said.packetOut10(m) {
			n.packetOut()
		}
	case openflow.TypeFlowMod:
		if n.said.flowMod10(m) && be.Uint16(m[56:]) == uint16(openflow.FlowAdd) {
			n.answered()
		}
	case barrierRequest10:
		n.reply10(m, barrierReply10, nil)
	case statsRequest10:
		if len(m) < 12 {
			return errors.New("the controller sent a STATS_REQUEST that is too short")
		}
		n.stats10(m)
	default:
		// OFPET_BAD_REQUEST, OFPBRC_BAD_TYPE.
		n.reply10(m, uint8(openflow.TypeError), append([]byte{0, 1, 0, 1}, m[:min(len(m), 64)]...))
	}
	return nil
}

// reply10 answers a message with another one of the same transaction.
func (n *node) reply10(m []byte, kind uint8, body []byte) {
	n.tx = append(n.tx, version10, kind)
	n.tx = be.AppendUint16(n.tx, uint16(8+len(body)))
	n.tx = append(append(n.tx, m[4:8]...), body...)
}

// features10 is the body of FEATURES_REPLY, which has the ports (section 5.3.1).
func (n *node) features10() []byte {
	b := be.AppendUint64(nil, n.dpid())
	b = be.AppendUint32(b, n.run.buffers())
	b = append(b, 1, 0, 0, 0)         // one table
	b = be.AppendUint32(b, 1<<0|1<<2) // statistics of flows and ports
	b = be.AppendUint32(b, 1)         // output is what it can do
	for p := range n.run.Ports {
		d := n.port(uint32(p) + 1)
		b = be.AppendUint16(b, uint16(d.Number))
		b = append(b, d.HWAddr[:]...)
		name := make([]byte, 16)
		copy(name, d.Name)
		b = append(append(b, name...), make([]byte, 4+4+4*4)...) // config, state, features
	}
	return b
}

// stats10 answers STATS_REQUEST (section 5.3.5): with what is known, or with nothing.
func (n *node) stats10(m []byte) {
	body := append([]byte(nil), m[8], m[9], 0, 0)
	switch be.Uint16(m[8:]) {
	case 0: // OFPST_DESC
		text := make([]byte, 3*256+32+256)
		copy(text, "Trivet")
		copy(text[256:], "emulated switch")
		copy(text[512:], "flowload")
		copy(text[800:], n.name())
		body = append(body, text...)
	case 2: // OFPST_AGGREGATE
		body = append(body, make([]byte, 24)...)
	}
	n.reply10(m, statsReply10, body)
}

// packetIn10 makes a PACKET_IN (section 5.4.1) of a frame.
func packetIn10(inPort uint32, reason openflow.PacketInReason, frame []byte) []byte {
	b := []byte{version10, uint8(openflow.TypePacketIn)}
	b = be.AppendUint16(b, uint16(min(18+len(frame), math.MaxUint16)))
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, openflow.BufferNone)
	b = be.AppendUint16(b, uint16(len(frame)))
	b = be.AppendUint16(b, uint16(inPort))
	b = append(b, uint8(reason), 0)
	return append(b, frame...)
}
