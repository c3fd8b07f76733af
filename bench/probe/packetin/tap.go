//go:build linux

package packetin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/reassembly"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/segment"
)

const (
	roomFor     = 64 << 20        // bytes, of the socket
	longest     = 1 << 18         // bytes of a segment: over loopback they are not cut
	waitForGaps = 2 * time.Second // until what did not come is taken for lost
	mostQueued  = 4096            // pages of 1,900 bytes that wait for a segment of one connection
	loopback    = 1               // index of the loopback device: the first of each namespace
)

// Tap listens to what is sent to controllers, until it is closed.
type Tap struct {
	file *os.File
	conn syscall.RawConn
	want map[netip.AddrPort]bool
	done chan struct{}

	mu        sync.Mutex // of all below
	assembler *reassembly.Assembler
	room      []byte
	tcp       layers.TCP
	flushed   time.Time
	counts    Counts
}

// Open listens for connections to some addresses in the network namespace that a file keeps ("":
// that of the process). An address without an IP stands for all. Where all are loopback addresses,
// what passes other devices is not slowed by it. It needs CAP_NET_RAW and, where there is a file,
// CAP_SYS_ADMIN.
func Open(namespace string, to ...netip.AddrPort) (*Tap, error) {
	t := &Tap{want: map[netip.AddrPort]bool{}, done: make(chan struct{}), room: make([]byte, longest),
		flushed: time.Now()}
	var ports []uint16
	for _, a := range to {
		t.want[a] = true
		ports = append(ports, a.Port())
	}
	device := 0 // all
	if !slices.ContainsFunc(to, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) {
		device = loopback
	}
	if err := inside.Namespace(namespace, func() error { return t.open(filterOf(ports), device) }); err != nil {
		return nil, fmt.Errorf("listen to OpenFlow connections: %w", err)
	}
	t.assembler = reassembly.NewAssembler(reassembly.NewStreamPool(t))
	t.assembler.MaxBufferedPagesPerConnection = mostQueued
	go func() {
		defer close(t.done)
		_ = t.conn.Read(func(fd uintptr) bool { t.drain(int(fd)); return false }) // until it is closed
	}()
	return t, nil
}

func (t *Tap) open(filter []bpf.Instruction, device int) error {
	// Protocol 0: nothing yet.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) // only so are packets seen that this machine sends
	err = errors.Join(
		segment.Filter(fd, filter),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device}),
	)
	if err != nil {
		unix.Close(fd)
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomFor) // without the right to it, less
	t.file = os.NewFile(uintptr(fd), "packet socket")
	t.conn, err = t.file.SyscallConn()
	return err
}

// filterOf lets through what this machine sends to TCP ports: over loopback too that is each packet
// once.
func filterOf(ports []uint16) []bpf.Instruction {
	n := uint8(len(ports))
	byPort := func(load bpf.Instruction, after uint8) (out []bpf.Instruction) {
		out = append(out, load)
		for i, p := range ports {
			out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(p), SkipTrue: n - uint8(i) + after})
		}
		return append(out, bpf.RetConstant{})
	}
	v6 := byPort(bpf.LoadAbsolute{Off: 42, Size: 2}, 0)
	v4 := byPort(bpf.LoadIndirect{Off: 2, Size: 2}, uint8(3+len(v6)))
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 4},
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: uint8(6 + len(v4))},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 1},
		bpf.Jump{Skip: 1},
		bpf.RetConstant{},
		bpf.LoadAbsolute{Off: 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: uint8(len(v4))},
		bpf.LoadMemShift{Off: 0}, // the length of the header
	}
	program = append(program, v4...)
	program = append(program, bpf.LoadAbsolute{Off: 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1}, bpf.RetConstant{})
	return append(append(program, v6...), bpf.RetConstant{Val: longest})
}

// New makes the stream of a connection.
func (t *Tap) New(_, _ gopacket.Flow, _ *layers.TCP, _ reassembly.AssemblerContext) reassembly.Stream {
	return &stream{counts: &t.counts}
}

// drain reads what has come.
func (t *Tap) drain(fd int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := seenAt(time.Now())
	for {
		n, _, err := unix.Recvfrom(fd, t.room, 0)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue // the second is told once; a loopback device that comes up is listened to again
		}
		if err != nil {
			break // there is no more, or a device has gone
		}
		t.take(t.room[:n], now)
	}
	if time.Time(now).Sub(t.flushed) > waitForGaps {
		t.flush(time.Time(now).Add(-waitForGaps))
	}
}

// flush takes what was to come before segments that came until then for lost.
func (t *Tap) flush(until time.Time) {
	t.flushed = time.Now()
	t.assembler.FlushWithOptions(reassembly.FlushOptions{T: until})
}

// seenAt is when a segment was seen.
type seenAt time.Time

// GetCaptureInfo tells gopacket.
func (s seenAt) GetCaptureInfo() gopacket.CaptureInfo {
	return gopacket.CaptureInfo{Timestamp: time.Time(s)}
}

// take takes an IP packet that the filter has let through.
func (t *Tap) take(b []byte, now seenAt) {
	var kind gopacket.EndpointType
	var src, dst, segment []byte
	switch {
	case len(b) >= 40 && b[0]>>4 == 6:
		kind, src, dst, segment = layers.EndpointIPv6, b[8:24], b[24:40], b[40:]
		if n := int(binary.BigEndian.Uint16(b[4:])); n > 0 && n < len(segment) {
			segment = segment[:n] // what is short is padded
		}
	case len(b) >= 20 && b[0]>>4 == 4:
		header, n := 4*int(b[0]&15), int(binary.BigEndian.Uint16(b[2:]))
		if n > 0 && n < len(b) {
			b = b[:n]
		}
		if header < 20 || len(b) < header || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return
		}
		kind, src, dst, segment = layers.EndpointIPv4, b[12:16], b[16:20], b[header:]
	default:
		return
	}
	if t.tcp.DecodeFromBytes(segment, gopacket.NilDecodeFeedback) != nil {
		return
	}
	address, _ := netip.AddrFromSlice(dst)
	port := uint16(t.tcp.DstPort)
	if t.want[netip.AddrPortFrom(address, port)] || t.want[netip.AddrPortFrom(netip.Addr{}, port)] {
		t.assembler.AssembleWithContext(gopacket.NewFlow(kind, src, dst), &t.tcp, now)
	}
}

// Counts returns what was counted so far, all that has been sent until now with it.
func (t *Tap) Counts() (Counts, error) {
	var overflow uint64
	err := t.conn.Control(func(fd uintptr) {
		t.drain(int(fd))
		if s, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			overflow = uint64(s.Drops) // since it was read before
		}
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush(time.Now())
	t.counts.Overflow += overflow
	return t.counts, err
}

// Close ends it.
func (t *Tap) Close() error {
	err := t.file.Close()
	<-t.done
	return err
}
