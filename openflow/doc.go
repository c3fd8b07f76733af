// Package openflow encodes and decodes OpenFlow 1.3, all of it and in both directions: what a
// controller sends, and what a switch sends. It does no I/O beyond Reader and Writer, and keeps
// no state of a connection: transaction ids, echoes and roles are its callers'.
//
// Section numbers in this documentation are those of the OpenFlow Switch Specification, Version
// 1.3.5 (wire version 0x04). Names are the specification's in Go's form: OFPT_FLOW_MOD is FlowMod
// and TypeFlowMod, OXM_OF_IPV4_DST is IPv4Dst and FieldIPv4Dst, OFPP_CONTROLLER is PortController,
// OFPBRC_BAD_LEN is BadRequestBadLen.
//
// # Messages
//
// There is one type for each message. It is built as a literal and appended to a buffer:
//
//	barrier := openflow.BarrierRequest{Xid: 7}
//	buf = barrier.AppendTo(buf)
//
// Decode turns the bytes of a message into one of these types, for a type switch. A Reader cuts a
// stream into messages, a Writer gathers them for few system calls:
//
//	r, w := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
//	m, err := r.Read()
//	switch m := m.(type) {
//	case *openflow.EchoRequest:
//		w.Write(m.Reply())
//		w.Flush()
//	case *openflow.PacketIn:
//		port, _ := m.Match.InPort()
//		…
//	}
//
// # Matches, actions, instructions
//
// A Match is made of fields and does not change. The same set of fields is the same value, so that
// == is what the specification calls identical matches, and a Match can be the key of a map:
//
//	m := openflow.NewMatch(openflow.InPort(1), openflow.EthType(openflow.EthTypeIPv4),
//		openflow.IPv4Dst(addr).WithPrefix(24))
//
// Match.Covers and Match.Overlaps are what a flow table needs for MODIFY, DELETE and
// CHECK_OVERLAP. Fields are also what SetField takes. Actions and instructions are values with a
// Type; functions named as in the specification make them:
//
//	openflow.NewFlowMod(openflow.FlowAdd, 100, m, openflow.ApplyActions(
//		openflow.SetField(openflow.EthDst(mac)), openflow.DecNwTTL(), openflow.Output(3)))
//
// ParseFlow and FormatFlow read and write the text that ovs-ofctl has for a flow.
//
// # Errors
//
// What is malformed is a *DecodeError, which names the message and the byte, and carries the type
// and code of the ERROR with which to answer. Decode checks all that can be told from the message
// alone: lengths, types, values and masks of fields, fields that come twice and, of FLOW_MOD
// and MULTIPART_REQUEST, prerequisites of fields. Whether a table, a port or a group exists, and
// whether the switch supports what it is asked for, is the switch's to say.
//
// # Speed
//
// Encoding does not allocate if the buffer has room. Decode allocates the message, and once for
// each match and list in it; DecodeInto reuses a message. Data of packets, echoes, errors and
// experimenters' messages is a part of the decoded buffer: copy it before you write to that buffer
// again. A Reader never does.
package openflow
