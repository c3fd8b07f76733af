package ospf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// LSType is the type of an LSA (section A.4.1, and RFC 5250 of opaque ones). The engine knows 1 to
// 5 and 9 to 11; others (7: NSSA) are discarded on reception, as section 13 step 2 demands.
type LSType uint8

const (
	TypeRouter      LSType = 1 + iota // section A.4.2
	TypeNetwork                       // section A.4.3
	TypeSummary                       // a network in another area; section A.4.4
	TypeASBRSummary                   // an AS boundary router in another area; section A.4.4
	TypeExternal                      // section A.4.5
)

// Opaque LSAs, by flooding scope (RFC 5250, section 3). The first octet of the Link State ID is the
// opaque type; the engine interprets only grace-LSAs, and floods the others.
const (
	TypeOpaqueLink LSType = 9 + iota // over one link
	TypeOpaqueArea
	TypeOpaqueAS
)

func (t LSType) opaque() bool { return t >= TypeOpaqueLink && t <= TypeOpaqueAS }

// wide reports whether LSAs of the type are flooded through the whole AS, except stub areas and
// virtual links.
func (t LSType) wide() bool { return t == TypeExternal || t == TypeOpaqueAS }

// known reports whether LSAs of the type are kept and flooded.
func (t LSType) known() bool { return t >= TypeRouter && t <= TypeExternal || t.opaque() }

// String returns the name in the RFC.
func (t LSType) String() string {
	names := []string{TypeRouter: "router", TypeNetwork: "network", TypeSummary: "summary",
		TypeASBRSummary: "asbr-summary", TypeExternal: "external",
		TypeOpaqueLink: "opaque-link", TypeOpaqueArea: "opaque-area", TypeOpaqueAS: "opaque-as"}
	if t.known() {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Architectural constants of LSAs (appendix B); ages are in seconds.
const (
	MaxAge     = 3600
	MaxAgeDiff = 900
	CheckAge   = 300
	LSInfinity = 0xffffff // a cost that means unreachable

	InitialSequence int32 = -0x7fffffff
	MaxSequence     int32 = 0x7fffffff
)

// LSAKey identifies an LSA regardless of its instance (section 12.1).
type LSAKey struct {
	Type      LSType
	ID        ID
	AdvRouter ID
}

// String returns type, Link State ID and advertising router.
func (k LSAKey) String() string { return fmt.Sprintf("%v %v of %v", k.Type, k.ID, k.AdvRouter) }

// compare orders keys, so that listings and packets do not depend on the order of a map.
func (k LSAKey) compare(o LSAKey) int {
	number := func(k LSAKey) uint64 { return uint64(k.ID)<<32 | uint64(k.AdvRouter) }
	switch {
	case k.Type != o.Type:
		return int(k.Type) - int(o.Type)
	case number(k) < number(o):
		return -1
	case number(k) > number(o):
		return 1
	}
	return 0
}

func sortKeys(keys []LSAKey) { slices.SortFunc(keys, LSAKey.compare) }

// LSAHeader is the 20 octets that begin each LSA (section A.4.1).
type LSAHeader struct {
	LSAKey
	Age      uint16 // seconds
	Options  Options
	Seq      int32
	Checksum uint16
	Length   uint16 // octets, including the header
}

const lsaHeaderLen = 20

// append appends the encoded header to b.
func (h LSAHeader) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, h.Age)
	b = append(b, byte(h.Options), byte(h.Type))
	b = binary.BigEndian.AppendUint32(b, uint32(h.ID))
	b = binary.BigEndian.AppendUint32(b, uint32(h.AdvRouter))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Seq))
	b = binary.BigEndian.AppendUint16(b, h.Checksum)
	return binary.BigEndian.AppendUint16(b, h.Length)
}

