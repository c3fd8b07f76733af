package openflow

import "fmt"

// QueueAll stands for all queues of a port, in requests (section 7.3.5.8).
const QueueAll uint32 = 0xffffffff

// QueueGetConfigRequest is QUEUE_GET_CONFIG_REQUEST (section 7.3.6).
type QueueGetConfigRequest struct {
	Xid
	Port uint32 // or PortAny
}

// QueueGetConfigReply is QUEUE_GET_CONFIG_REPLY (section 7.3.6).
type QueueGetConfigReply struct {
	Xid
	Port   uint32
	Queues []PacketQueue
}

// PacketQueue is ofp_packet_queue (section 7.2.2).
type PacketQueue struct {
	Queue      uint32
	Port       uint32
	Properties []QueueProperty
}

// QueuePropertyType is ofp_queue_properties (section 7.2.2).
type QueuePropertyType uint16

const (
	QueueMinRate      QueuePropertyType = 1
	QueueMaxRate      QueuePropertyType = 2
	QueueExperimenter QueuePropertyType = 0xffff
)

// QueueProperty is ofp_queue_prop_header with what follows it (section 7.2.2).
type QueueProperty struct {
	Type         QueuePropertyType
	Rate         uint16 // QueueMinRate, QueueMaxRate: tenths of a percent; above 1000: none
	Experimenter uint32 // QueueExperimenter
	Data         string // QueueExperimenter: the number of bytes is a multiple of 8
}

// Type returns TypeQueueGetConfigRequest.
func (m *QueueGetConfigRequest) Type() Type { return TypeQueueGetConfigRequest }

// Type returns TypeQueueGetConfigReply.
func (m *QueueGetConfigReply) Type() Type { return TypeQueueGetConfigReply }

// AppendTo appends the encoded message.
func (m *QueueGetConfigRequest) AppendTo(b []byte) []byte {
	b, p := start(b, TypeQueueGetConfigRequest, m.Xid, 16)
	put32(p, 8, m.Port)
	return b
}

// AppendTo appends the encoded message.
func (m *QueueGetConfigReply) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypeQueueGetConfigReply, m.Xid, 16)
	put32(p, 8, m.Port)
	for _, q := range m.Queues {
		b = q.appendTo(b)
	}
	return finish(b, at)
}

func (q *PacketQueue) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 16)
	put32(p, 0, q.Queue)
	put32(p, 4, q.Port)
	for _, prop := range q.Properties {
		from := len(b)
		b, p = extend(b, 16)
		put16(p, 0, uint16(prop.Type))
		if prop.Type == QueueExperimenter {
			put32(p, 8, prop.Experimenter)
			b = pad8(append(b, prop.Data...), from)
		} else {
			put16(p, 8, prop.Rate)
		}
		put16(b, from+2, uint16(len(b)-from))
	}
	put16(b, at+8, uint16(len(b)-at))
	return b
}

func (m *QueueGetConfigRequest) decode(d decoder) error {
	if err := d.exactly(16); err != nil {
		return err
	}
	m.Port = get32(d.b, 8)
	return nil
}

func (m *QueueGetConfigReply) decode(d decoder) error {
	if err := d.need(8, 8); err != nil {
		return err
	}
	m.Port, m.Queues = get32(d.b, 8), nil
	for at := 16; at < len(d.b); {
		n, err := d.record(at, 16, 8)
		if err != nil {
			return err
		}
		q := PacketQueue{Queue: get32(d.b, at), Port: get32(d.b, at+4)}
		if q.Properties, err = d.queueProperties(at+16, at+n); err != nil {
			return err
		}
		m.Queues = append(m.Queues, q)
		at += n
	}
	return nil
}

func (d decoder) queueProperties(at, end int) (list []QueueProperty, err error) {
	for at < end {
		kind, n, err := d.tlv(at, end, 16, BadRequestBadLen)
		if err != nil {
			return nil, err
		}
		p := QueueProperty{Type: QueuePropertyType(kind)}
		switch p.Type {
		case QueueMinRate, QueueMaxRate:
			if n != 16 {
				return nil, d.fail(at+2, BadRequestBadLen, "length %d of a rate, want 16", n)
			}
			p.Rate = get16(d.b, at+8)
		case QueueExperimenter:
			p.Experimenter, p.Data = get32(d.b, at+8), string(d.b[at+16:at+n])
		default:
			return nil, d.fail(at, BadRequestBadType, "queue property %d is not defined in OpenFlow 1.3", kind)
		}
		list = append(list, p)
		at += n
	}
	return list, nil
}

// String describes the message.
func (m *QueueGetConfigRequest) String() string {
	return "QUEUE_GET_CONFIG_REQUEST port=" + PortName(m.Port)
}

// String describes the message.
func (m *QueueGetConfigReply) String() string {
	s := "QUEUE_GET_CONFIG_REPLY port=" + PortName(m.Port)
	for _, q := range m.Queues {
		s += fmt.Sprintf(" queue=%d", q.Queue)
		for _, p := range q.Properties {
			switch p.Type {
			case QueueMinRate:
				s += fmt.Sprintf(",min_rate:%.1f%%", float64(p.Rate)/10)
			case QueueMaxRate:
				s += fmt.Sprintf(",max_rate:%.1f%%", float64(p.Rate)/10)
			default:
				s += fmt.Sprintf(",experimenter:%#08x", p.Experimenter)
			}
		}
	}
	return s
}
