package packetin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/reassembly"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/openflow"
)

// arp and udp are frames of those protocols, as far as they are looked at.
var (
	arp = append(make([]byte, 12), 0x08, 0x06, 0, 1)
	udp = append(append(make([]byte, 12), 0x08, 0x00), 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
)

// packetIn makes a PACKET_IN: of OpenFlow 1.3 by our codec, of others by hand from their
// specifications.
func packetIn(version uint8, frame []byte) []byte {
	if version == openflow.Version {
		m := openflow.PacketIn{Buffer: openflow.BufferNone, TotalLen: uint16(len(frame)), Match: openflow.NewMatch(openflow.InPort(7)), Data: frame}
		return m.AppendTo(nil)
	}
	body := map[uint8]int{1: 10, 2: 16, 3: 8}[version]
	b := append([]byte{version, byte(openflow.TypePacketIn), 0, 0, 0, 0, 0, 1}, make([]byte, body)...)
	if version == version12 { // a match of one field, 12 bytes, padded to 16
		b = append(b, 0, 1, 0, 12, 0x80, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0)
	}
	b = append(b, frame...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// messages makes what a switch may send, and how many packets of ARP and UDP are in it.
func messages(r *rand.Rand, version uint8, n int) (b []byte, arps, udps uint64) {
	b = []byte{version15, byte(openflow.TypeHello), 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x12}
	for range n {
		switch r.IntN(4) {
		case 0:
			b, arps = append(b, packetIn(version, arp)...), arps+1
		case 1:
			b, udps = append(b, packetIn(version, append(udp[:len(udp):len(udp)], make([]byte, r.IntN(1400))...))...), udps+1
		case 2:
			b = append(b, version, byte(openflow.TypeEchoReply), 0, 8, 0, 0, 0, 0)
		case 3: // a long one of random bytes
			body := make([]byte, r.IntN(5000))
			for i := range body {
				body[i] = byte(r.Uint32())
			}
			b = append(b, version, byte(openflow.TypeMultipartReply), byte((8+len(body))>>8), byte(8+len(body)), 0, 0, 0, 0)
			b = append(b, body...)
		}
	}
	return b, arps, udps
}

// segments cuts a stream, with a SYN before, into IPv4 packets.
func segments(t testing.TB, r *rand.Rand, stream []byte, syn bool) (out [][]byte) {
	ip := layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{127, 0, 0, 1}, DstIP: net.IP{127, 0, 0, 1}}
	seq := r.Uint32()
	write := func(payload []byte, syn bool) {
		tcp := layers.TCP{SrcPort: 40000, DstPort: 6653, Seq: seq, ACK: !syn, SYN: syn, Window: 1000}
		_ = tcp.SetNetworkLayerForChecksum(&ip)
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, &ip, &tcp, gopacket.Payload(payload)); err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Clone(b.Bytes()))
		seq += uint32(len(payload))
	}
	if syn {
		write(nil, true)
		seq++
	}
	for len(stream) > 0 {
		n := min(len(stream), 1+r.IntN(3000))
		write(stream[:n], false)
		stream = stream[n:]
	}
	return out
}

// closed is a tap without a socket.
func closed() *Tap {
	t := &Tap{want: map[netip.AddrPort]bool{netip.MustParseAddrPort("127.0.0.1:6653"): true}}
	t.assembler = reassembly.NewAssembler(reassembly.NewStreamPool(t))
	return t
}

// TestSegments proves that all packets of a stream are counted, in each version, however the stream
// is cut into segments, also where segments come out of order or twice.
func TestSegments(t *testing.T) {
	for version := uint8(1); version <= openflow.Version; version++ {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, uint64(version)))
			stream, arps, udps := messages(r, version, 100)
			all := segments(t, r, stream, true)
			for i := 2; i+1 < len(all); i++ {
				switch r.IntN(8) {
				case 0:
					all[i], all[i+1] = all[i+1], all[i]
				case 1:
					all = append(all[:i+1:i+1], all[i:]...)
				}
			}
			tap := closed()
			for _, s := range all {
				tap.take(s, seenAt(time.Now()))
			}
			c := tap.counts
			if c.Packets[monitor.ARP] != arps || c.Packets[monitor.UDP] != udps || c.Bytes != uint64(len(stream)) || c.Gaps+c.Missing+c.Late+c.Foreign+c.Unread > 0 {
				t.Fatalf("version %d, seed %d: want %d arp, %d udp, %d bytes: %+v", version, seed, arps, udps, len(stream), c)
			}
		}
	}
}

// TestGaps proves that where segments were not seen the stream is taken up again, that each byte of
// it is counted as read or as missing, and that no packet is counted that was not there.
func TestGaps(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		stream, arps, udps := messages(r, openflow.Version, 300)
		all := segments(t, r, stream, true)
		tap, dropped := closed(), uint64(0)
		for i, s := range all {
			if i > 1 && r.IntN(20) == 0 && i < len(all)-2 {
				dropped += uint64(len(s) - 40)
				continue
			}
			tap.take(s, seenAt(time.Now()))
		}
		tap.flush(time.Now().Add(time.Hour))
		c := tap.counts
		if dropped > 0 && (c.Gaps == 0 || c.Missing < dropped) {
			t.Errorf("seed %d: %d bytes were not seen: %+v", seed, dropped, c)
		}
		if sum := c.Bytes + c.Missing; sum > uint64(len(stream)) || sum+70_000 < uint64(len(stream)) { // but for a last message without its end
			t.Errorf("seed %d: %d bytes are known of %d", seed, sum, len(stream))
		}
		if c.Packets[monitor.ARP] > arps || c.Packets[monitor.UDP] > udps || c.Missing > dropped+c.Gaps*8000 {
			t.Errorf("seed %d: of %d arp, %d udp, with %d bytes dropped: %+v", seed, arps, udps, dropped, c)
		}
	}
}

