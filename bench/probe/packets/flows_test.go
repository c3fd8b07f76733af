package packets

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Frames of flows are what others read as UDP over IPv4, with a right header checksum, and are the
// smallest that Ethernet has.
func TestFrame(t *testing.T) {
	var b [frameLen6]byte
	from := sender{[6]byte{2, 1, 2, 3, 4, 5}, netip.MustParseAddr("10.0.0.77"), 4711}
	frame := putFrame(&b, from, net.HardwareAddr{2, 9, 9, 9, 9, 9}, netip.MustParseAddrPort("10.0.0.2:5000"), header{3, 70_000, 5})
	if len(frame) != 60 {
		t.Errorf("%d bytes", len(frame))
	}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatal(e.Error())
	}
	ethernet, ip, udp := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), p.Layer(layers.LayerTypeIPv4).(*layers.IPv4), p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if ethernet.SrcMAC.String() != "02:01:02:03:04:05" || ethernet.DstMAC.String() != "02:09:09:09:09:09" ||
		ip.SrcIP.String() != "10.0.0.77" || ip.DstIP.String() != "10.0.0.2" || udp.SrcPort != 4711 || udp.DstPort != 5000 {
		t.Errorf("%v", p)
	}
	if h, ok := parseHeader(udp.Payload); !ok || h != (header{3, 70_000, 5}) {
		t.Errorf("the payload says %+v", h)
	}
	for number := uint64(0); number < 1<<16; number += 97 { // it is the identification, and so changes the checksum
		frame := putFrame(&b, sender{address: netip.MustParseAddr("10.255.253.77")}, nil, netip.MustParseAddrPort("10.254.255.2:5000"), header{number: number})
		must(t, ip.DecodeFromBytes(frame[14:], gopacket.NilDecodeFeedback))
		again := gopacket.NewSerializeBuffer()
		must(t, gopacket.SerializeLayers(again, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}, &layers.IPv4{Version: 4, IHL: 5,
			Id: uint16(number), Flags: ip.Flags, TTL: ip.TTL, Protocol: ip.Protocol, SrcIP: ip.SrcIP, DstIP: ip.DstIP}, gopacket.Payload(ip.Payload)))
		if want := binary.BigEndian.Uint16(again.Bytes()[10:]); ip.Checksum != want {
			t.Fatalf("packet %d has the checksum %04x, not %04x", number, ip.Checksum, want)
		}
	}
}

// Over IPv6 they are read as UDP as well, and have the checksum that others reckon, for any stamp.
func TestFrame6(t *testing.T) {
	var b [frameLen6]byte
	from := sender{[6]byte{2, 1, 2, 3, 4, 5}, netip.MustParseAddr("fd00::77"), 4711}
	for stamp := int64(0); stamp < 1<<16; stamp += 97 {
		frame := putFrame(&b, from, net.HardwareAddr{2, 9, 9, 9, 9, 9}, netip.MustParseAddrPort("[fd00::2]:5000"), header{3, 70_000, stamp})
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		ip, isIP := p.NetworkLayer().(*layers.IPv6)
		udp, isUDP := p.TransportLayer().(*layers.UDP)
		if !isIP || !isUDP || ip.SrcIP.String() != "fd00::77" || ip.DstIP.String() != "fd00::2" || ip.HopLimit != 64 || udp.SrcPort != 4711 || udp.DstPort != 5000 {
			t.Fatalf("%v", p)
		}
		if h, ok := parseHeader(udp.Payload); !ok || h != (header{3, 70_000, stamp}) {
			t.Fatalf("the payload says %+v", h)
		}
		got := udp.Checksum
		must(t, udp.SetNetworkLayerForChecksum(ip))
		again := gopacket.NewSerializeBuffer()
		must(t, gopacket.SerializeLayers(again, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}, udp, gopacket.Payload(udp.Payload)))
		if want := binary.BigEndian.Uint16(again.Bytes()[6:]); got != want {
			t.Fatalf("stamp %d has the checksum %04x, not %04x", stamp, got, want)
		}
	}
}

// The plan of flows has each packet once, in order of time: firsts at the rate asked for, the
// others after a time to settle.
func TestFlowsPlan(t *testing.T) {
	f := Flows{Count: 50, Rate: 20, Following: 3}
	at, numbers := f.plan()
	seen := map[int]time.Duration{}
	for i, n := range numbers {
		if i > 0 && at[i] < at[i-1] {
			t.Fatalf("packet %d is before the one that is sent before it", i)
		}
		seen[n] = at[i]
	}
	if len(at) != 200 || len(seen) != 200 {
		t.Fatalf("%d packets with %d numbers; it is 200", len(at), len(seen))
	}
	for flow := range 50 {
		first := time.Duration(flow) * 50 * time.Millisecond
		if next := seen[flow*4+1] - first - settle; seen[flow*4] != first || next < 0 || next >= apart || seen[flow*4+3] <= seen[flow*4+1] {
			t.Errorf("flow %d has its packets at %v, %v … %v", flow, seen[flow*4], seen[flow*4+1], seen[flow*4+3])
		}
	}
}

