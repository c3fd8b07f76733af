package call

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// echoes sends ICMP echo requests of one family and hears all that comes back, also errors about
// what others have sent.
type echoes struct {
	v6   bool
	conn *net.IPConn // nil: the node does not have the family
	id   uint16

	mu      sync.Mutex
	next    uint16
	waiting map[uint16]chan<- Outcome
	hops    map[uint16]func(netip.Addr) // of requests that are to reach a router only
	errors  map[about]sent
}

// about is a packet about which an error came back, and sent the error.
type about struct {
	to    netip.Addr
	proto byte
}

type sent struct {
	from netip.Addr
	says string
}

func openEchoes(v6 bool) *echoes {
	e := &echoes{v6: v6, id: uint16(rand.Uint32()), waiting: map[uint16]chan<- Outcome{},
		hops: map[uint16]func(netip.Addr){}, errors: map[about]sent{}}
	if e.conn = openICMP(v6); e.conn != nil {
		go e.hear()
	}
	return e
}

func openICMP(v6 bool) *net.IPConn {
	network, at := "ip4:icmp", "0.0.0.0"
	if v6 {
		network, at = "ip6:ipv6-icmp", "::"
	}
	conn, err := net.ListenPacket(network, at)
	if err != nil {
		return nil
	}
	return conn.(*net.IPConn)
}

// request returns an echo request (RFC 792; RFC 4443, section 4.1) and its number.
func (e *echoes) request() (msg []byte, seq uint16) {
	e.mu.Lock()
	e.next++
	seq = e.next
	e.mu.Unlock()
	msg = append(make([]byte, 8), pattern(48)...)
	if msg[0] = 8; e.v6 {
		msg[0] = 128
	}
	binary.BigEndian.PutUint16(msg[4:], e.id)
	binary.BigEndian.PutUint16(msg[6:], seq)
	if !e.v6 { // of IPv6 the kernel computes it
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	return msg, seq
}

// checksum is that of RFC 1071, of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// call sends echo requests until one is answered.
func (e *echoes) call(ctx context.Context, c Call) *Outcome {
	if e.conn == nil {
		return &Outcome{Why: "it cannot send ICMP of this family"}
	}
	answer := make(chan Outcome, c.Sends+1)
	var seqs []uint16
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, seq := range seqs {
			delete(e.waiting, seq)
		}
	}()
	o := again(ctx, c, answer, func() error {
		msg, seq := e.request()
		seqs = append(seqs, seq)
		e.mu.Lock()
		e.waiting[seq] = answer
		e.mu.Unlock()
		_, err := e.conn.WriteTo(msg, &net.IPAddr{IP: c.To.AsSlice()})
		return err
	})
	return &o
}

// hear reads what comes back.
func (e *echoes) hear() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := e.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if at, ok := netip.AddrFromSlice(from.(*net.IPAddr).IP); ok {
			e.heard(buf[:n], at.Unmap())
		}
	}
}

func (e *echoes) heard(b []byte, from netip.Addr) {
	if len(b) < 8 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if reply := map[bool]byte{false: 0, true: 129}[e.v6]; b[0] == reply {
		if answer := e.waiting[binary.BigEndian.Uint16(b[6:])]; answer != nil &&
			binary.BigEndian.Uint16(b[4:]) == e.id {
			delete(e.waiting, binary.BigEndian.Uint16(b[6:]))
			answer <- Outcome{OK: true}
		}
		return
	}
	says := errorText(e.v6, b[0], b[1])
	to, proto, rest, ok := quoted(e.v6, b[8:])
	if says == "" || !ok {
		return
	}
	if len(rest) >= 8 && proto == 1 && binary.BigEndian.Uint16(rest[4:]) == e.id {
		if hop := e.hops[binary.BigEndian.Uint16(rest[6:])]; hop != nil {
			hop(from)
			return
		}
	}
	if len(e.errors) < 10_000 {
		e.errors[about{to, proto}] = sent{from, says}
	}
}

// quoted reads the packet that an error is about: its destination, protocol (of ICMPv6 that of
// ICMP) and what follows the header.
func quoted(v6 bool, b []byte) (to netip.Addr, proto byte, rest []byte, ok bool) {
	if v6 {
		if len(b) < 40 {
			return to, 0, nil, false
		}
		if proto = b[6]; proto == 58 {
			proto = 1
		}
		return netip.AddrFrom16([16]byte(b[24:40])), proto, b[40:], true
	}
	if len(b) < 20 || len(b) < int(b[0]&15)*4 {
		return to, 0, nil, false
	}
	return netip.AddrFrom4([4]byte(b[16:20])), b[9], b[int(b[0]&15)*4:], true
}

// errorText is what an error says (RFC 792, RFC 1812, RFC 4443); empty if it is none.
func errorText(v6 bool, kind, code byte) string {
	unreachable, tooBig, exceeded := byte(3), byte(255), byte(11)
	texts := map[byte]string{0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable",
		3: "port unreachable",
		4: "packet too big", 6: "network unknown", 9: "prohibited", 10: "prohibited", 13: "prohibited"}
	if v6 {
		unreachable, tooBig, exceeded = 1, 2, 3
		texts = map[byte]string{0: "no route", 1: "prohibited", 3: "address unreachable", 4: "port unreachable",
			5: "prohibited", 6: "rejected"}
	}
	switch kind {
	case unreachable:
		if text := texts[code]; text != "" {
			return text
		}
		return "unreachable"
	case tooBig:
		return "packet too big"
	case exceeded:
		return "hop limit exceeded: a loop?"
	}
	return ""
}

// forget drops errors about an address.
func (e *echoes) forget(to netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, proto := range []byte{1, 6, 17} {
		delete(e.errors, about{to, proto})
	}
}

func (e *echoes) errorFor(to netip.Addr, proto byte) (sent, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.errors[about{to, proto}]
	return s, ok
}

// trace asks the routers on the way for a sign: requests that live for so many hops only.
func (e *echoes) trace(c Call) (hops []netip.Addr) {
	conn := openICMP(e.v6)
	if conn == nil || e.conn == nil {
		return nil
	}
	defer conn.Close()
	found := make([]netip.Addr, c.Trace)
	for ttl := 1; ttl <= c.Trace; ttl++ {
		if e.v6 {
			_ = ipv6.NewPacketConn(conn).SetHopLimit(ttl)
		} else {
			_ = ipv4.NewPacketConn(conn).SetTTL(ttl)
		}
		msg, seq := e.request()
		e.mu.Lock()
		e.hops[seq] = func(from netip.Addr) { found[ttl-1] = from }
		e.mu.Unlock()
		_, _ = conn.WriteTo(msg, &net.IPAddr{IP: c.To.AsSlice()})
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.hops, seq)
		}()
	}
	time.Sleep(500*time.Millisecond + c.Longer)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range found {
		if at.IsValid() && (len(hops) == 0 || hops[len(hops)-1] != at) {
			hops = append(hops, at)
		}
	}
	return hops
}
