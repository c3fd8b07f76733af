package delayline

import (
	"time"

	"trivet.dev/trivet/topology"
)

// pie is PIE (RFC 8033): arriving packets are dropped with a probability that a controller updates
// periodically from how long packets wait, by their time stamps.
type pie struct {
	q     *Queue
	set   topology.Queue
	items ring[frame]
	bytes uint64

	probability float64
	accumulated float64       // probability since the last drop
	wait        time.Duration // of the last packet sent; 0: nothing waits
	before      time.Duration // what wait was at the last update
	allowance   time.Duration // for a burst after idleness
	next        time.Duration // the next update; 0: no packet has arrived yet
}

const (
	pieBurst      = 150 * time.Millisecond // MAX_BURST
	pieMostMarked = 0.1                    // above it packets are dropped, not marked (section 5.1)
	pieFullPacket = 1514
)

func newPIE(q *Queue, p topology.Queue) *pie {
	return &pie{q: q, set: p, allowance: pieBurst}
}

func (p *pie) admit(now time.Duration, _ []byte, size Traffic) verdict {
	p.update(now)
	chosen := p.choose()
	switch {
	case p.items.len > 0 && p.q.waits()+int(size.Packets) > p.set.Limit:
		return overflow
	case chosen && p.set.ECN && p.probability <= pieMostMarked:
		return signal
	case chosen:
		return discard
	}
	return accept
}

// choose decides on a packet (sections 4.1 and 4.4, and 5.4: drops are neither too close together
// nor too far apart).
func (p *pie) choose() bool {
	target := time.Duration(p.set.Target)
	switch {
	case p.allowance > 0, p.before < target/2 && p.probability < 0.2, p.bytes <= 2*pieFullPacket:
		return false
	}
	if p.probability == 0 {
		p.accumulated = 0
	}
	p.accumulated += p.probability
	switch {
	case p.accumulated < 0.85:
		return false
	case p.accumulated < 8.5 && p.q.random.Float64() >= p.probability:
		return false
	}
	p.accumulated = 0
	return true
}

// update computes the probability for all update times up to now (section 4.2), between which
// nothing has happened.
func (p *pie) update(now time.Duration) {
	every := time.Duration(p.set.TUpdate)
	if p.next == 0 {
		p.next = now + every
	}
	for ; p.next <= now; p.next += every {
		if p.probability == 0 && p.wait == 0 && p.before == 0 && p.allowance == pieBurst { // no update changes it
			p.next += (now - p.next) / every * every
			continue
		}
		p.compute(every)
	}
}

// steps are the divisors for the change of a small probability (section 4.2, auto-tuning).
var steps = []struct{ below, by float64 }{{0.000001, 2048}, {0.00001, 512}, {0.0001, 128}, {0.001, 32}, {0.01, 8},
	{0.1, 2}}

func (p *pie) compute(every time.Duration) {
	target := time.Duration(p.set.Target)
	change := float64(p.set.Alpha)/16*(p.wait-target).Seconds() + float64(p.set.Beta)/16*(p.wait-p.before).Seconds()
	for _, s := range steps {
		if p.probability < s.below {
			change /= s.by
			break
		}
	}
	if p.probability >= 0.1 { // section 5.5: capped, lest the probability oscillate
		change = min(change, 0.02)
	}
	if p.wait > 250*time.Millisecond { // as sch_pie does where the queue is out of control
		change += 0.02
	}
	p.probability += change
	if p.wait == 0 && p.before == 0 {
		p.probability *= 0.98
	}
	if p.probability < 1e-12 { // it would only become smaller
		p.probability = 0
	}
	p.probability = min(p.probability, 1)
	if p.allowance = max(0, p.allowance-every); p.probability == 0 && p.wait < target/2 && p.before < target/2 {
		p.allowance = pieBurst // section 4.4
	}
	p.before = p.wait
}

func (p *pie) push(_ time.Duration, f frame) {
	p.items.push(f)
	p.bytes += f.size.Bytes
}

func (p *pie) pop(now time.Duration) (frame, bool) {
	p.update(now)
	f, ok := p.take()
	if p.wait = 0; ok && p.items.len > 0 {
		p.wait = now - f.came
	}
	return f, ok
}

func (p *pie) take() (frame, bool) {
	f, ok := popOf(&p.items)
	p.bytes -= f.size.Bytes
	return f, ok
}