// New hosts have addresses of the subnet that nobody has, each its own; where there is no room that
// is said.
func TestNewAddresses(t *testing.T) {
	f := Flows{To: netip.MustParseAddrPort("10.1.1.2:1"), New: NewHosts, Count: 11, Taken: []netip.Addr{netip.MustParseAddr("10.1.1.5"), netip.MustParseAddr("10.2.0.1")}}
	own := way{source: netip.MustParsePrefix("10.1.1.1/28"), own: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	got, err := f.senders(own)
	must(t, err)
	seen, hardware := map[netip.Addr]bool{}, map[[6]byte]bool{}
	for _, a := range []string{"10.1.1.0", "10.1.1.1", "10.1.1.2", "10.1.1.5", "10.1.1.15"} {
		seen[netip.MustParseAddr(a)] = true
	}
	for _, s := range got {
		if seen[s.address] || !own.source.Contains(s.address) || hardware[s.hardware] || s.hardware[0] != 2 {
			t.Errorf("%+v is taken, or not of the subnet", s)
		}
		seen[s.address], hardware[s.hardware] = true, true
	}
	f.Count = 12
	if _, err := f.senders(own); err == nil {
		t.Error("12 new hosts were found in a subnet that has room for 11")
	}
	own.source, f.To = netip.MustParsePrefix("fd00:1::1/64"), netip.MustParseAddrPort("[fd00:1::2]:1")
	got, err = f.senders(own)
	must(t, err)
	for _, s := range got {
		if seen[s.address] || !own.source.Contains(s.address) || s.address == f.To.Addr() || s.address == own.source.Addr() {
			t.Errorf("%+v is taken, or not of the subnet", s)
		}
		seen[s.address] = true
	}
}

// How much longer first packets took is reckoned for each flow against the median of its others;
// flows whose first packet was lost are counted.
func TestSetups(t *testing.T) {
	f := Flows{Count: 4, Following: 3}
	r := &Record{Sent: make([]int64, 16), Delay: make([]int64, 16)}
	put := func(flow int, delays ...int64) {
		for i, d := range delays {
			if d > 0 {
				r.Sent[4*flow+i], r.Delay[4*flow+i] = int64(1000*flow+i+1), d
			}
		}
	}
	put(0, 900, 100, 130, 110)
	put(1, 0, 100, 100, 100) // the first was lost
	put(2, 500, 100, 0, 200)
	put(3, 500, 0, 0, 0)
	got, firsts, others, err := f.Setups(r)
	must(t, err)
	if firsts != 1 || others != 4 || len(got) != 2 || !near(got[0].First-got[0].Following, 790e-9) || !near(got[1].First-got[1].Following, 350e-9) || got[1].At != 2001 {
		t.Errorf("%+v, %d firsts and %d others lost", got, firsts, others)
	}
	if _, _, _, err := f.Setups(&Record{Sent: make([]int64, 16), Delay: make([]int64, 16)}); err == nil {
		t.Error("none came, and there is no error")
	}
}

// Over a real wire flows of new ports and of new hosts come, and a packet socket at the far end
// sees as many addresses as there are flows.
func TestFlowsOverWire(t *testing.T) {
	w := newWire(t)
	for _, test := range []struct {
		what string
		to   netip.Addr
	}{{NewPorts, addresses4[1]}, {NewHosts, addresses4[1]}, {NewPorts, addresses6[1]}, {NewHosts, addresses6[1]}} {
		t.Run(test.what+" "+test.to.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			sources := w.sources(t, test.to.Is6())
			f := Flows{To: netip.AddrPortFrom(test.to, 0), Stream: 9, New: test.what, Count: 20, Rate: 100, Following: 2}
			sent, got, err := MeasureFlows(ctx, w.node(0), w.node(1), f, time.Second)
			must(t, err)
			setups, firsts, others, err := f.Setups(got.Record)
			must(t, err)
			if sent.Sent != 60 || got.Received != 60 || firsts != 0 || others != 0 || len(setups) != 20 {
				t.Errorf("%d sent, %d received, %d firsts and %d others lost, %d flows", sent.Sent, got.Received, firsts, others, len(setups))
			}
			for _, s := range setups {
				if s.First <= 0 || s.Following <= 0 {
					t.Errorf("%+v: a packet took no time", s)
				}
			}
			if seen := sources(); len(seen) != 20 {
				t.Errorf("%d flows have %d sources", 20, len(seen))
			}
		})
	}
}

// sources listens at the far end, and returns which senders (MAC, address, port) it saw.
func (w *wire) sources(t *testing.T, v6 bool) func() map[string]bool {
	t.Helper()
	var socket *os.File
	protocol := []byte{0x08, 0x00}
	if v6 {
		protocol = []byte{0x86, 0xdd}
	}
	must(t, w.at(1, func() error {
		device, err := netlink.LinkByName(w.devices[1])
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		socket = os.NewFile(uintptr(fd), "packets")
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(protocol), Ifindex: device.Attrs().Index})
	}))
	return func() map[string]bool {
		defer socket.Close()
		seen, buffer := map[string]bool{}, make([]byte, 2048)
		for {
			n, err := socket.Read(buffer)
			if err != nil { // nothing more is there
				return seen
			}
			p := gopacket.NewPacket(buffer[:n], layers.LayerTypeEthernet, gopacket.Default)
			if udp, ok := p.TransportLayer().(*layers.UDP); ok {
				if h, ok := parseHeader(udp.Payload); ok && h.number != greeting {
					seen[p.LinkLayer().LinkFlow().Src().String()+p.NetworkLayer().NetworkFlow().Src().String()+udp.SrcPort.String()] = true
				}
			}
			_ = socket.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		}
	}
}
