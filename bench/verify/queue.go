package verify

import (
	"math"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/measure/stats"
)

// fullPacket is the size of the packets in which queues are measured, in bytes of layer 2.
const fullPacket = 1514

// queueBytes returns how many bytes the queue of a direction holds of frames of a size. If the
// kernel's token bucket is the only discipline, its limit is in bytes; otherwise packets are
// counted.
func (v *verifier) queueBytes(h hop, frame int) float64 {
	e := v.egress(h)
	if v.wires[h.link] == datapath.Veth && e.Delay == 0 && !e.Random() {
		return float64(e.QueueLimit()) * fullPacket
	}
	return float64(e.QueueLimit()) * float64(frame)
}

// mostSettling is the maximum time to wait for a queue to become full, in seconds.
func (v *verifier) mostSettling(c *Check) float64 {
	if v.Quick && c.Default {
		return 1
	}
	return 8
}

// learnQueue evaluates how long packets waited once the queue was full; before it is, whether they
// already wait for longer than in a full one.
func (v *verifier) learnQueue(q *evidence, r *reading, p *passage, all []*passage) {
	c := v.check(r.hop, Queue)
	if c == nil {
		return
	}
	for _, one := range all {
		if one.hop != r.hop && one.drops {
			q.open(true, "packets waited in another queue, too: %s", v.nameOf(one.hop))
			return
		}
	}
	if r.fills == 0 {
		q.open(false, "no more comes than the direction carries")
		return
	}
	waits := r.waits(v)
	if len(waits) < leastWaits {
		q.open(true, "too little came to tell")
		return
	}
	// In packets of the size that the limit counts in.
	unit := v.queueBytes(r.hop, r.frame) / c.Asked
	holds := func(wait float64) float64 { return math.Round(max(0, wait) * p.out / 8 / unit) }
	slices.Sort(waits)
	// On a busy machine packets also wait elsewhere, and all of them if it is busy all the time.
	long, short := holds(stats.Quantile(waits, 0.75)), holds(stats.Quantile(waits, 0.75))
	if r.busy != "" {
		long, short = holds(stats.Quantile(waits, 0.1)), holds(stats.Quantile(waits, 0.95))
	}
	off := max(2, queueOff*c.Asked)
	came := (p.in - p.out) / 8 * (r.settle + r.duration) / 2 // bytes, by the middle of the time
	switch {
	case long > c.Asked+off && r.busy != "":
		q.open(true, "the machine is too busy: %s while packets waited", r.busy)
	case long > c.Asked+off:
		q.fails(long, "it holds %.0f packets or more, not %.0f", long, c.Asked)
	case r.settle < r.fills:
		q.open(false, "it would take %.3g s to fill it", r.fills)
	case short >= c.Asked-off && (short <= c.Asked+off || r.busy == ""):
		q.holds(short)
	case short > c.Asked+off:
		q.open(true, "the machine is too busy: %s while packets waited", r.busy)
	case came < v.queueBytes(r.hop, r.frame):
		q.open(true, "the machine is too busy: too little was sent to fill it")
	case holds(stats.Quantile(waits, 0.95)) > short+off: // in a full one, all wait for as long
		q.open(true, "the machine is too busy: it was still filling")
	default:
		q.fails(short, "it holds %.0f packets, not %.0f", short, c.Asked)
	}
}

// leastWaits is the minimum number of packets for measuring waiting times.
const leastWaits = 20

// waits returns for how long packets waited, in seconds, without the initial part.
func (r *reading) waits(v *verifier) (out []float64) {
	for i, o := range r.outs {
		d := int64(v.delayOf(r.shares[i].way))
		from, until := o.sent.Began+d+int64(r.settle*1e9), o.sent.Began+d+int64(o.sent.Seconds*1e9)
		for n, sent := range o.got.Record.Sent {
			if delay := o.got.Record.Delay[n]; sent != 0 && sent+delay >= from && sent+delay <= until {
				out = append(out, float64(delay-d)/1e9)
			}
		}
	}
	return out
}
