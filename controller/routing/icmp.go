package routing

import (
	"encoding/binary"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"trivet.dev/trivet/openflow"
)

// icmpError is an error that a router returns to the sender: type and code in IPv4 (RFC 792) and
// IPv6 (RFC 4443).
type icmpError struct {
	type4, code4, type6, code6 uint8

	mtu uint32 // for packets that are too large: the MTU (RFC 1191, section 4; RFC 4443, section 3.2)
}

var (
	timeExceeded       = icmpError{11, 0, 3, 0, 0}
	networkUnreachable = icmpError{3, 0, 1, 0, 0}
	hostUnreachable    = icmpError{3, 1, 1, 3, 0}
)

// Limits on errors per router (RFC 1812, section 4.3.2.8): a rate per second and a burst.
const errorRate, errorBurst = 1000, 200

// sendError answers a packet that came in by an interface with an error. mu must be held.
func (n *node) sendError(f *Interface, p ipPacket, e icmpError) {
	if p.isError() || p.src.IsMulticast() || p.src.IsUnspecified() || p.dst.IsMulticast() || !n.errors.allow(errorRate,
		errorBurst) {
		return
	}
	src := n.sourceOf(f, p.v4)
	if !src.IsValid() || n.net == nil {
		return
	}
	if r := n.net.lookup(n.index, p.src); r != nil {
		n.send(r, waiting{packet: errorPacket(src, p, e, n.mtuOf(r))})
	}
}

// sourceOf returns the source address that a router uses on an interface.
func (n *node) sourceOf(f *Interface, v4 bool) netip.Addr {
	if f != nil {
		if a := f.address(v4); a.IsValid() {
			return a
		}
	}
	for _, p := range n.Loopback {
		if p.Addr().Is4() == v4 {
			return p.Addr()
		}
	}
	for i := range n.Interfaces {
		if a := n.Interfaces[i].address(v4); a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

// errorPacket makes an error packet, with as much of the offending one as is allowed (RFC 1812,
// section 4.3.2.3: 576 bytes in all; RFC 4443, section 2.4: 1280) and fits its route.
func errorPacket(src netip.Addr, p ipPacket, e icmpError, room int) []byte {
	if p.v4 {
		b := append(e.header(e.type4, e.code4), p.data[:min(len(p.data), min(576, room)-28)]...)
		binary.BigEndian.PutUint16(b[2:], ^checksum.Checksum(b, 0))
		return ip4(src, p.src, openflow.IPProtoICMPv4, 64, b)
	}
	b := append(e.header(e.type6, e.code6), p.data[:min(len(p.data), min(1280, room)-48)]...)
	return ip6(src, p.src, openflow.IPProtoICMPv6, 64, b)
}

func (e icmpError) header(kind, code uint8) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, e.mtu)
}

// limiter is a token bucket.
type limiter struct {
	tokens float64
	at     time.Time
}

func (l *limiter) allow(rate, burst float64) bool {
	now := time.Now()
	if l.at.IsZero() {
		l.tokens = burst
	} else {
		l.tokens = min(burst, l.tokens+now.Sub(l.at).Seconds()*rate)
	}
	l.at = now
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}
