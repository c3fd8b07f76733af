package ospf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Protocol is the number of OSPF in the IP header (section A.1).
const Protocol = 89

// Addresses that packets are sent to on networks with multicast (section A.1).
var (
	AllSPFRouters = netip.AddrFrom4([4]byte{224, 0, 0, 5})
	AllDRouters   = netip.AddrFrom4([4]byte{224, 0, 0, 6})
)

// PacketType is the type of an OSPF packet (section A.3.1).
type PacketType uint8

const (
	TypeHello               PacketType = 1 + iota // section A.3.2
	TypeDatabaseDescription                       // section A.3.3
	TypeLinkStateRequest                          // section A.3.4
	TypeLinkStateUpdate                           // section A.3.5
	TypeLinkStateAck                              // section A.3.6
)

// String returns the name in the RFC.
func (t PacketType) String() string {
	names := []string{TypeHello: "Hello", TypeDatabaseDescription: "Database Description",
		TypeLinkStateRequest: "Link State Request",
		TypeLinkStateUpdate:  "Link State Update", TypeLinkStateAck: "Link State Acknowledgment"}
	if t >= TypeHello && t <= TypeLinkStateAck {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Options are optional capabilities (section A.2). E has a meaning here, and in Database
// Descriptions O; the others are kept as they come, and never set.
type Options uint8

const (
	OptionE  Options = 0x02 // AS-external-LSAs are flooded
	OptionMC Options = 0x04 // multicast, RFC 1584
	OptionNP Options = 0x08 // NSSA, RFC 3101
	OptionEA Options = 0x10 // external attributes; L in RFC 5613
	OptionDC Options = 0x20 // demand circuits, RFC 1793
	OptionO  Options = 0x40 // opaque LSAs, RFC 5250
)

// Packet is an OSPF packet without its authentication (section A.3.1).
type Packet struct {
	RouterID ID
	AreaID   ID
	Body     Body
}

// Body is what follows the header: *Hello, *DatabaseDescription, *LinkStateRequest,
// *LinkStateUpdate or *LinkStateAck.
type Body interface {
	packetType() PacketType
	append(b []byte) []byte
	decode(b []byte) error
}

const (
	headerLen = 24
	ipLen     = 20 // of the IP header, which counts for the MTU
)

// Hello is the body of a Hello packet (section A.3.2). Intervals are in seconds.
type Hello struct {
	Mask          ID
	HelloInterval uint16
	Options       Options
	Priority      uint8
	DeadInterval  uint32
	DR, BDR       ID // addresses of their interfaces, 0 for none
	Neighbors     []ID
}

func (*Hello) packetType() PacketType { return TypeHello }

func (h *Hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.Mask))
	b = binary.BigEndian.AppendUint16(b, h.HelloInterval)
	b = append(b, byte(h.Options), h.Priority)
	b = binary.BigEndian.AppendUint32(b, h.DeadInterval)
	b = binary.BigEndian.AppendUint32(b, uint32(h.DR))
	b = binary.BigEndian.AppendUint32(b, uint32(h.BDR))
	for _, n := range h.Neighbors {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func (h *Hello) decode(b []byte) error {
	if len(b) < 20 || len(b)%4 != 0 {
		return fmt.Errorf("%d octets, not 20, 24, …", len(b))
	}
	*h = Hello{
		Mask:          ID(binary.BigEndian.Uint32(b)),
		HelloInterval: binary.BigEndian.Uint16(b[4:]),
		Options:       Options(b[6]),
		Priority:      b[7],
		DeadInterval:  binary.BigEndian.Uint32(b[8:]),
		DR:            ID(binary.BigEndian.Uint32(b[12:])),
		BDR:           ID(binary.BigEndian.Uint32(b[16:])),
	}
	for i := 20; i < len(b); i += 4 {
		h.Neighbors = append(h.Neighbors, ID(binary.BigEndian.Uint32(b[i:])))
	}
	return nil
}

// DDFlags are the bits I, M and MS (section A.3.3).
type DDFlags uint8

const (
	FlagMaster DDFlags = 1 << iota // MS: the sender is the master
	FlagMore                       // M: more packets follow
	FlagInit                       // I: the first packet
)

// DatabaseDescription is the body of a Database Description packet (section A.3.3).
type DatabaseDescription struct {
	MTU     uint16 // octets; 0 on a virtual link
	Options Options
	Flags   DDFlags
	Seq     uint32
	Headers []LSAHeader
}

func (*DatabaseDescription) packetType() PacketType { return TypeDatabaseDescription }

func (d *DatabaseDescription) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, d.MTU)
	b = append(b, byte(d.Options), byte(d.Flags))
	b = binary.BigEndian.AppendUint32(b, d.Seq)
	return appendHeaders(b, d.Headers)
}

func (d *DatabaseDescription) decode(b []byte) (err error) {
	if len(b) < 8 {
		return fmt.Errorf("%d octets, not 8 or more", len(b))
	}
	*d = DatabaseDescription{
		MTU:     binary.BigEndian.Uint16(b),
		Options: Options(b[2]),
		Flags:   DDFlags(b[3]),
		Seq:     binary.BigEndian.Uint32(b[4:]),
	}
	d.Headers, err = decodeHeaders(b[8:])
	return err
}

// LinkStateRequest is the body of a Link State Request packet (section A.3.4).
type LinkStateRequest struct{ Keys []LSAKey }

func (*LinkStateRequest) packetType() PacketType { return TypeLinkStateRequest }

