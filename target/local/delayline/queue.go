package delayline

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"trivet.dev/trivet/topology"
)

// Traffic counts packets as a wire would carry them, and their bytes on layer 2 (including the
// Ethernet header, without preamble and FCS).
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Add adds u.
func (t *Traffic) Add(u Traffic) { t.Packets += u.Packets; t.Bytes += u.Bytes }

// Counters say what became of the packets of a queue:
// In = Out + Lost + Overflowed + Cleared + NoMemory + those still in it.
type Counters struct {
	In         Traffic `json:"in"`
	Out        Traffic `json:"out"`
	Lost       Traffic `json:"lost"`       // by the configured loss
	Overflowed Traffic `json:"overflowed"` // found the queue full
	Cleared    Traffic `json:"cleared"`    // in the queue, or arriving, while the line was down
	NoMemory   Traffic `json:"no_memory"`  // dropped because the pool's budget was spent
}

// Queue is one direction of an impaired link. It does no I/O and has no clock: the caller passes
// the time, as a duration since some fixed moment, which never decreases.
//
// With a bandwidth, the limit (topology.Impairment.QueueLimit) counts packets that wait or are
// being sent, as the buffer of a network interface does, and not those already on their way.
// Without one, nothing waits, and the limit counts the packets on their way.
type Queue struct {
	impairment topology.Impairment
	limit      int
	down       bool
	random     *rand.Rand
	store      store
	counters   Counters

	waiting  ring[frame]   // in the sender's queue; the first is being sent
	flying   ring[frame]   // on the way, in the order of arrival
	packets  [2]int        // in waiting, in flying
	bytes    [2]uint64     // the same
	sent     time.Duration // when the first of waiting will be sent
	fraction uint64        // of a nanosecond, by which sent is too early; in units of 1/bandwidth
	last     time.Duration // when the last of flying arrives
}

// frame is a frame in a queue.
type frame struct {
	bytes   []byte
	in      *chunk
	size    Traffic       // on the wire
	arrives time.Duration // set once it is flying
}

// NewQueue returns an empty queue. Queues with equal seeds draw equal losses and jitter.
func NewQueue(i topology.Impairment, pool *Pool, seed uint64) *Queue {
	q := &Queue{store: store{pool: pool}, random: rand.New(rand.NewPCG(seed, 0))}
	q.Set(0, i)
	return q
}

// Set changes the impairment. Packets on their way arrive when they would have, and are not
// overtaken by later ones; waiting packets are sent at the new bandwidth, and so is the rest of the
// packet being sent. A smaller limit only affects packets that arrive later.
func (q *Queue) Set(now time.Duration, i topology.Impairment) {
	q.advance(now)
	old := q.impairment.Bandwidth
	q.impairment, q.limit = i, i.QueueLimit()
	switch {
	case q.waiting.len == 0:
	case i.Bandwidth == 0:
		for q.waiting.len > 0 {
			q.fly(q.takeWaiting(), now)
		}
	default: // the product fits: it is at most one packet's bits × 1e9
		_, left := bits.Mul64(uint64(q.sent-now), uint64(old))
		q.sent, q.fraction = now+time.Duration(left/uint64(i.Bandwidth)), 0
	}
}

// Push enqueues a frame that the sender sent at now, with its size on the wire (packets is more
// than 1 if the frame is to be segmented). It copies the frame, or drops and counts it.
func (q *Queue) Push(now time.Duration, bytes []byte, size Traffic) {
	q.advance(now)
	q.counters.In.Add(size)
	if q.down {
		q.counters.Cleared.Add(size)
		return
	}
	counted := q.packets[0]
	if q.impairment.Bandwidth == 0 {
		counted = q.packets[1]
	}
	// A frame of many segments is accepted into an empty queue whatever the limit is: otherwise it
	// could never pass.
	if counted > 0 && counted+int(size.Packets) > q.limit {
		q.counters.Overflowed.Add(size)
		return
	}
	kept, in, ok := q.store.keep(bytes)
	if !ok {
		q.counters.NoMemory.Add(size)
		return
	}
	f := frame{bytes: kept, in: in, size: size}
	if q.impairment.Bandwidth == 0 {
		q.fly(f, now)
		return
	}
	if q.waiting.len == 0 {
		q.sent, q.fraction = now, 0
		q.send(f)
	}
	q.waiting.push(f)
	q.packets[0] += int(size.Packets)
	q.bytes[0] += size.Bytes
}

