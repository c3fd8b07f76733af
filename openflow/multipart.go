package openflow

import "fmt"

// MultipartType is ofp_multipart_type (section 7.3.5).
type MultipartType uint16

const (
	MultipartDesc MultipartType = iota
	MultipartFlow
	MultipartAggregate
	MultipartTable
	MultipartPortStats
	MultipartQueue
	MultipartGroup
	MultipartGroupDesc
	MultipartGroupFeatures
	MultipartMeter
	MultipartMeterConfig
	MultipartMeterFeatures
	MultipartTableFeatures
	MultipartPortDesc

	MultipartExperimenter MultipartType = 0xffff
)

var multipartNames = []string{
	"DESC", "FLOW", "AGGREGATE", "TABLE", "PORT_STATS", "QUEUE", "GROUP", "GROUP_DESC", "GROUP_FEATURES",
	"METER", "METER_CONFIG", "METER_FEATURES", "TABLE_FEATURES", "PORT_DESC",
}

// String returns the name in the specification without its prefix OFPMP_.
func (t MultipartType) String() string {
	if t == MultipartExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(multipartNames, "multipart type ", t)
}

// MultipartFlags is ofp_multipart_request_flags and ofp_multipart_reply_flags (section 7.3.5).
type MultipartFlags uint16

// MultipartMore is set in every part but the last: OFPMPF_REQ_MORE, OFPMPF_REPLY_MORE.
const MultipartMore MultipartFlags = 1

// MultipartBody is what follows the header of a MULTIPART_REQUEST or MULTIPART_REPLY:
//
//	type            request                 reply
//	DESC            NoBody                  Desc
//	FLOW            FlowStatsRequest        FlowStatsList
//	AGGREGATE       AggregateStatsRequest   AggregateStats
//	TABLE           NoBody                  TableStatsList
//	PORT_STATS      PortStatsRequest        PortStatsList
//	QUEUE           QueueStatsRequest       QueueStatsList
//	GROUP           GroupStatsRequest       GroupStatsList
//	GROUP_DESC      NoBody                  GroupDescList
//	GROUP_FEATURES  NoBody                  GroupFeatures
//	METER           MeterStatsRequest       MeterStatsList
//	METER_CONFIG    MeterConfigRequest      MeterConfigList
//	METER_FEATURES  NoBody                  MeterFeatures
//	TABLE_FEATURES  TableFeaturesList       TableFeaturesList
//	PORT_DESC       NoBody                  PortDescList
//	EXPERIMENTER    ExperimenterMultipart   ExperimenterMultipart
type MultipartBody interface {
	MultipartType() MultipartType
	fmt.Stringer
	appendTo(b []byte) []byte
}

// List is a body that can be split between its elements. P is a pointer to E.
type List[E any, P element[E]] []E

// element is what a List has.
type element[E any] interface {
	*E
	fmt.Stringer
	listType() MultipartType // of the list
	appendTo(b []byte) []byte
}

// MultipartType returns the type that lists of E have.
func (l List[E, P]) MultipartType() MultipartType { return P(nil).listType() }

// String describes the elements.
func (l List[E, P]) String() string {
	s := fmt.Sprintf("%d:", len(l))
	for i := range l {
		s += " [" + P(&l[i]).String() + "]"
	}
	return s
}

func (l List[E, P]) appendTo(b []byte) []byte {
	for i := range l {
		b = P(&l[i]).appendTo(b)
	}
	return b
}

func (l List[E, P]) count() int { return len(l) }

func (l List[E, P]) appendElement(b []byte, i int) []byte { return P(&l[i]).appendTo(b) }

func (l List[E, P]) join(more MultipartBody) MultipartBody { return append(l, more.(List[E, P])...) }

// list is a List of whatever elements.
type list interface {
	MultipartBody
	count() int
	appendElement(b []byte, i int) []byte
	join(more MultipartBody) MultipartBody // both of one type
}

// NoBody is the body of a request that has only a type.
type NoBody MultipartType

// MultipartType returns the type.
func (n NoBody) MultipartType() MultipartType { return MultipartType(n) }

// String returns nothing.
func (n NoBody) String() string { return "" }

func (n NoBody) appendTo(b []byte) []byte { return b }

