package delayline

import (
	"math"
	"time"

	"trivet.dev/trivet/topology"
)

// red is Random Early Detection (S. Floyd and V. Jacobson, Random Early Detection Gateways for
// Congestion Avoidance, 1993), in bytes as Linux's sch_red: the longer the average queue, the more
// of the arriving packets are dropped or marked.
type red struct {
	q      *Queue
	set    topology.Queue
	weight float64
	items  ring[frame]
	bytes  float64

	average float64       // bytes
	idle    time.Duration // since when the queue is empty; negative: it is not
	count   int           // packets since the last one chosen; negative: average below minimum
	draw    float64       // what count times the probability must exceed
}

func newRED(q *Queue, p topology.Queue) *red {
	return &red{q: q, set: p, weight: math.Pow(0.5, float64(p.REDWeight())), count: -1, idle: -1}
}

func (r *red) admit(now time.Duration, _ []byte, size Traffic) verdict {
	r.remember(now)
	chosen := r.choose()
	switch {
	case chosen && r.set.ECN:
		return signal
	case chosen:
		return discard
	case r.items.len > 0 && r.bytes+float64(size.Bytes) > float64(r.set.Limit):
		return overflow
	}
	return accept
}

// remember updates the average with the queue length that a packet finds. For the time that the
// queue was empty, as many packets count as could have been sent (section IV).
func (r *red) remember(now time.Duration) {
	if r.idle >= 0 {
		missed := (now - r.idle).Seconds() * float64(r.q.impairment.Bandwidth) / 8 / float64(r.set.AvPkt)
		r.average *= math.Pow(1-r.weight, missed)
		r.idle = now // in case this one is not accepted
		return
	}
	r.average += r.weight * (r.bytes - r.average)
}

// choose decides on a packet so that the distances between chosen ones are uniform (section VII).
func (r *red) choose() bool {
	low, high := float64(r.set.Min), float64(r.set.Max)
	switch {
	case r.average < low:
		r.count = -1
		return false
	case r.average >= high:
		r.count = -1
		return true
	}
	if r.count++; r.count == 0 {
		r.draw = r.q.random.Float64()
		return false
	}
	probability := float64(r.set.Probability) * (r.average - low) / (high - low)
	if probability*float64(r.count) < r.draw {
		return false
	}
	r.count, r.draw = 0, r.q.random.Float64()
	return true
}

func (r *red) push(_ time.Duration, f frame) {
	r.items.push(f)
	r.bytes += float64(f.size.Bytes)
	r.idle = -1
}

func (r *red) pop(now time.Duration) (frame, bool) {
	f, ok := r.take()
	if r.items.len == 0 && r.idle < 0 {
		r.idle = now
	}
	return f, ok
}

func (r *red) take() (frame, bool) {
	f, ok := popOf(&r.items)
	r.bytes -= float64(f.size.Bytes)
	return f, ok
}
