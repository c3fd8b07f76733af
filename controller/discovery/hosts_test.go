package discovery

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

var (
	macA, macB = openflow.MAC{2, 0, 0, 0, 0, 0xa}, openflow.MAC{2, 0, 0, 0, 0, 0xb}
	ip1        = netip.MustParseAddr("10.0.0.1")
	ip6        = netip.MustParseAddr("fe80::1")
)

func ethernet(src openflow.MAC, etherType uint16, data []byte) []byte {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, src[:]...)
	return append(binary.BigEndian.AppendUint16(b, etherType), data...)
}

func arp(src, sender openflow.MAC, address netip.Addr) []byte {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, sender[:]...)
	b = append(b, address.AsSlice()...)
	return ethernet(src, openflow.EthTypeARP, append(b, make([]byte, 10)...))
}

// nd is a neighbour discovery message with one option.
func nd(src openflow.MAC, kind, hops, option byte, source, target netip.Addr) []byte {
	b := append([]byte{0x60, 0, 0, 0, 0, 32, openflow.IPProtoICMPv6, hops}, source.AsSlice()...)
	b = append(b, ip6.AsSlice()...)
	b = append(append(b, kind, 0, 0, 0, 0, 0, 0, 0), target.AsSlice()...)
	return ethernet(src, openflow.EthTypeIPv6, append(append(b, option, 1), src[:]...))
}

func ipv4(src openflow.MAC, from netip.Addr) []byte {
	b := append([]byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice()...)
	return ethernet(src, openflow.EthTypeIPv4, append(b, 10, 0, 0, 9))
}

// says sends a frame as if it had come in by a port, and waits until it is handled.
func (w *world) says(dpid uint64, port uint32, frames ...[]byte) {
	for _, f := range frames {
		w.tell(dpid, packetIn(port, f))
	}
	time.Sleep(100 * time.Millisecond)
}

// Proves that a host's addresses are those that it says are its own, on the link: not those of
// packets that it forwards, of others' ARP, of messages that a router has forwarded.
func TestAddresses(t *testing.T) {
	global, none := netip.MustParseAddr("2001:db8::1"), netip.IPv6Unspecified()
	for _, c := range []struct {
		what  string
		frame []byte
		want  string
	}{
		{"ARP", arp(macA, macA, ip1), "10.0.0.1"},
		{"ARP probe", arp(macA, macA, netip.IPv4Unspecified()), ""},
		{"ARP for another", arp(macA, macB, ip1), ""},
		{"ARP of a group", arp(macA, macA, netip.MustParseAddr("224.0.0.1")), ""},
		{"IPv4", ipv4(macA, ip1), ""},
		{"solicitation", nd(macA, neighborSolicitation, 255, sourceOption, global, ip6), "2001:db8::1"},
		{"solicitation of an address that is not had yet", nd(macA, neighborSolicitation, 255, 14, none, global), ""},
		{"advertisement", nd(macA, neighborAdvertisement, 255, targetOption, ip6, global), "2001:db8::1"},
		{"forwarded", nd(macA, neighborAdvertisement, 254, targetOption, ip6, global), ""},
		{"redirect", nd(macA, 137, 255, targetOption, ip6, global), ""},
	} {
		p := &controller.Packet{PacketIn: &openflow.PacketIn{Data: c.frame}, Src: macA, EtherType: binary.BigEndian.Uint16(c.frame[12:])}
		if got, ok := address(p); ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %v, %v, want %q", c.what, got, ok, c.want)
		}
		tagged := slices.Concat(c.frame[:12], []byte{0x81, 0, 0, 5}, c.frame[12:])
		p.Data = tagged
		if got, ok := address(p); ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s in a VLAN: %v, %v, want %q", c.what, got, ok, c.want)
		}
	}
}

func (w *world) host(mac openflow.MAC) (place, string) {
	h, ok := w.Host(mac)
	if !ok {
		return place{}, ""
	}
	var b bytes.Buffer
	for _, a := range h.Addresses {
		b.WriteString(a.String() + " ")
	}
	return place{h.Switch, h.Port}, b.String()
}

