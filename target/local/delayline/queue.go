package delayline

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"trivet.dev/trivet/topology"
)

// Traffic counts packets as a wire would see them, and their bytes of layer 2
// (Ethernet header counted, preamble and FCS not).
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
	Lost       Traffic `json:"lost"`       // by the loss that was asked for
	Overflowed Traffic `json:"overflowed"` // found the queue full
	Cleared    Traffic `json:"cleared"`    // were in the queue, or came, while the line was down
	NoMemory   Traffic `json:"no_memory"`  // dropped as the pool's budget was spent
}

// Queue is one direction of an impaired link. It does no I/O and has no clock: the
// caller tells the time, as a duration since any moment, never falling.
//
// With a bandwidth, the limit (topology.Impairment.QueueLimit) counts what waits for its
// turn or is being sent, as the buffer of a network interface does, and not what is
// already on its way. Without one nothing waits, and the limit counts what is on its way.
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
	sent     time.Duration // when the first of waiting will be sent
	fraction uint64        // of a nanosecond that sent is too early, in 1/bandwidth
	last     time.Duration // when the last of flying arrives
}

// frame is a frame in a queue.
type frame struct {
	bytes   []byte
	in      *chunk
	size    Traffic       // on the wire
	arrives time.Duration // once it is flying
}

// NewQueue returns an empty queue. Queues of equal seeds draw equal losses and jitters.
func NewQueue(i topology.Impairment, pool *Pool, seed uint64) *Queue {
	q := &Queue{store: store{pool: pool}, random: rand.New(rand.NewPCG(seed, 0))}
	q.Set(0, i)
	return q
}

// Set changes the impairment. Packets on their way arrive when they would have, and those
// behind do not overtake them; packets that wait are sent at the new bandwidth, the
// first of them as far as it has not been sent yet. A smaller limit drops only what comes later.
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
	default: // the product fits: it is a packet's bits, in 1e-9
		_, left := bits.Mul64(uint64(q.sent-now), uint64(old))
		q.sent, q.fraction = now+time.Duration(left/uint64(i.Bandwidth)), 0
	}
}

// Push puts in a frame that came from the sender at now and is size on the wire (packets
// more than 1 when the frame is to be segmented). It copies the frame, or drops and counts it.
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
	// One frame of many segments is taken into an empty queue whatever the limit: it
	// could never pass otherwise.
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
}

// Pop returns the next frame that has arrived by now, with its size on the wire and
// when it arrived. The bytes hold until the next Push to a queue of the same pool.
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

// Next returns when Pop is to be called next; ok is false when the queue is empty.
// Nothing arrives earlier. Where jitter is yet to be drawn Pop may return nothing then.
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

// Up takes the line up (as it is at first) or down: then what is in the queue and what comes is
// dropped.
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

// advance sends what is sent by now. It may be called late: times follow from when
// frames came, not from when somebody looked.
func (q *Queue) advance(now time.Duration) {
	for q.waiting.len > 0 && q.sent <= now {
		q.fly(q.takeWaiting(), q.sent)
		if q.waiting.len > 0 {
			q.send(*q.waiting.head())
		}
	}
}

// send moves sent on by the time the frame takes, and keeps the fraction of a
// nanosecond, so that the rate is exact in the long run.
func (q *Queue) send(f frame) {
	duration := f.size.Bytes*8*uint64(time.Second) + q.fraction
	q.sent += time.Duration(duration / uint64(q.impairment.Bandwidth))
	q.fraction = duration % uint64(q.impairment.Bandwidth)
}

func (q *Queue) takeWaiting() frame {
	f := q.waiting.pop()
	q.packets[0] -= int(f.size.Packets)
	return f
}

func (q *Queue) takeFlying() frame {
	f := q.flying.pop()
	q.packets[1] -= int(f.size.Packets)
	return f
}

// fly takes a frame that was sent at a time to the wire, where it is lost or delayed.
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
}

func (q *Queue) drop(f frame, count *Traffic) {
	count.Add(f.size)
	q.store.release(f.in)
}
