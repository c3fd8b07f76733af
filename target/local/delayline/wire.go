package delayline

import (
	"math"
	"math/rand/v2"
	"time"

	"trivet.dev/trivet/topology"
)

// LinkOptions are the link options that a line implements, or (mtu) its devices.
var LinkOptions = []string{
	"bandwidth", "delay", "jitter", "loss", "queue", "mtu", "reorder", "gap", "duplicate", "corrupt",
	"loss_correlation", "delay_correlation", "reorder_correlation", "duplicate_correlation", "corrupt_correlation",
}

// What happens to packets on the wire, after they were sent: the same as with netem (tc-netem(8)),
// except that jitter does not change the order.

// draws is the state of the random draws.
type draws struct {
	loss, duplicate, corrupt, reorder correlated
	jitter                            float64
	inOrder                           int // packets since the last that overtook others
}

// correlated draws numbers that are uniformly distributed in [0, 1). With a correlation, each
// depends on the last one as netem's do (get_crandom): it contains a share of that.
type correlated struct{ last float64 }

func (c *correlated) chooses(share, correlation topology.Fraction, r *rand.Rand) bool {
	if share == 0 {
		return false
	}
	v := r.Float64()
	if correlation > 0 {
		v = v*(1-float64(correlation)) + c.last*float64(correlation)
		c.last = v
	}
	return v < float64(share)
}

func newDraws(r *rand.Rand) (d draws) {
	for _, c := range []*correlated{&d.loss, &d.duplicate, &d.corrupt, &d.reorder} {
		c.last = r.Float64()
	}
	return d
}

// fly puts a frame that was sent at a given time on the wire, once or twice.
func (q *Queue) fly(f frame, sent time.Duration) {
	if i := &q.impairment; q.draws.duplicate.chooses(i.Duplicate, i.DuplicateCorrelation, q.random) {
		q.counters.Duplicated.Add(f.size)
		twin := f
		var ok bool
		if twin.bytes, twin.in, ok = q.store.keep(f.bytes); ok {
			q.cross(twin, sent)
		} else {
			q.counters.NoMemory.Add(f.size)
		}
	}
	q.cross(f, sent)
}

// cross loses a frame, or damages and delays it.
func (q *Queue) cross(f frame, sent time.Duration) {
	i, d := &q.impairment, &q.draws
	if d.loss.chooses(i.Loss, i.LossCorrelation, q.random) {
		q.drop(f, &q.counters.Lost)
		return
	}
	if d.corrupt.chooses(i.Corrupt, i.CorruptCorrelation, q.random) {
		q.corrupt(f)
	}
	q.inside[1].Add(f.size)
	if d.inOrder >= i.Gap-1 && d.reorder.chooses(i.Reorder, i.ReorderCorrelation, q.random) {
		d.inOrder = 0
		f.arrives = sent
		q.ahead.push(f)
		q.counters.Reordered.Add(f.size)
		return
	}
	d.inOrder++
	q.last = max(q.last, sent+q.delay())
	f.arrives = q.last
	q.flying.push(f)
}

// delay draws the delay of a packet. Whatever the correlation, its standard deviation is the
// jitter.
func (q *Queue) delay() time.Duration {
	delay, jitter := time.Duration(q.impairment.Delay), float64(q.impairment.Jitter)
	if jitter == 0 {
		return delay
	}
	same := float64(q.impairment.DelayCorrelation)
	q.draws.jitter = same*q.draws.jitter + math.Sqrt(1-same*same)*q.random.NormFloat64()
	return max(0, delay+time.Duration(q.draws.jitter*jitter))
}

// corrupt inverts a bit of a frame. Its checksum is completed first: otherwise whoever completes it
// later would hide the damage. Super-packets, which only occur here if the link has just been
// changed, stay intact.
func (q *Queue) corrupt(f frame) {
	if f.size.Packets > 1 || len(f.bytes) <= vnetLen {
		return
	}
	complete(f.bytes)
	bit := q.random.IntN(8 * (len(f.bytes) - vnetLen))
	f.bytes[vnetLen+bit/8] ^= 1 << (bit % 8)
	q.counters.Corrupted.Add(f.size)
}
