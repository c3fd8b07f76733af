package ospf

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"time"

	engine "trivet.dev/trivet/routing/ospf"
)

// Of the IP header of OSPF packets (RFC 2328, section A.1): precedence internetwork control, no
// fragments, and TTL 1 but for virtual links.
const (
	ipHeader   = 20
	precedence = 0xc0
)

// packet is an OSPF packet with its IPv4 header.
type packet struct {
	at   place // port 0: wherever routes lead
	data []byte
}

// wrap puts an IPv4 header before an OSPF packet.
func wrap(src, dst netip.Addr, ttl uint8, id uint16, payload []byte) []byte {
	b := make([]byte, ipHeader, ipHeader+len(payload))
	b[0], b[1], b[8], b[9] = 0x45, precedence, ttl, engine.Protocol
	binary.BigEndian.PutUint16(b[2:], uint16(ipHeader+len(payload)))
	binary.BigEndian.PutUint16(b[4:], id)
	from, to := src.As4(), dst.As4()
	copy(b[12:], from[:])
	copy(b[16:], to[:])
	sum := uint32(0)
	for i := 0; i < ipHeader; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
	return append(b, payload...)
}

var errFragment = errors.New("it is a fragment, or no OSPF packet")

// unwrap takes the IPv4 header off. It has been checked by who has received the packet, but for fragments.
func unwrap(b []byte) (src, dst netip.Addr, payload []byte, err error) {
	if len(b) < ipHeader || b[0]>>4 != 4 || b[9] != engine.Protocol || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return src, dst, nil, errFragment
	}
	head, all := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < ipHeader || head > all || all > len(b) {
		return src, dst, nil, errFragment
	}
	src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return src, dst, b[head:all], nil
}

// counters count an interface's packets by their type.
type counters struct {
	sent, received [engine.TypeLinkStateAck + 1]uint64
	refused        uint64
	reason         string // of the last refusal
}

func kindOf(payload []byte) engine.PacketType {
	if len(payload) > 1 && payload[1] <= uint8(engine.TypeLinkStateAck) {
		return engine.PacketType(payload[1])
	}
	return 0
}

// receive takes a packet that has come in by a port.
func (n *network) receive(now time.Time, at place, data []byte) {
	r := n.routers[at.dpid]
	if r == nil || n.domain == nil {
		n.unknown++
		return
	}
	src, dst, payload, err := unwrap(data)
	p := r.portFor(at.port, src)
	if p == nil {
		n.unknown++
		return
	}
	n.captured.add(now, place{at.dpid, at.port}, data)
	if err == nil {
		p.counts.received[kindOf(payload)]++
		n.blame("a packet from " + src.String() + " to " + p.Name + " of " + r.Name)
		err = n.domain.Receive(now, p.engine, src, dst, payload)
	}
	if err != nil {
		p.counts.refused++
		p.counts.reason = err.Error()
	}
}

// portFor returns the interface at a port that a packet from an address is for; nil: none.
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

// dress makes a packet of what the engine wants to be sent; false: the router has no address.
func (n *network) dress(now time.Time, d engine.Datagram) (packet, bool) {
	r := n.byID[d.Interface.Router().ID()]
	if r == nil { // it is being removed
		return packet{}, false
	}
	at := place{r.DPID, d.Interface.Index()}
	if !d.Src.IsValid() {
		d.Src = r.address()
	}
	if !d.Src.IsValid() {
		return packet{}, false
	}
	for _, list := range [][]*port{r.ports, r.virtual} {
		for _, p := range list {
			if p.engine == d.Interface {
				p.counts.sent[kindOf(d.Payload)]++
			}
		}
	}
	n.captured.id++
	out := packet{at, wrap(d.Src, d.Dst, d.TTL, n.captured.id, d.Payload)}
	n.captured.add(now, at, out.data)
	return out, true
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

// maxCaptured is how many packets are kept to be looked at.
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

// write writes those of a router (0: of all) as a pcap file of IP packets (LINKTYPE_RAW).
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

// of returns the packets of a router, of all where all is true, the oldest first.
func (c *capture) of(dpid uint64, all bool) (out []captured) {
	for i := range c.list {
		if x := c.list[(c.next+i)%len(c.list)]; all || x.port.dpid == dpid {
			out = append(out, x)
		}
	}
	return out
}
