package verify

import (
	"context"
	"fmt"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/topology"
)

// What a machine notes is in the time of its own clock, until it is put into the head's.

// ahead is how far the clock at a node is ahead of the head's, in nanoseconds, as far as that is
// known.
func (v *verifier) ahead(node string) int64 {
	c, _ := v.sites.ClocksApart(topology.Head, v.siteOf(node))
	return int64(c.Offset*1e6) + v.clocks[node].ahead
}

// apart says how far off a time may be, in seconds, that is from the clock at one end of a link to
// that at its other end, if that is known.
func (v *verifier) apart(h hop) (within float64, known bool) {
	near, far := v.near(h), v.far(h)
	c, known := v.sites.ClocksApart(v.siteOf(near), v.siteOf(far))
	return c.Within/1e3 + v.clocks[near].within + v.clocks[far].within, known
}

// clockAt is whose clock a node goes by: the machine's, or that of a guest itself.
func (v *verifier) clockAt(node string) string {
	if v.clocks[node] != (clock{}) {
		return node
	}
	return v.siteOf(node)
}

// clocksTell says why the clocks at both ends of a link cannot tell a delay; "": they can.
func (v *verifier) clocksTell(h hop, off float64) string {
	within, known := v.apart(h)
	near, far := v.clockAt(v.near(h)), v.clockAt(v.far(h))
	switch {
	case !known:
		return fmt.Sprintf("how far the clocks of %s and %s are apart is not known", near, far)
	case within > off:
		return fmt.Sprintf("how far the clocks of %s and %s are apart is known to ± %.2g ms only", near, far, 1e3*within)
	}
	return ""
}

// headTime puts what a tap at a node noted into the head's time.
func (v *verifier) headTime(node string, t *packets.Tapped) {
	ahead := v.ahead(node)
	if t == nil || ahead == 0 {
		return
	}
	for _, s := range t.Sights {
		for i := range s.At {
			s.At[i] -= ahead
		}
		for i := range s.Slots {
			s.Slots[i].First -= ahead
			s.Slots[i].Last -= ahead
		}
	}
}

// measure sends a stream and receives it; all times are the head's.
func (v *verifier) measure(ctx context.Context, from, to string, s packets.Send, r packets.Receive, quiet time.Duration) (*packets.Sent, *packets.Received, error) {
	sent, got, err := v.sends.Measure(ctx, from, to, s, r, quiet)
	sender, receiver := v.ahead(from), v.ahead(to)
	if sent != nil {
		sent.Began -= sender
	}
	if got != nil {
		v.headTime(to, got.Tapped)
		if got.Record != nil {
			for n, at := range got.Record.Sent {
				if at != 0 {
					got.Record.Sent[n], got.Record.Delay[n] = at-sender, got.Record.Delay[n]+sender-receiver
				}
			}
		}
	}
	return sent, got, err
}
