package ospf

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	engine "trivet.dev/trivet/routing/ospf"
)

// The IP header of OSPF packets (RFC 2328, section A.1): precedence internetwork control, and TTL 1
// except on virtual links.
const (
	ipHeaderLen = 20
	precedence  = 0xc0
)

// The IP header's flags and fragment offset (RFC 791, section 3.1).
const (
	moreFragments = 0x2000
	offsetMask    = 0x1fff
)

// packet is an OSPF packet, or a fragment of one, with its IPv4 header.
type packet struct {
	at   place // port 0: by the routing table
	data []byte
}

// wrap adds an IPv4 header to an OSPF packet, and fragments it if it exceeds the MTU.
func wrap(src, dst netip.Addr, ttl uint8, id uint16, payload []byte, mtu int) (out [][]byte) {
	room := max(mtu-ipHeaderLen, 8)
	for offset := 0; ; {
		part, field := payload[offset:], uint16(offset/8)
		if len(part) > room {
			part, field = part[:room&^7], field|moreFragments
		}
		b := make([]byte, ipHeaderLen, ipHeaderLen+len(part))
		b[0], b[1], b[8], b[9] = 0x45, precedence, ttl, engine.Protocol
		binary.BigEndian.PutUint16(b[2:], uint16(ipHeaderLen+len(part)))
		binary.BigEndian.PutUint16(b[4:], id)
		binary.BigEndian.PutUint16(b[6:], field)
		from, to := src.As4(), dst.As4()
		copy(b[12:], from[:])
		copy(b[16:], to[:])
		binary.BigEndian.PutUint16(b[10:], ^checksum.Checksum(b, 0))
		out = append(out, append(b, part...))
		if offset += len(part); offset >= len(payload) {
			return out
		}
	}
}

// ipHeader holds the fields used of a received packet's IPv4 header.
type ipHeader struct {
	src, dst netip.Addr
	id       uint16
	offset   int // of a fragment, in octets
	more     bool
	payload  []byte
}

var errNotOSPF = errors.New("it is not an OSPF packet")

// unwrap removes the IPv4 header.
func unwrap(b []byte) (h ipHeader, err error) {
	if len(b) < ipHeaderLen || b[0]>>4 != 4 || b[9] != engine.Protocol {
		return h, errNotOSPF
	}
	head, all := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < ipHeaderLen || head > all || all > len(b) {
		return h, errNotOSPF
	}
	field := binary.BigEndian.Uint16(b[6:])
	return ipHeader{
		src: netip.AddrFrom4([4]byte(b[12:16])), dst: netip.AddrFrom4([4]byte(b[16:20])),
		id: binary.BigEndian.Uint16(b[4:]), offset: int(field&offsetMask) * 8, more: field&moreFragments != 0,
		payload: b[head:all],
	}, nil
}

// counters count an interface's packets by their type.
type counters struct {
	sent, received [engine.TypeLinkStateAck + 1]uint64
	refused        uint64
	reason         string // of the last rejected packet
}

func kindOf(payload []byte) engine.PacketType {
	if len(payload) > 1 && payload[1] <= uint8(engine.TypeLinkStateAck) {
		return engine.PacketType(payload[1])
	}
	return 0
}

// receive handles a packet that has arrived on a port.
func (n *network) receive(now time.Time, at place, data []byte) {
	r := n.routers[at.dpid]
	if r == nil || n.domain == nil {
		n.unknown++
		return
	}
	h, err := unwrap(data)
	p := r.portFor(at.port, h.src)
	if p == nil {
		n.unknown++
		return
	}
	n.captured.add(now, place{at.dpid, at.port}, data)
	payload := h.payload
	if err == nil && (h.more || h.offset > 0) {
		if payload, err = n.fragments.add(now, fragmentKey{at, h.src, h.dst, h.id}, h); err == nil && payload == nil {
			return // more fragments are to come
		}
	}
	if err == nil {
		p.counts.received[kindOf(payload)]++
		n.blame("a packet from " + h.src.String() + " to " + p.Name + " of " + r.Name)
		err = n.domain.Receive(now, p.engine, h.src, h.dst, payload)
	}
	if err != nil {
		p.counts.refused++
		p.counts.reason = err.Error()
	}
}

// portFor returns the interface at a port for packets from an address; nil: none.
func (r *router) portFor(number uint32, src netip.Addr) (found *port) {
	for _, p := range r.ports {
		if p.Port != number || !p.speaks() {
			continue
		}
		if found == nil || p.Settings.Address.Contains(src) {
			found = p
		}
	}
	return found
}

// dress makes an IP packet, or fragments, of the engine's output; none: the router has no address.
func (n *network) dress(now time.Time, d engine.Datagram) (out []packet) {
	r := n.byID[d.Interface.Router().ID()]
	if r == nil { // it is being removed
		return nil
	}
	at := place{r.DPID, d.Interface.Index()}
	if !d.Src.IsValid() {
		d.Src = r.address()
	}
	if !d.Src.IsValid() {
		return nil
	}
	for _, list := range [][]*port{r.ports, r.virtual} {
		for _, p := range list {
			if p.engine == d.Interface {
				p.counts.sent[kindOf(d.Payload)]++
			}
		}
	}
	n.captured.id++
	for _, data := range wrap(d.Src, d.Dst, d.TTL, n.captured.id, d.Payload, int(d.Interface.MTU())) {
		n.captured.add(now, at, data)
		out = append(out, packet{at, data})
	}
	return out
}

// address returns an address of the router.
func (r *router) address() netip.Addr {
	for _, p := range r.ports {
		if p.up() && p.Settings.Address.IsValid() {
			return p.Settings.Address.Addr()
		}
	}
	return netip.Addr{}
}

// maxCaptured is how many packets are kept for captures.
const maxCaptured = 2048

// capture keeps the last packets.
type capture struct {
	id   uint16 // of the IP header
	next int
	list []captured
}

type captured struct {
	at   time.Time
	port place
	data []byte
}

func (c *capture) add(now time.Time, port place, data []byte) {
	if len(c.list) < maxCaptured {
		c.list = append(c.list, captured{now, port, data})
		return
	}
	c.list[c.next] = captured{now, port, data}
	c.next = (c.next + 1) % maxCaptured
}

// write writes packets of a router (0: of all) as a pcap file of IP packets (LINKTYPE_RAW).
func write(w io.Writer, list []captured) error {
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b23c4d) // times in ns
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, 65535)
	b = binary.LittleEndian.AppendUint32(b, 101)
	for _, c := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(c.at.Unix()))
		b = binary.LittleEndian.AppendUint32(b, uint32(c.at.Nanosecond()))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c.data)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c.data)))
		b = append(b, c.data...)
	}
	_, err := w.Write(b)
	return err
}

// of returns the packets of a router, or of all if all is true, the oldest first.
func (c *capture) of(dpid uint64, all bool) (out []captured) {
	for i := range c.list {
		if x := c.list[(c.next+i)%len(c.list)]; all || x.port.dpid == dpid {
			out = append(out, x)
		}
	}
	return out
}