// MultipartRequest is MULTIPART_REQUEST (section 7.3.5).
type MultipartRequest struct {
	Xid
	Flags MultipartFlags
	Body  MultipartBody
}

// MultipartReply is MULTIPART_REPLY (section 7.3.5).
type MultipartReply struct {
	Xid
	Flags MultipartFlags
	Body  MultipartBody
}

// Type returns TypeMultipartRequest.
func (m *MultipartRequest) Type() Type { return TypeMultipartRequest }

// Type returns TypeMultipartReply.
func (m *MultipartReply) Type() Type { return TypeMultipartReply }

// AppendTo appends the encoded message.
func (m *MultipartRequest) AppendTo(b []byte) []byte {
	at := len(b)
	b = startMultipart(b, m.Type(), m.Xid, m.Body.MultipartType(), m.Flags)
	return finish(m.Body.appendTo(b), at)
}

// AppendTo appends the encoded message. See AppendParts for replies that may be long.
func (m *MultipartReply) AppendTo(b []byte) []byte {
	at := len(b)
	b = startMultipart(b, m.Type(), m.Xid, m.Body.MultipartType(), m.Flags)
	return finish(m.Body.appendTo(b), at)
}

// AppendParts appends as many messages as the reply needs; all but the last have MultipartMore set,
// and the last has the reply's flags. A list is split between its elements. If an element is longer
// than MaxLength, b is returned unchanged.
func (m *MultipartReply) AppendParts(b []byte) []byte {
	l, ok := m.Body.(list)
	if !ok {
		return m.AppendTo(b)
	}
	before := len(b)
	begin := func() []byte { return startMultipart(b, m.Type(), m.Xid, l.MultipartType(), m.Flags) }
	at := before
	b = begin()
	for i := range l.count() {
		end := len(b)
		if b = l.appendElement(b, i); len(b)-at <= MaxLength {
			continue
		}
		put16(b, at+10, uint16(m.Flags|MultipartMore))
		b = finish(b[:end], at)
		at = end
		b = begin()
		if b = l.appendElement(b, i); len(b)-at > MaxLength {
			return b[:before]
		}
	}
	return finish(b, at)
}

func startMultipart(b []byte, t Type, x Xid, kind MultipartType, flags MultipartFlags) []byte {
	b, p := start(b, t, x, 16)
	put16(p, 8, uint16(kind))
	put16(p, 10, uint16(flags))
	return b
}

func (m *MultipartRequest) decode(d decoder) (err error) {
	if err := d.need(8, 8); err != nil {
		return err
	}
	m.Flags = MultipartFlags(get16(d.b, 10))
	m.Body, err = d.multipartRequest(MultipartType(get16(d.b, 8)))
	return err
}

func (m *MultipartReply) decode(d decoder) (err error) {
	if err := d.need(8, 8); err != nil {
		return err
	}
	m.Flags = MultipartFlags(get16(d.b, 10))
	m.Body, err = d.multipartReply(MultipartType(get16(d.b, 8)))
	return err
}

const bodyAt = 16 // offset of a multipart body

func (d decoder) multipartRequest(t MultipartType) (MultipartBody, error) {
	switch t {
	case MultipartDesc, MultipartTable, MultipartGroupDesc, MultipartGroupFeatures, MultipartMeterFeatures,
		MultipartPortDesc:
		return NoBody(t), d.exactly(bodyAt)
	case MultipartFlow:
		r, err := d.flowStatsRequest()
		return r, err
	case MultipartAggregate:
		r, err := d.flowStatsRequest()
		return AggregateStatsRequest(r), err
	case MultipartPortStats, MultipartQueue, MultipartGroup, MultipartMeter, MultipartMeterConfig:
		if err := d.exactly(bodyAt + 8); err != nil {
			return nil, err
		}
		return numberedRequest(t, get32(d.b, bodyAt), get32(d.b, bodyAt+4)), nil
	case MultipartTableFeatures:
		return decodeElements(d, 64, 0, d.tableFeatures)
	case MultipartExperimenter:
		return d.experimenterMultipart()
	}
	return nil, d.fail(8, BadRequestBadMultipart, "%v is not defined in OpenFlow 1.3", t)
}

