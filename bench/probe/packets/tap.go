package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Tap asks to note the packets of streams as they come in at the devices of a namespace: before
// anything there has forwarded, queued or dropped them. It takes nothing away, and ends when it is
// told to.
type Tap struct {
	First uint16 `json:"first"` // the streams that are noted: First to First+Count-1
	Count uint16 `json:"count"`
}

// Tapped is what came of it.
type Tapped struct {
	Sights  []Sight `json:"sights"`
	Dropped int     `json:"dropped"` // packets that the tap itself could not take
}

// Sight is one stream at one device.
type Sight struct {
	Device  string   `json:"device"`
	Stream  uint16   `json:"stream"`
	Numbers []uint64 `json:"numbers"` // of packets, in the order they came, each once
	At      []int64  `json:"at"`      // when, nanoseconds since 1970
	Largest int      `json:"largest"` // frame, in bytes of layer 2
}

// tap notes what one socket sees at all devices.
type tap struct {
	Tap
	fd     int
	sights map[sightKey]*Sight
	seen   map[sightKey]map[uint64]bool
}

type sightKey struct {
	device int
	stream uint16
}

// open opens the socket in the namespace of the calling thread.
func (t Tap) open() (*tap, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0: nothing comes before the filter is there
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	look := unix.NsecToTimeval(looks.Nanoseconds())
	for _, err := range []error{
		attach(fd),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketRoom),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &look),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL)}),
	} {
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("a packet socket to listen by: %w", err)
		}
	}
	return &tap{t, fd, map[sightKey]*Sight{}, map[sightKey]map[uint64]bool{}}, nil
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Where the payload of a frame begins that carries UDP over IPv4 without options, or over IPv6.
const (
	payload4 = 14 + 20 + 8
	payload6 = 14 + 40 + 8
)

// attach makes the kernel pass packets that begin as those of a stream.
func attach(fd int) error {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 14, Size: 1}, // version and length of the header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x45, SkipTrue: 6},
		bpf.LoadAbsolute{Off: payload4, Size: 2},
		bpf.Jump{Skip: 1},
		bpf.LoadAbsolute{Off: payload6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: mark, SkipTrue: 2},
		bpf.RetConstant{Val: 1 << 18}, // all of it: the socket knows a frame's length only by what it is given
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// run notes packets until stop. A packet is stamped by the kernel when it comes in at a device;
// whoever forwards it in the kernel clears the stamp, so that it has one of its own at the next.
func (t *tap) run(stop *atomic.Bool) (*Tapped, error) {
	defer unix.Close(t.fd)
	m := newMessages(maxReceive, payload6+HeaderLen, 128)
	from := make([]unix.RawSockaddrLinklayer, maxReceive)
	for {
		for i := range from {
			m.headers[i].Name, m.headers[i].Namelen = (*byte)(unsafe.Pointer(&from[i])), uint32(unsafe.Sizeof(from[i]))
		}
		last := stop.Load() // what has come before is read yet
		n, err := m.receive(t.fd)
		if err != nil && !errors.Is(err, unix.ENETDOWN) { // a device of many
			return nil, fmt.Errorf("listen: %w", err)
		}
		for i := range n {
			at := m.ancillary(i).received
			if at == 0 {
				at = wall()
			}
			t.take(m.payload(i), m.size(i), int(from[i].Ifindex), at)
		}
		if last && n == 0 {
			return t.end()
		}
	}
}

func (t *tap) take(b []byte, length, device int, at int64) {
	start := payload4
	if len(b) > 14 && binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IPV6 {
		start = payload6
	}
	if len(b) < start {
		return
	}
	h, ok := parseHeader(b[start:])
	if !ok || h.stream-t.First >= t.Tap.Count || h.number == greeting {
		return
	}
	key := sightKey{device, h.stream}
	s := t.sights[key]
	if s == nil {
		s = &Sight{Stream: h.stream}
		t.sights[key], t.seen[key] = s, map[uint64]bool{}
	}
	s.Largest = max(s.Largest, length)
	if t.seen[key][h.number] {
		return
	}
	t.seen[key][h.number] = true
	s.Numbers, s.At = append(s.Numbers, h.number), append(s.At, at)
}

func (t *tap) end() (*Tapped, error) {
	out := &Tapped{Sights: []Sight{}}
	for key, s := range t.sights {
		link, err := netlink.LinkByIndex(key.device)
		if err != nil {
			continue // the device has gone
		}
		s.Device = link.Attrs().Name
		out.Sights = append(out.Sights, *s)
	}
	if stats, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		out.Dropped = int(stats.Drops)
	}
	return out, nil
}
