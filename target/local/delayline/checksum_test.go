package delayline

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"trivet.dev/trivet/topology"
)

// TestPlain proves that a plain end gets UDP packets with complete checksums, and that other ends
// do not (which is why there are plain ends).
func TestPlain(t *testing.T) {
	for _, plain := range []bool{false, true} {
		w := newWire(t, topology.Impairment{}, Options{Plain: [2]bool{false, plain}})
		c := w.echo(t, w.b.ip4)
		fastest(t, c, 64)
		var frame []byte
		w.b.within(func() { frame = firstUDP(t, func() { _, _ = c.Write(make([]byte, 101)) }) })
		if len(frame) != 14+20+8+101 {
			t.Fatalf("no packet was seen: %d bytes", len(frame))
		}
		if got := udpChecksumOK(frame[14:]); got != plain {
			t.Errorf("plain %t: checksum complete: %t", plain, got)
		}
	}
}

// firstUDP returns the first IPv4 UDP frame that reaches the test device in this thread's namespace
// after send is called.
func firstUDP(t *testing.T, send func()) []byte {
	link, err := netlink.LinkByName(testDevice)
	if err != nil {
		t.Error(err)
		return nil
	}
	const ipv4 = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, ipv4)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(int64(reply))
	for _, err := range []error{
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ipv4, Ifindex: link.Attrs().Index}),
	} {
		if err != nil {
			t.Error(err)
			return nil
		}
	}
	send()
	for deadline := time.Now().Add(reply); time.Now().Before(deadline); {
		frame := make([]byte, 2000)
		n, from, err := unix.Recvfrom(fd, frame, 0)
		if err != nil {
			t.Error(err)
			return nil
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype == unix.PACKET_HOST && frame[23] == unix.IPPROTO_UDP {
			return frame[:n]
		}
	}
	return nil
}

// udpChecksumOK checks the checksum (RFC 768) of an IPv4 packet without options.
func udpChecksumOK(packet []byte) bool {
	udp := packet[20:]
	sum := uint32(unix.IPPROTO_UDP) + uint32(len(udp))
	add := func(b []byte) {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(packet[12:20]) // the addresses
	add(udp)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum == 0xffff
}