// decodeLSAHeader reads a header; b has at least 20 octets.
func decodeLSAHeader(b []byte) LSAHeader {
	return LSAHeader{
		LSAKey: LSAKey{
			Type:      LSType(b[3]),
			ID:        ID(binary.BigEndian.Uint32(b[4:])),
			AdvRouter: ID(binary.BigEndian.Uint32(b[8:])),
		},
		Age:      binary.BigEndian.Uint16(b),
		Options:  Options(b[2]),
		Seq:      int32(binary.BigEndian.Uint32(b[12:])),
		Checksum: binary.BigEndian.Uint16(b[16:]),
		Length:   binary.BigEndian.Uint16(b[18:]),
	}
}

// Compare returns which of two instances of an LSA is more recent (section 13.1): above 0: h, below
// 0: o, 0: they are the same. Ages must be current.
func (h LSAHeader) Compare(o LSAHeader) int {
	switch {
	case h.Seq != o.Seq:
		if h.Seq > o.Seq {
			return 1
		}
		return -1
	case h.Checksum != o.Checksum:
		return int(h.Checksum) - int(o.Checksum)
	case (h.Age >= MaxAge) != (o.Age >= MaxAge):
		if h.Age >= MaxAge {
			return 1
		}
		return -1
	case int(h.Age)-int(o.Age) > MaxAgeDiff || int(o.Age)-int(h.Age) > MaxAgeDiff:
		return int(o.Age) - int(h.Age) // the younger one
	}
	return 0
}

// LSA is a link state advertisement: its header and its undecoded body, which is shared and must
// not be changed.
type LSA struct {
	LSAHeader
	Body []byte
}

// NewLSA returns the instance with the given body; it computes length and checksum.
func NewLSA(key LSAKey, options Options, seq int32, age uint16, body []byte) LSA {
	h := LSAHeader{LSAKey: key, Age: age, Options: options, Seq: seq, Length: uint16(lsaHeaderLen + len(body))}
	lsa := LSA{h, body}
	lsa.Checksum = fletcher(lsa.Append(nil))
	return lsa
}

// Append appends the encoded LSA to b.
func (l LSA) Append(b []byte) []byte { return append(l.LSAHeader.append(b), l.Body...) }

// ChecksumOK verifies the LS checksum (section 12.1.7).
func (l LSA) ChecksumOK() bool { return l.Checksum != 0 && fletcher(l.Append(nil)) == l.Checksum }

// sameContents reports whether two instances have the same contents (section 13.2: everything
// except age, sequence number and checksum).
func (l LSA) sameContents(o LSA) bool {
	return l.Options == o.Options && (l.Age >= MaxAge) == (o.Age >= MaxAge) && slices.Equal(l.Body, o.Body)
}

// LinkType is the type of a link in a router-LSA (section A.4.2).
type LinkType uint8

const (
	LinkPointToPoint LinkType = 1 + iota // ID: the neighbour's Router ID; Data: own address or interface index
	LinkTransit                          // ID: the DR's address; Data: own address
	LinkStub                             // ID: the network; Data: its mask
	LinkVirtual                          // ID: the neighbour's Router ID; Data: own address
)

// RouterLink is one link of a router-LSA.
type RouterLink struct {
	Type   LinkType
	ID     ID
	Data   ID
	Metric uint16
}

// RouterFlags are the bits V, E and B of a router-LSA (section A.4.2).
type RouterFlags uint8

const (
	FlagBorder   RouterFlags = 1 << iota // B: an area border router
	FlagExternal                         // E: an AS boundary router
	FlagVirtual                          // V: an endpoint of a full virtual link through this area
)

// RouterLSA is the body of a router-LSA (section A.4.2).
type RouterLSA struct {
	Flags RouterFlags
	Links []RouterLink
}

// Encode returns the encoded body.
func (r RouterLSA) Encode() []byte {
	b := make([]byte, 0, 4+12*len(r.Links))
	b = append(b, byte(r.Flags), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Links)))
	for _, l := range r.Links {
		b = binary.BigEndian.AppendUint32(b, uint32(l.ID))
		b = binary.BigEndian.AppendUint32(b, uint32(l.Data))
		b = append(b, byte(l.Type), 0)
		b = binary.BigEndian.AppendUint16(b, l.Metric)
	}
	return b
}

