package verify

import (
	"context"
	"fmt"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/topology"
)

// A machine records times of its own clock, which are converted to the head's.

// ahead returns how far the clock at a node is ahead of the head's, in nanoseconds, as far as
// known.
func (v *verifier) ahead(node string) int64 {
	if its, ok := v.clocks[node]; ok { // a guest's, which the head has compared with its own
		return its.Ahead
	}
	c, _ := v.sites.ClocksApart(topology.Head, v.siteOf(node))
	return int64(c.Offset * 1e6)
}

// apart returns the maximum error, in seconds, of a time from the clock at one end of a link to
// that at the other end, if known.
func (v *verifier) apart(h hop) (within float64, known bool) {
	near, far := v.near(h), v.far(h)
	c, known := v.sites.ClocksApart(v.siteOf(near), v.siteOf(far))
	return c.Within/1e3 + v.clocks[near].Within + v.clocks[far].Within, known
}

// clockAt returns whose clock a node uses: its machine's, or that of a guest itself.
func (v *verifier) clockAt(node string) string {
	if _, ok := v.clocks[node]; ok {
		return node
	}
	return v.siteOf(node)
}

// clocksTell says why a delay cannot be measured with the clocks at both ends of a link; "" if it
// can.
func (v *verifier) clocksTell(h hop, off float64) string {
	within, known := v.apart(h)
	near, far := v.clockAt(v.near(h)), v.clockAt(v.far(h))
	switch {
	case !known:
		return fmt.Sprintf("how far the clocks of %s and %s are apart is not known", near, far)
	case within > off:
		return fmt.Sprintf("how far the clocks of %s and %s are apart is known to ± %.2g ms only", near, far,
			1e3*within)
	}
	return ""
}

// measure sends and receives a stream; all times are the head's.
func (v *verifier) measure(ctx context.Context, from, to string, s packets.Send, r packets.Receive,
	quiet time.Duration) (*packets.Sent, *packets.Received, error) {
	sent, got, err := v.sends.Measure(ctx, from, to, s, r, quiet)
	packets.InTimeOf(sent, got, v.ahead(from), v.ahead(to))
	return sent, got, err
}