func (r *LinkStateRequest) append(b []byte) []byte {
	for _, k := range r.Keys {
		b = binary.BigEndian.AppendUint32(b, uint32(k.Type))
		b = binary.BigEndian.AppendUint32(b, uint32(k.ID))
		b = binary.BigEndian.AppendUint32(b, uint32(k.AdvRouter))
	}
	return b
}

func (r *LinkStateRequest) decode(b []byte) error {
	if len(b)%12 != 0 {
		return fmt.Errorf("%d octets, not a multiple of 12", len(b))
	}
	r.Keys = nil
	for ; len(b) > 0; b = b[12:] {
		k := LSAKey{ID: ID(binary.BigEndian.Uint32(b[4:])), AdvRouter: ID(binary.BigEndian.Uint32(b[8:]))}
		if t := binary.BigEndian.Uint32(b); t <= 255 {
			k.Type = LSType(t) // a larger one stays 0, which no database has
		}
		r.Keys = append(r.Keys, k)
	}
	return nil
}

// LinkStateUpdate is the body of a Link State Update packet (section A.3.5). LSAs that were decoded
// share the packet's memory, and are not validated.
type LinkStateUpdate struct{ LSAs []LSA }

func (*LinkStateUpdate) packetType() PacketType { return TypeLinkStateUpdate }

func (u *LinkStateUpdate) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(u.LSAs)))
	for _, l := range u.LSAs {
		b = l.Append(b)
	}
	return b
}

func (u *LinkStateUpdate) decode(b []byte) error {
	if len(b) < 4 {
		return fmt.Errorf("%d octets, not 4 or more", len(b))
	}
	want := binary.BigEndian.Uint32(b)
	u.LSAs = nil
	for b = b[4:]; len(b) > 0; {
		if len(b) < lsaHeaderLen {
			return fmt.Errorf("LSA %d has %d octets, fewer than a header", len(u.LSAs)+1, len(b))
		}
		h := decodeLSAHeader(b)
		if int(h.Length) < lsaHeaderLen || int(h.Length) > len(b) {
			return fmt.Errorf("LSA %d says its length is %d; %d octets are left", len(u.LSAs)+1, h.Length, len(b))
		}
		u.LSAs = append(u.LSAs, LSA{h, b[lsaHeaderLen:h.Length:h.Length]})
		b = b[h.Length:]
	}
	if uint32(len(u.LSAs)) != want {
		return fmt.Errorf("%d LSAs, but it says %d", len(u.LSAs), want)
	}
	return nil
}

// LinkStateAck is the body of a Link State Acknowledgment packet (section A.3.6).
type LinkStateAck struct{ Headers []LSAHeader }

func (*LinkStateAck) packetType() PacketType { return TypeLinkStateAck }

func (a *LinkStateAck) append(b []byte) []byte { return appendHeaders(b, a.Headers) }

func (a *LinkStateAck) decode(b []byte) (err error) {
	a.Headers, err = decodeHeaders(b)
	return err
}

func appendHeaders(b []byte, headers []LSAHeader) []byte {
	for _, h := range headers {
		b = h.append(b)
	}
	return b
}

func decodeHeaders(b []byte) (headers []LSAHeader, err error) {
	if len(b)%lsaHeaderLen != 0 {
		return nil, fmt.Errorf("%d octets, not a multiple of the %d of an LSA header", len(b), lsaHeaderLen)
	}
	for ; len(b) > 0; b = b[lsaHeaderLen:] {
		headers = append(headers, decodeLSAHeader(b))
	}
	return headers, nil
}

// Encode returns the packet's octets without authentication: AuType 0, checksum set (section
// D.4.1).
func (p *Packet) Encode() []byte {
	b := p.encode()
	binary.BigEndian.PutUint16(b[12:], onesComplement(b))
	return b
}

// encode returns the octets with the length set, the checksum and the authentication zero.
func (p *Packet) encode() []byte {
	b := make([]byte, headerLen, 256)
	b[0], b[1] = 2, byte(p.Body.packetType())
	binary.BigEndian.PutUint32(b[4:], uint32(p.RouterID))
	binary.BigEndian.PutUint32(b[8:], uint32(p.AreaID))
	b = p.Body.append(b)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// Decode reads a packet (section A.3). It checks version, type and all lengths. What follows the
// length in the header is left to authentication; checksum and authentication are not looked at.
func Decode(b []byte) (*Packet, error) {
	if len(b) < headerLen {
		return nil, fmt.Errorf("%d octets are less than an OSPF header", len(b))
	}
	if b[0] != 2 {
		return nil, fmt.Errorf("OSPF version %d, not 2", b[0])
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	if length < headerLen || length > len(b) {
		return nil, fmt.Errorf("the header says %d octets, %d came", length, len(b))
	}
	p := &Packet{
		RouterID: ID(binary.BigEndian.Uint32(b[4:])),
		AreaID:   ID(binary.BigEndian.Uint32(b[8:])),
	}
	switch t := PacketType(b[1]); t {
	case TypeHello:
		p.Body = new(Hello)
	case TypeDatabaseDescription:
		p.Body = new(DatabaseDescription)
	case TypeLinkStateRequest:
		p.Body = new(LinkStateRequest)
	case TypeLinkStateUpdate:
		p.Body = new(LinkStateUpdate)
	case TypeLinkStateAck:
		p.Body = new(LinkStateAck)
	default:
		return nil, fmt.Errorf("OSPF packets of %v are not known", t)
	}
	if err := p.Body.decode(b[headerLen:length]); err != nil {
		return nil, fmt.Errorf("%v: %w", p.Body.packetType(), err)
	}
	return p, nil
}