// routerLinks iterates over the links in a valid router-LSA's body. Metrics of other types of
// service are skipped.
func routerLinks(body []byte, yield func(RouterLink) bool) {
	for b := body[4:]; len(b) > 0; b = b[12+4*int(b[9]):] {
		l := RouterLink{
			Type:   LinkType(b[8]),
			ID:     ID(binary.BigEndian.Uint32(b)),
			Data:   ID(binary.BigEndian.Uint32(b[4:])),
			Metric: binary.BigEndian.Uint16(b[10:]),
		}
		if !yield(l) {
			return
		}
	}
}

// links is routerLinks as an iterator.
func (l LSA) links() func(func(RouterLink) bool) {
	return func(yield func(RouterLink) bool) { routerLinks(l.Body, yield) }
}

// flags returns the bits of a valid router-LSA.
func (l LSA) flags() RouterFlags { return RouterFlags(l.Body[0]) }

// DecodeRouter reads the body of a router-LSA.
func DecodeRouter(body []byte) (RouterLSA, error) {
	if err := checkRouter(body); err != nil {
		return RouterLSA{}, err
	}
	r := RouterLSA{Flags: RouterFlags(body[0])}
	for l := range (LSA{Body: body}).links() {
		r.Links = append(r.Links, l)
	}
	return r, nil
}

func checkRouter(body []byte) error {
	if len(body) < 4 {
		return fmt.Errorf("a router-LSA's body has %d octets, not 4 or more", len(body))
	}
	want, b := int(binary.BigEndian.Uint16(body[2:])), body[4:]
	for i := range want {
		if len(b) < 12 || len(b) < 12+4*int(b[9]) {
			return fmt.Errorf("a router-LSA ends in link %d of %d", i+1, want)
		}
		b = b[12+4*int(b[9]):]
	}
	if len(b) > 0 {
		return fmt.Errorf("a router-LSA has %d octets after its %d links", len(b), want)
	}
	return nil
}

// NetworkLSA is the body of a network-LSA (section A.4.3).
type NetworkLSA struct {
	Mask    ID
	Routers []ID // Router IDs of the attached routers that are fully adjacent to the DR, and the DR
}

// Encode returns the encoded body.
func (n NetworkLSA) Encode() []byte {
	b := make([]byte, 0, 4+4*len(n.Routers))
	b = binary.BigEndian.AppendUint32(b, uint32(n.Mask))
	for _, r := range n.Routers {
		b = binary.BigEndian.AppendUint32(b, uint32(r))
	}
	return b
}

// DecodeNetwork reads the body of a network-LSA.
func DecodeNetwork(body []byte) (NetworkLSA, error) {
	if len(body) < 8 || len(body)%4 != 0 {
		return NetworkLSA{}, fmt.Errorf("a network-LSA's body has %d octets, not a mask and one or more routers",
			len(body))
	}
	n := NetworkLSA{Mask: bodyMask(body)}
	for i := 4; i < len(body); i += 4 {
		n.Routers = append(n.Routers, ID(binary.BigEndian.Uint32(body[i:])))
	}
	return n, nil
}

// bodyMask returns the mask that bodies of types 2 to 5 begin with.
func bodyMask(body []byte) ID { return ID(binary.BigEndian.Uint32(body)) }

// SummaryLSA is the body of a summary-LSA, type 3 or 4 (section A.4.4).
type SummaryLSA struct {
	Mask   ID     // 0 in type 4
	Metric uint32 // 24 bits; LSInfinity: unreachable
}

// Encode returns the encoded body.
func (s SummaryLSA) Encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 8), uint32(s.Mask))
	return binary.BigEndian.AppendUint32(b, s.Metric&LSInfinity)
}

