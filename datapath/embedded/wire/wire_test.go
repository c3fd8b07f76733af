//go:build linux

package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/inside"
)

// cable opens both ends of a veth pair in a namespace that ends with the test.
func cable(t *testing.T) (a, b *Device) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	name := fmt.Sprintf("trivet-wire-%d", os.Getpid())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	for _, command := range [][]string{
		{"ip", "netns", "add", name},
		{"ip", "netns", "exec", name, "sh", "-c", "ip link add left type veth peer name right; for d in left right; do echo 1 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; ip link set $d up; done"},
		// Until the kernel has taken note that the other end is up it drops what is sent.
		{"ip", "netns", "exec", name, "timeout", "60", "sh", "-c", "for d in left right; do until [ $(cat /sys/class/net/$d/operstate) = up ]; do sleep 0.01; done; done"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	if err := inside.Namespace("/run/netns/"+name, func() (err error) {
		if a, err = Open("left"); err == nil {
			b, err = Open("right")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// Frames come out of a device as they went into its peer: with their VLAN tags, which the kernel
// takes out on the way, and with what a device was left to do.
func TestSendAndReceive(t *testing.T) {
	a, b := cable(t)
	got := make(chan pipeline.Packet, 16)
	done := make(chan error, 1)
	go func() {
		done <- b.Receive(func(p *pipeline.Packet) {
			kept := *p
			kept.Data = bytes.Clone(p.Data)
			got <- kept
		})
	}()
	head := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	frame := func(rest ...byte) []byte { return append(bytes.Clone(head), append(rest, make([]byte, 60)...)...) }
	plain := frame(0x99, 0x99, 1)
	one := frame(0x81, 0, 0x60, 5, 0x99, 0x99, 2)
	two := frame(0x88, 0xa8, 0, 7, 0x81, 0, 0x60, 5, 0x99, 0x99, 3)
	for _, want := range [][]byte{plain, one, two} {
		if err := a.Send(&pipeline.Sent{Data: want}, &pipeline.Packet{Data: want}); err != nil {
			t.Fatal(err)
		}
		if p := next(t, got); !bytes.Equal(p.Data, want) || p.Segments != 0 {
			t.Errorf("%x comes as %x", want, p.Data)
		}
	}
	// UDP in IPv4 under a tag, whose checksum is to be completed: 4 bytes later than before it had
	// the tag.
	udp := frame(append([]byte{0x81, 0, 0, 5, 0x08, 0, 0x45, 0, 0, 36, 0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2},
		0, 1, 0, 2, 0, 16, 0, 0)...)
	in := &pipeline.Packet{Data: udp[:len(udp)-4], Offload: pipeline.Offload{Partial: true, ChecksumStart: 34, ChecksumOffset: 6}}
	if err := a.Send(&pipeline.Sent{Data: udp, Grown: 4}, in); err != nil {
		t.Fatal(err)
	}
	if p := next(t, got); !bytes.Equal(p.Data, udp) || !p.Offload.Partial || p.Offload.ChecksumStart != 38 || p.Offload.ChecksumOffset != 6 {
		t.Errorf("%x comes as %x with %+v", udp, p.Data, p.Offload)
	}
	b.Close()
	if err := <-done; err != nil {
		t.Errorf("the end of a device that is closed: %v", err)
	}
	a.Close()
}

func next(t *testing.T, got <-chan pipeline.Packet) pipeline.Packet {
	t.Helper()
	select {
	case p := <-got:
		return p
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

// A packet that is to be segmented counts as its segments, each with its headers.
func TestSegmentsCount(t *testing.T) {
	header := []byte{1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0} // partial, TCP over IPv4, headers of 66 bytes, segments of 1448
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the header above is little endian")
	}
	frame := make([]byte, 66+3*1448+10)
	frame[34+12] = 8 << 4 // a TCP header of 32 bytes
	p := packet(header, frame, 0)
	if p.Segments != 4 || p.WireBytes != 3*1448+10+4*66 {
		t.Errorf("%d segments of together %d bytes", p.Segments, p.WireBytes)
	}
}

// What is split is what a device would have made of it: segments whose payloads are the frame's, in
// order, by their sequence numbers; with the lengths, flags and numbers of their own; and whose
// checksums are right once they have been completed. What is no TCP is left alone.
func TestSplit(t *testing.T) {
	payload := make([]byte, 2500)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	tcp := []byte{0, 80, 1, 2, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9, 0x60, tcpFIN | tcpPSH | tcpCWR | 0x10, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1}
	ethernet := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	v4 := []byte{0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	v6 := append([]byte{0x60, 0, 0, 0, 0, 0, 6, 64}, bytes.Repeat([]byte{0xfd, 0, 1, 7}, 8)...)
	for name, c := range map[string]struct {
		kinds, ip []byte
		segment   uint8
		addresses int
	}{
		"v4":        {[]byte{8, 0}, v4, 1, 12},
		"v4, a tag": {[]byte{0x81, 0, 0, 9, 8, 0}, v4, 1 | 0x80, 12},
		"v6":        {[]byte{0x86, 0xdd}, v6, 4, 8},
	} {
		frame := bytes.Join([][]byte{ethernet, c.kinds, c.ip, tcp, payload}, nil)
		ip := len(ethernet) + len(c.kinds)
		start := ip + len(c.ip)
		pseudo := func(length int) uint16 {
			return sum(append(bytes.Clone(c.ip[c.addresses:]), 0, 6, byte(length>>8), byte(length)))
		}
		binary.BigEndian.PutUint16(frame[start+16:], pseudo(len(frame)-start))
		o := pipeline.Offload{Partial: true, ChecksumStart: uint16(start), ChecksumOffset: 16, Segment: c.segment, SegmentSize: 1000}
		parts := split(frame, o)
		if len(parts) != 3 {
			t.Fatalf("%s: %d segments", name, len(parts))
		}
		var all []byte
		for i, s := range parts {
			part := s[start+len(tcp):]
			if seq := binary.BigEndian.Uint32(s[start+4:]); seq != 0xfffffff0+uint32(len(all)) {
				t.Errorf("%s, %d: sequence number %#x", name, i, seq)
			}
			all = append(all, part...)
			if flags := s[start+13]; flags&(tcpFIN|tcpPSH) != 0 != (i == 2) || flags&tcpCWR != 0 != (i == 0) || flags&0x10 == 0 {
				t.Errorf("%s, %d: flags %#x", name, i, flags)
			}
			if got := binary.BigEndian.Uint16(s[start+16:]); got%0xffff != pseudo(len(s)-start)%0xffff {
				t.Errorf("%s, %d: the partial checksum is %#x, not %#x", name, i, got, pseudo(len(s)-start))
			}
			length := binary.BigEndian.Uint16(s[ip+4:]) + 40
			if c.ip[0] == 0x45 {
				length = binary.BigEndian.Uint16(s[ip+2:])
				if sum(s[ip:start]) != 0xffff || binary.BigEndian.Uint16(s[ip+4:]) != 0xffff+uint16(i) {
					t.Errorf("%s, %d: checksum or identification: % x", name, i, s[ip:start])
				}
			}
			if int(length) != len(s)-ip {
				t.Errorf("%s, %d: %d bytes, said to be %d", name, i, len(s)-ip, length)
			}
		}
		if !bytes.Equal(all, payload) {
			t.Errorf("%s: the payload is another one", name)
		}
		o.Segment = 3 // UDP
		if split(frame, o) != nil || split(frame[:start+10], o) != nil {
			t.Errorf("%s: UDP, or a piece, is split", name)
		}
	}
}

// sum is the Internet's checksum (RFC 1071) of an even number of bytes, not complemented.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	s = s&0xffff + s>>16
	return uint16(s&0xffff + s>>16)
}