// TestLate proves that a connection that was there before is taken up in the middle of a message,
// and that this is no loss; that one with TLS is told to be none of OpenFlow.
func TestLate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	stream, _, _ := messages(r, openflow.Version, 50)
	rest, arps, udps := messages(r, openflow.Version, 50)
	tap := closed()
	for _, s := range segments(t, r, append(stream[len(stream)-5:], rest...), false) {
		tap.take(s, seenAt(time.Now()))
	}
	if c := tap.counts; c.Late != 1 || c.Missing+c.Gaps+c.Foreign > 0 || c.Packets[monitor.ARP]+c.Packets[monitor.UDP] != arps+udps {
		t.Errorf("want %d packets: %+v", arps+udps, c)
	}
	tap = closed()
	for _, s := range segments(t, r, bytes.Repeat([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, 300), true) {
		tap.take(s, seenAt(time.Now()))
	}
	if c := tap.counts; c.Foreign != 1 || c.Bytes > 0 {
		t.Errorf("TLS: %+v", c)
	}
	if c := tap.counts.Since(tap.counts); c.Foreign != 1 {
		t.Errorf("TLS since before the reading: %+v", c)
	}
	if c := (Counts{}).Since(tap.counts); c.Foreign != 0 {
		t.Errorf("OpenFlow was found after all: %+v", c)
	}
}

// TestTap proves over real connections, by IPv4 and IPv6, that what is sent to the ports is seen
// once and all of it, and what is sent from them, or to others, is not; that for loopback addresses
// only the loopback device is listened to, also where it comes up later.
func TestTap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: packet sockets, and a namespace")
	}
	t.Run("any address", func(t *testing.T) { testTap(t, false) })
	t.Run("loopback", func(t *testing.T) { testTap(t, true) })
}

func testTap(t *testing.T, onLoopback bool) {
	r := rand.New(rand.NewPCG(1, 2))
	stream, arps, udps := messages(r, openflow.Version, 20_000)
	err := inside.Namespace("", func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := setLoopback(true); err != nil {
			return err
		}
		var listeners []net.Listener
		for _, at := range []string{"127.0.0.1:0", "[::1]:0", "127.0.0.1:0"} {
			l, err := net.Listen("tcp", at)
			if err != nil {
				return err
			}
			defer l.Close()
			listeners = append(listeners, l)
		}
		at := func(i int) netip.AddrPort { return netip.MustParseAddrPort(listeners[i].Addr().String()) }
		second, device := netip.AddrPortFrom(netip.Addr{}, at(1).Port()), 0
		if onLoopback {
			second, device = at(1), loopback
			if err := setLoopback(false); err != nil {
				return err
			}
		}
		tap, err := Open("/proc/thread-self/ns/net", at(0), second)
		if err != nil {
			return err
		}
		defer tap.Close()
		if err := setLoopback(true); err != nil {
			return err
		}
		if got, err := tap.device(); err != nil || got != device {
			t.Errorf("it listens to device %d, not %d: %v", got, device, err)
		}
		for i, l := range listeners {
			send, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			receive, err := l.Accept()
			if err != nil {
				return err
			}
			done := make(chan error, 2)
			go func() { _, err := receive.Write(packetIn(openflow.Version, arp)); done <- err }()
			go func() {
				_, err := send.Write(stream)
				done <- errors.Join(err, send.(*net.TCPConn).CloseWrite())
			}()
			if _, err := new(bytes.Buffer).ReadFrom(receive); err != nil {
				return err
			}
			if err := errors.Join(<-done, <-done); err != nil {
				return err
			}
			receive.Close()
			if _, err := new(bytes.Buffer).ReadFrom(send); err != nil {
				return err
			}
			send.Close()
			c, err := tap.Counts()
			times := uint64(min(i+1, 2)) // the third is not listened to
			if err != nil || c.Packets[monitor.ARP] != times*arps || c.Packets[monitor.UDP] != times*udps || c.Bytes != times*uint64(len(stream)) || c.Gaps+c.Late+c.Overflow > 0 {
				t.Errorf("connection %d: want %d arp, %d udp, %d bytes each: %+v, %v", i+1, arps, udps, len(stream), c, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// device is the index of that which the socket is bound to.
func (t *Tap) device() (index int, err error) {
	controlErr := t.conn.Control(func(fd uintptr) {
		var name unix.Sockaddr
		if name, err = unix.Getsockname(int(fd)); err == nil {
			index = name.(*unix.SockaddrLinklayer).Ifindex
		}
	})
	return index, errors.Join(controlErr, err)
}

// FuzzStream proves that nothing that is sent to a controller's port is counted twice or stops the
// count: after a gap, whatever was there before, messages that follow one another are found again.
func FuzzStream(f *testing.F) {
	for version := uint8(1); version <= openflow.Version; version++ {
		f.Add(packetIn(version, udp), uint16(9))
	}
	tail := bytes.Repeat(packetIn(openflow.Version, arp), enough)
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var c Counts
		s := &stream{counts: &c}
		n := min(int(cut), len(b))
		s.put(b[:n], 0)
		s.put(b[n:], 0)
		if c.Bytes+c.Missing > uint64(len(b)) {
			t.Errorf("%d bytes of %d: %+v", c.Bytes+c.Missing, len(b), c)
		}
		before := c.Packets[monitor.ARP]
		s.version = 0 // it may be any after such bytes
		s.put(tail, 1)
		if got := c.Packets[monitor.ARP] - before; got != enough {
			t.Errorf("%d packets after the gap: %+v", got, c)
		}
	})
}
