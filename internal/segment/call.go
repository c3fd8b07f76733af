package segment

import (
	"context"
	"encoding/binary"
	"time"
)

// Calling is the EtherType of test frames, called calls here: one reserved for experiments (IEEE
// 802-2014, clause 9.2.3), which no other program answers.
const Calling = 0x88b5

// A Call is a test frame that says on which VLAN it was sent, and by whom.
type Call struct {
	Number uint64 `json:"number"` // of the check, as others may be running
	From   uint16 `json:"from"`
	VLAN   uint16 `json:"vlan"` // or Untagged
	Size   uint16 `json:"size"` // of the packet, without the frame's header
}

// Heard is a received call, with the VLAN of its tag on arrival: a switch port may have removed or
// changed the tag.
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

// Hear returns the calls of a check that arrive until ctx ends, each once.
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

// mostHeard limits the memory that a flood of calls can take.
const mostHeard = 1 << 14

func (c Call) put(data []byte) {
	b := append(data[:0], callMark...)
	b = binary.BigEndian.AppendUint64(b, c.Number)
	for _, n := range []uint16{c.From, c.VLAN, c.Size} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
}

// called decodes a call. Truncated ones are ignored.
func called(f frame) (c Call, ok bool) {
	b := f.data
	if f.kind != Calling || len(b) < callLength || string(b[:len(callMark)]) != callMark {
		return c, false
	}
	b = b[len(callMark):]
	c = Call{binary.BigEndian.Uint64(b), binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:]),
		binary.BigEndian.Uint16(b[12:])}
	return c, int(c.Size) <= len(f.data)
}
