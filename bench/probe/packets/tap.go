package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/segment"
)

// Tap asks to note the packets of streams as they come in at the devices of a namespace: before
// anything there has forwarded, queued or dropped them. It takes nothing away, and ends when it is
// told to.
type Tap struct {
	First uint16 `json:"first"` // the streams that are noted: First to First+Count-1
	Count uint16 `json:"count"`

	// Counts has packets counted by slots of time, which are few where packets are many. Of streams
	// from Thin on, if it is not 0, one packet of OneIn, drawn by its number, stands for all.
	Counts bool   `json:"counts,omitempty"`
	Thin   uint16 `json:"thin,omitempty"`
}

// OneIn is the share of packets that stand for all in a stream that is thinned.
const OneIn = 4

// SlotLength is how long a slot is in which packets are counted.
const SlotLength = 10 * time.Millisecond

// Slot is what came in a slot of time.
type Slot struct {
	First   int64 `json:"first"` // the first and the last packet, nanoseconds since 1970
	Last    int64 `json:"last"`
	Packets int   `json:"packets"`          // each number once
	Bytes   int   `json:"bytes"`            // of layer 2
	Missed  int   `json:"missed,omitempty"` // packets, of any stream, that the tap could not take in this time
}

// AddTo counts packets of so many bytes in sum that come now in the slot that it is, or in a new
// one: slots begin with their first packet.
func AddTo(slots []Slot, at int64, packets, bytes int) []Slot {
	if n := len(slots); n > 0 && at-slots[n-1].First < int64(SlotLength) {
		s := &slots[n-1]
		s.Last, s.Packets, s.Bytes = max(s.Last, at), s.Packets+packets, s.Bytes+bytes
		return slots
	}
	return append(slots, Slot{First: at, Last: at, Packets: packets, Bytes: bytes})
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
	To      string   `json:"to,omitempty"`      // the MAC address that most were sent to; not where packets are counted
	Slots   []Slot   `json:"slots,omitempty"`   // in place of Numbers and At where packets are counted
}

// tap notes what one socket sees at all devices.
type tap struct {
	Tap
	fd     int
	sights map[sightKey]*sights
	missed int // packets, so far
}

// sights are the packets of one stream at one device.
type sights struct {
	packets []sighted
	largest int
	slots   []Slot // in place of packets where they are counted
	counted numbers
}

// numbers are those of packets that were seen, a bit each.
type numbers []uint64

// add says whether a number is new. Those beyond what a stream can have are never.
func (n *numbers) add(number uint64) bool {
	word, bit := number/64, uint64(1)<<(number%64)
	if word >= MaxCount/64 {
		return false
	}
	for uint64(len(*n)) <= word {
		*n = append(*n, 0)
	}
	if (*n)[word]&bit != 0 {
		return false
	}
	(*n)[word] |= bit
	return true
}

type sightKey struct {
	device int
	stream uint16
}

// open opens the socket in the namespace of the calling thread.
func (t Tap) open() (*tap, error) {
	// Protocol 0: nothing comes before the filter is there.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	look := unix.NsecToTimeval(looks.Nanoseconds())
	for _, err := range []error{
		t.attach(fd),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1),
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
	return &tap{Tap: t, fd: fd, sights: map[sightKey]*sights{}}, nil
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Where the payload of a frame begins that carries UDP over IPv4 without options, or over IPv6.
const (
	payload4 = 14 + 20 + 8
	payload6 = 14 + 40 + 8
)

// attach makes the kernel pass what the tap is to see.
func (t Tap) attach(fd int) error {
	if t.Counts {
		return segment.Filter(fd, t.counted())
	}
	return segment.Filter(fd, marked())
}

// marked passes packets that carry the mark of a stream where one has it, whatever else of them is
// damaged.
func marked() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: payload4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: mark, SkipTrue: 2},
		bpf.LoadAbsolute{Off: payload6, Size: 2}, // a packet that is shorter does not pass
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: mark, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 18},
		bpf.RetConstant{Val: 0},
	}
}

// counted passes packets that begin as those of a stream, of one that is thinned every OneIn-th,
// and of each no more than its headers.
func (t Tap) counted() []bpf.Instruction {
	thin := uint32(t.Thin)
	if thin == 0 {
		thin = 1 << 16
	}
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 14},
		bpf.LoadAbsolute{Off: 14, Size: 1}, // version and length of the header
		bpf.LoadConstant{Dst: bpf.RegX, Val: payload4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x45, SkipTrue: 1, SkipFalse: 11},
		bpf.LoadConstant{Dst: bpf.RegX, Val: payload6},
		bpf.LoadIndirect{Off: 0, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: mark, SkipTrue: 8},
		bpf.LoadIndirect{Off: 2, Size: 2}, // the stream
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: thin, SkipTrue: 5},
		// The number; drawn so that no regular loss of packets is always of those, or never.
		bpf.LoadIndirect{Off: 6, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: 0x9e3779b1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 20},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: OneIn - 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: payload6 + HeaderLen},
		bpf.RetConstant{Val: 0},
	}
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
			t.take(m.payload(i), max(m.size(i), a.length), int(from[i].Ifindex), a)
		}
		if last && n == 0 {
			return t.end()
		}
	}
}

func (t *tap) take(b []byte, length, device int, a ancillary) {
	if t.Counts {
		t.count(b, length, device, a)
		return
	}
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

// count counts a packet that is whole, once.
func (t *tap) count(b []byte, length, device int, a ancillary) {
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
		s = &sights{}
		t.sights[key] = s
	}
	if s.largest = max(s.largest, length); !s.counted.add(h.number) {
		return
	}
	each := 1
	if t.Thin > 0 && h.stream >= t.Thin {
		each = OneIn
	}
	s.slots = AddTo(s.slots, a.received, each, each*length)
	s.slots[len(s.slots)-1].Missed += max(0, a.missed-t.missed)
	t.missed = max(t.missed, a.missed)
}

func (t *tap) end() (*Tapped, error) {
	out := &Tapped{Sights: []Sight{}}
	for key, s := range t.sights {
		link, err := netlink.LinkByIndex(key.device)
		if err != nil {
			continue // the device has gone
		}
		one := s.sort()
		one.Slots = s.slots
		one.Device, one.Stream, one.Largest = link.Attrs().Name, key.stream, s.largest
		out.Sights = append(out.Sights, one)
	}
	if stats, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		out.Dropped = int(stats.Drops)
	}
	return out, nil
}
