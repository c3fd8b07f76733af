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

// Sight is one stream at one device. What a packet carries beyond the header is not looked at.
type Sight struct {
	Device  string   `json:"device"`
	Stream  uint16   `json:"stream"`
	Numbers []uint64 `json:"numbers"`           // of whole packets, in the order they came, each once
	At      []int64  `json:"at"`                // when, nanoseconds since 1970
	Again   []uint64 `json:"again,omitempty"`   // of whole packets that had come before
	Damaged []uint64 `json:"damaged,omitempty"` // of others than were sent, as far as that can be read
	Largest int      `json:"largest"`           // frame, in bytes of layer 2
}

// tap notes what one socket sees at all devices.
type tap struct {
	Tap
	fd     int
	sights map[sightKey]*sights
}

// sights are the packets of one stream at one device.
type sights struct {
	packets []sighted
	largest int
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
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
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
	return &tap{t, fd, map[sightKey]*sights{}}, nil
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Where the payload of a frame begins that carries UDP over IPv4 without options, or over IPv6.
const (
	payload4 = 14 + 20 + 8
	payload6 = 14 + 40 + 8
)

// attach makes the kernel pass packets that carry the mark of a stream where one has it, whatever
// else of them is damaged.
func attach(fd int) error {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: payload4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: mark, SkipTrue: 2},
		bpf.LoadAbsolute{Off: payload6, Size: 2}, // a packet that is shorter does not pass
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: mark, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 18}, // all of it: the socket knows a frame's length only by what it is given
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
			a := m.ancillary(i)
			if a.received == 0 {
				a.received = wall()
			}
			t.take(m.payload(i), m.size(i), int(from[i].Ifindex), a)
		}
		if last && n == 0 {
			return t.end()
		}
	}
}

func (t *tap) take(b []byte, length, device int, a ancillary) {
	p, stream, ok := readFrame(b, a)
	if !ok || stream-t.First >= t.Tap.Count || p.number == greeting {
		return
	}
	key := sightKey{device, stream}
	s := t.sights[key]
	if s == nil {
		s = &sights{}
		t.sights[key] = s
	}
	s.largest = max(s.largest, length)
	s.packets = append(s.packets, p)
}

func (t *tap) end() (*Tapped, error) {
	out := &Tapped{Sights: []Sight{}}
	for key, s := range t.sights {
		link, err := netlink.LinkByIndex(key.device)
		if err != nil {
			continue // the device has gone
		}
		one := s.sort()
		one.Device, one.Stream, one.Largest = link.Attrs().Name, key.stream, s.largest
		out.Sights = append(out.Sights, one)
	}
	if stats, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		out.Dropped = int(stats.Drops)
	}
	return out, nil
}