// DecodeSummary reads the body of a summary-LSA. Metrics of other types of service are skipped.
func DecodeSummary(body []byte) (SummaryLSA, error) {
	if len(body) < 8 || len(body)%4 != 0 {
		return SummaryLSA{}, fmt.Errorf("a summary-LSA's body has %d octets, not 8, 12, …", len(body))
	}
	return SummaryLSA{Mask: bodyMask(body), Metric: binary.BigEndian.Uint32(body[4:]) & LSInfinity}, nil
}

// ExternalLSA is the body of an AS-external-LSA (section A.4.5).
type ExternalLSA struct {
	Mask    ID
	Type2   bool   // the bit E: the metric is larger than any path inside the AS
	Metric  uint32 // 24 bits; LSInfinity: unreachable
	Forward ID     // the forwarding address; 0: the router that advertises
	Tag     uint32 // the external route tag, of no meaning to OSPF
}

// Encode returns the encoded body.
func (e ExternalLSA) Encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 16), uint32(e.Mask))
	metric := e.Metric & LSInfinity
	if e.Type2 {
		metric |= 1 << 31
	}
	b = binary.BigEndian.AppendUint32(b, metric)
	b = binary.BigEndian.AppendUint32(b, uint32(e.Forward))
	return binary.BigEndian.AppendUint32(b, e.Tag)
}

// DecodeExternal reads the body of an AS-external-LSA. Metrics of other types of service are
// skipped.
func DecodeExternal(body []byte) (ExternalLSA, error) {
	if len(body) < 16 || (len(body)-4)%12 != 0 {
		return ExternalLSA{}, fmt.Errorf("an AS-external-LSA's body has %d octets, not 16, 28, …", len(body))
	}
	metric := binary.BigEndian.Uint32(body[4:])
	return ExternalLSA{
		Mask:    bodyMask(body),
		Type2:   metric>>31 == 1,
		Metric:  metric & LSInfinity,
		Forward: ID(binary.BigEndian.Uint32(body[8:])),
		Tag:     binary.BigEndian.Uint32(body[12:]),
	}, nil
}

// Validate checks the checksum, the age, and that the body fits the type: the conditions for a
// received LSA to enter a database (section 13 steps 1 and 2).
func (l LSA) Validate() error {
	if !l.ChecksumOK() {
		return fmt.Errorf("LSA %v: the checksum is wrong", l.LSAKey)
	}
	if l.Age > MaxAge {
		return fmt.Errorf("LSA %v: the age %d is above %d", l.LSAKey, l.Age, MaxAge)
	}
	if l.Seq == -0x80000000 {
		return fmt.Errorf("LSA %v: the sequence number 0x80000000 is reserved", l.LSAKey)
	}
	if err := l.checkBody(); err != nil {
		return fmt.Errorf("LSA %v: %w", l.LSAKey, err)
	}
	return nil
}

func (l LSA) checkBody() (err error) {
	switch l.Type {
	case TypeRouter:
		err = checkRouter(l.Body)
		if err == nil && l.ID != l.AdvRouter {
			err = fmt.Errorf("a router-LSA whose Link State ID is not its advertising router")
		}
		return err
	case TypeNetwork:
		_, err = DecodeNetwork(l.Body)
	case TypeSummary, TypeASBRSummary:
		_, err = DecodeSummary(l.Body)
	case TypeExternal:
		_, err = DecodeExternal(l.Body)
	case TypeOpaqueLink, TypeOpaqueArea, TypeOpaqueAS:
		return nil // opaque data is left to those who understand it
	default:
		return fmt.Errorf("LSAs of this type are not known")
	}
	if err == nil && l.Type != TypeASBRSummary {
		if _, ok := prefixOf(l.ID, bodyMask(l.Body)); !ok {
			err = fmt.Errorf("the mask %v has a hole", bodyMask(l.Body))
		}
	}
	return err
}

// Prefix returns the network that an LSA of type 2, 3 or 5 describes.
func (l LSA) Prefix() netip.Prefix {
	p, _ := prefixOf(l.ID, bodyMask(l.Body))
	return p
}