// Proves that hosts are found at edges, not behind links, move, and go with their port.
func TestHosts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.says(1, 1, arp(macA, macA, ip1))
		w.says(2, 1, arp(macA, macA, ip1)) // on its way
		if at, has := w.host(macA); at != (place{1, 1}) || has != "10.0.0.1 " {
			t.Errorf("at %v with %s", at, has)
		}
		w.says(2, 3, ipv4(macB, ip1))
		if at, has := w.host(macB); at != (place{2, 3}) || has != "" {
			t.Errorf("another with the address of the first: at %v with %s", at, has)
		}
		w.says(2, 2, arp(macA, macA, ip1))
		if h, ok := w.HostOf(ip1); !ok || h.Switch != 2 || h.Port != 2 || len(w.Hosts()) != 2 {
			t.Errorf("it does not move: %+v", h)
		}
		w.disconnect(2)
		if at, _ := w.host(macA); at != (place{2, 2}) {
			t.Error("gone with a connection")
		}
		w.connect(2, 3)
		time.Sleep(time.Second)
		w.tell(2, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: 2, State: openflow.PortStateLinkDown}})
		time.Sleep(time.Second)
		if at, _ := w.host(macA); at != (place{}) {
			t.Error("it is still at a port that is down")
		}
		time.Sleep(hostIdle + time.Minute)
		if len(w.Hosts()) != 0 {
			t.Errorf("silent hosts: %v", w.Hosts())
		}
	})
}

// Proves that what is heard at a port that is still open counts once it is an edge, and not
// when it is a link.
func TestHeardWhileOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.connect(4, 2)
		w.cable(place{4, 1}, place{1, 3})
		time.Sleep(time.Millisecond)
		w.says(4, 2, arp(macA, macA, ip1))
		w.says(4, 1, arp(macB, macB, ip1))
		if w.Kind(4, 2) != Open || len(w.Hosts()) != 0 {
			t.Error("heard at an open port")
		}
		time.Sleep(time.Second)
		w.says(4, 2, nd(macA, neighborAdvertisement, 255, targetOption, ip6, ip6))
		if at, has := w.host(macA); at != (place{4, 2}) || has != "10.0.0.1 fe80::1 " || len(w.Hosts()) != 1 {
			t.Errorf("at %v with %s; %v", at, has, w.Hosts())
		}
	})
}

// Proves that an address that flaps, be it Ethernet or IP, is held where it was for a while.
func TestFlapping(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var changes atomic.Int32
		w.WatchHosts(func(HostChange) { changes.Add(1) })
		for range 100 {
			w.says(1, 1, arp(macA, macA, ip1))
			w.says(2, 2, arp(macA, macA, ip1))
		}
		if changes.Load() > 30 { // of 200 claims in 20 s
			t.Errorf("%d changes of a host that flaps", changes.Load())
		}
		time.Sleep(2 * pinTime)
		w.says(1, 3, arp(macA, macA, ip1))
		if at, _ := w.host(macA); at != (place{1, 3}) {
			t.Errorf("held for ever at %v", at)
		}
		time.Sleep(pinTime)
		changes.Store(0)
		for range 100 {
			w.says(1, 1, arp(macB, macB, ip1))
			w.says(1, 3, arp(macA, macA, ip1))
		}
		if h, _ := w.HostOf(ip1); changes.Load() > 30 || h.MAC == (openflow.MAC{}) {
			t.Errorf("%d changes of an address that two claim", changes.Load())
		}
	})
}

// Proves that one port cannot fill the table, nor all.
func TestHostsAreBounded(t *testing.T) {
	a := newApp(t)
	n := a.node(1)
	for number := range uint32(12) {
		p := &port{node: n, number: number}
		p.kind.Store(int32(Edge))
		for i := range maxPortHosts + 10 {
			x := heard{mac: openflow.MAC{2, byte(number), 0, byte(i >> 16), byte(i >> 8), byte(i)}}
			a.hosts.note(p, x, time.Now())
		}
		if p.hosts.Load() > maxPortHosts {
			t.Fatalf("%d hosts at a port", p.hosts.Load())
		}
	}
	if n := len(a.Hosts()); n != maxHosts {
		t.Errorf("%d hosts", n)
	}
}

// Proves that a packet from a host that is known costs no allocation.
func TestHearingCostsNothing(t *testing.T) {
	a := newApp(t)
	n, sw := a.node(1), &controller.Switch{}
	p := &port{node: n, number: 1}
	p.kind.Store(int32(Edge))
	n.ports[1] = p
	a.bySwitch.Store(sw, n)
	packet := &controller.Packet{PacketIn: &openflow.PacketIn{Data: arp(macA, macA, ip1)}, InPort: 1, Src: macA, EtherType: openflow.EthTypeARP}
	a.hear(sw, packet)
	if got := testing.AllocsPerRun(1000, func() { a.hear(sw, packet) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// BenchmarkHear is the cost of a packet from a host that is known.
func BenchmarkHear(b *testing.B) {
	a := New()
	n, sw := a.node(1), &controller.Switch{}
	p := &port{node: n, number: 1}
	p.kind.Store(int32(Edge))
	n.ports[1] = p
	a.bySwitch.Store(sw, n)
	packet := &controller.Packet{PacketIn: &openflow.PacketIn{Data: ipv4(macA, ip1)}, InPort: 1, Src: macA, EtherType: openflow.EthTypeIPv4}
	for b.Loop() {
		a.hear(sw, packet)
	}
}