// numberedRequest is a request body of one or two numbers.
func numberedRequest(t MultipartType, first, second uint32) MultipartBody {
	switch t {
	case MultipartPortStats:
		return PortStatsRequest{Port: first}
	case MultipartQueue:
		return QueueStatsRequest{Port: first, Queue: second}
	case MultipartGroup:
		return GroupStatsRequest{Group: first}
	case MultipartMeter:
		return MeterStatsRequest{Meter: first}
	default:
		return MeterConfigRequest{Meter: first}
	}
}

func (d decoder) multipartReply(t MultipartType) (MultipartBody, error) {
	switch t {
	case MultipartDesc:
		return d.desc()
	case MultipartFlow:
		return decodeElements(d, 56, 0, d.flowStats)
	case MultipartAggregate:
		return d.aggregateStats()
	case MultipartTable:
		return decodeRecords(d, tableStatsLen, TableStatsList(nil), d.tableStats)
	case MultipartPortStats:
		return decodeRecords(d, portStatsLen, PortStatsList(nil), d.portStats)
	case MultipartQueue:
		return decodeRecords(d, queueStatsLen, QueueStatsList(nil), d.queueStats)
	case MultipartGroup:
		return decodeElements(d, 40, 0, d.groupStats)
	case MultipartGroupDesc:
		return decodeElements(d, 8, 0, d.groupDesc)
	case MultipartGroupFeatures:
		return d.groupFeatures()
	case MultipartMeter:
		return decodeElements(d, 40, 4, d.meterStats)
	case MultipartMeterConfig:
		return decodeElements(d, 8, 0, d.meterConfig)
	case MultipartMeterFeatures:
		return d.meterFeatures()
	case MultipartTableFeatures:
		return decodeElements(d, 64, 0, d.tableFeatures)
	case MultipartPortDesc:
		return decodeRecords(d, portLen, PortDescList(nil), d.port)
	case MultipartExperimenter:
		return d.experimenterMultipart()
	}
	return nil, d.fail(8, BadRequestBadMultipart, "%v is not defined in OpenFlow 1.3", t)
}

// decodeRecords decodes a body that consists of records of n bytes.
func decodeRecords[L ~[]E, E any](d decoder, n int, l L, record func(at int) E) (L, error) {
	size := len(d.b) - bodyAt
	if size%n != 0 {
		return nil, d.fail(bodyAt+size/n*n, BadRequestBadLen, "%d bytes, which is not a whole number of records of %d",
			size, n)
	}
	if size > 0 {
		l = make(L, 0, size/n)
	}
	for at := bodyAt; at < len(d.b); at += n {
		l = append(l, record(at))
	}
	return l, nil
}

// decodeElements decodes a body of elements of least bytes or more, each of which has its length
// lengthAt bytes from its start.
func decodeElements[E any, P element[E]](
	d decoder, least, lengthAt int, decode func(e P, at, end int) error,
) (l List[E, P], err error) {
	for at := bodyAt; at < len(d.b); {
		n, err := d.record(at, least, lengthAt)
		if err != nil {
			return nil, err
		}
		l = append(l, *new(E))
		if err := decode(&l[len(l)-1], at, at+n); err != nil {
			return nil, err
		}
		at += n
	}
	return l, nil
}

// record checks the length of an element at offset at of a body, and returns it.
func (d decoder) record(at, least, lengthAt int) (n int, err error) {
	if err := d.need(at, least); err != nil {
		return 0, err
	}
	n = int(get16(d.b, at+lengthAt))
	if n < least || n%8 != 0 {
		return 0, d.fail(at+lengthAt, BadRequestBadLen, "length %d, want %d or more and a multiple of 8", n, least)
	}
	return n, d.need(at, n)
}

// String describes the message.
func (m *MultipartRequest) String() string {
	return multipartString("MULTIPART_REQUEST", m.Flags, m.Body)
}

// String describes the message.
func (m *MultipartReply) String() string { return multipartString("MULTIPART_REPLY", m.Flags, m.Body) }

func multipartString(name string, flags MultipartFlags, body MultipartBody) string {
	s := fmt.Sprintf("%s %v", name, body.MultipartType())
	if text := body.String(); text != "" {
		s += " " + text
	}
	if flags&MultipartMore != 0 {
		s += " more"
	}
	return s
}
