package segment

import (
	"context"
	"encoding/binary"
	"time"
)

// Calling is the EtherType of calls: one of those set apart for experiments (IEEE 802-2014, clause
// 9.2.3), which no other program answers.
const Calling = 0x88b5

// A Call is a frame that says on which VLAN it was sent, and by whom.
type Call struct {
	Number uint64 `json:"number"` // of the check: others may be calling, too
	From   uint16 `json:"from"`
	VLAN   uint16 `json:"vlan"` // or Untagged
	Size   uint16 `json:"size"` // of the packet, without the frame's header
}

// Heard is a call that has arrived, with the VLAN by whose tag it came: a port of a switch may have
// taken that off, or made it another.
type Heard struct {
	Call
	As uint16 `json:"as"`
}

// callMark begins the data of calls.
const callMark = "trivet\x00\x01"

const callLength = len(callMark) + 8 + 3*2

// Call sends each call three times, as one may be lost.
func (s *Segment) Call(ctx context.Context, calls []Call) error {
	for range 3 {
		for _, c := range calls {
			data := make([]byte, max(callLength, int(c.Size)))
			c.put(data)
			if err := s.Send(broadcast, c.VLAN, Calling, data); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(arpPace):
			}
		}
	}
	return nil
}

// Hear returns the calls of a check that arrive until the context ends, each once.
func (s *Segment) Hear(ctx context.Context, number uint64) (out []Heard, err error) {
	seen := map[Heard]bool{}
	err = s.hear(ctx, func(f frame) {
		c, ok := called(f)
		if h := (Heard{c, f.vlan}); ok && c.Number == number && !seen[h] && len(out) < mostHeard {
			seen[h] = true
			out = append(out, h)
		}
	})
	return out, err
}

// mostHeard limits what those who call without end can make us keep.
const mostHeard = 1 << 14

func (c Call) put(data []byte) {
	b := append(data[:0], callMark...)
	b = binary.BigEndian.AppendUint64(b, c.Number)
	for _, n := range []uint16{c.From, c.VLAN, c.Size} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
}

// called reads a call. One that was cut on its way is none.
func called(f frame) (c Call, ok bool) {
	b := f.data
	if f.kind != Calling || len(b) < callLength || string(b[:len(callMark)]) != callMark {
		return c, false
	}
	b = b[len(callMark):]
	c = Call{binary.BigEndian.Uint64(b), binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:]), binary.BigEndian.Uint16(b[12:])}
	return c, int(c.Size) <= len(f.data)
}