// Pop returns the next frame that has arrived by now, its size on the wire, and when it arrived.
// The bytes stay valid until the next Push to a queue of the same pool.
func (q *Queue) Pop(now time.Duration) (bytes []byte, size Traffic, arrived time.Duration, ok bool) {
	q.advance(now)
	if q.flying.len == 0 || q.flying.head().arrives > now {
		return nil, Traffic{}, 0, false
	}
	f := q.takeFlying()
	q.counters.Out.Add(f.size)
	q.store.release(f.in)
	return f.bytes, f.size, f.arrives, true
}

// Next returns when Pop should be called next; ok is false if the queue is empty. Nothing arrives
// earlier. If jitter has yet to be drawn, Pop may still return nothing then.
func (q *Queue) Next() (at time.Duration, ok bool) {
	switch {
	case q.flying.len > 0:
		return q.flying.head().arrives, true
	case q.waiting.len == 0:
		return 0, false
	case q.impairment.Jitter > 0:
		return q.sent, true
	}
	return max(q.last, q.sent+time.Duration(q.impairment.Delay)), true
}

// Up takes the line up (its initial state) or down. While it is down, what is in the queue and what
// arrives is dropped.
func (q *Queue) Up(now time.Duration, up bool) {
	q.advance(now)
	if q.down = !up; up {
		return
	}
	for q.waiting.len > 0 {
		q.drop(q.takeWaiting(), &q.counters.Cleared)
	}
	for q.flying.len > 0 {
		q.drop(q.takeFlying(), &q.counters.Cleared)
	}
	q.last = now
}

// Counters returns what became of the packets up to now.
func (q *Queue) Counters(now time.Duration) Counters {
	q.advance(now)
	return q.counters
}

// Len returns how many packets wait to be sent (or are being sent), and how many are on their way.
func (q *Queue) Len(now time.Duration) (waiting, flying int) {
	q.advance(now)
	return q.packets[0], q.packets[1]
}

// Bytes returns how many bytes those packets have.
func (q *Queue) Bytes(now time.Duration) (waiting, flying uint64) {
	q.advance(now)
	return q.bytes[0], q.bytes[1]
}

// advance sends what should have been sent by now. It may be called late: times are derived from
// when frames arrived, not from when it is called.
func (q *Queue) advance(now time.Duration) {
	for q.waiting.len > 0 && q.sent <= now {
		q.fly(q.takeWaiting(), q.sent)
		if q.waiting.len > 0 {
			q.send(*q.waiting.head())
		}
	}
}

// send advances sent by the time the frame takes, and keeps the remaining fraction of a nanosecond,
// so that the rate is exact in the long run.
func (q *Queue) send(f frame) {
	duration := f.size.Bytes*8*uint64(time.Second) + q.fraction
	q.sent += time.Duration(duration / uint64(q.impairment.Bandwidth))
	q.fraction = duration % uint64(q.impairment.Bandwidth)
}

func (q *Queue) takeWaiting() frame {
	f := q.waiting.pop()
	q.packets[0] -= int(f.size.Packets)
	q.bytes[0] -= f.size.Bytes
	return f
}

func (q *Queue) takeFlying() frame {
	f := q.flying.pop()
	q.packets[1] -= int(f.size.Packets)
	q.bytes[1] -= f.size.Bytes
	return f
}

// fly puts a frame that was sent at a given time on the wire, where it is lost or delayed.
func (q *Queue) fly(f frame, sent time.Duration) {
	if q.impairment.Loss > 0 && q.random.Float64() < float64(q.impairment.Loss) {
		q.drop(f, &q.counters.Lost)
		return
	}
	delay := time.Duration(q.impairment.Delay)
	if q.impairment.Jitter > 0 {
		delay = max(0, delay+time.Duration(q.random.NormFloat64()*float64(q.impairment.Jitter)))
	}
	q.last = max(q.last, sent+delay)
	f.arrives = q.last
	q.flying.push(f)
	q.packets[1] += int(f.size.Packets)
	q.bytes[1] += f.size.Bytes
}

func (q *Queue) drop(f frame, count *Traffic) {
	count.Add(f.size)
	q.store.release(f.in)
}
