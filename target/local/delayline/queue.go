package delayline

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"trivet.dev/trivet/topology"
)

// Queue is one direction of an impaired link. It does no I/O and has no clock: the caller passes
// the time, as a duration since some fixed moment, which never decreases.
//
// With a bandwidth, the limit (topology.Impairment.QueueLimit) counts packets that wait or are
// being sent, as the buffer of a network interface does, and not those already on their way; a
// discipline of active queue management has its own, of those that wait. Without a bandwidth,
// nothing waits, and the limit counts the packets on their way.
type Queue struct {
	impairment topology.Impairment
	limit      int
	down       bool
	random     *rand.Rand
	store      store
	counters   Counters

	waiting  discipline    // in the sender's queue; nil until one has waited
	sending  frame         // while busy, what is being sent
	busy     bool          //
	flying   ring[frame]   // on the way, in the order of arrival
	ahead    ring[frame]   // also on the way, in the order of arrival: those that overtake
	inside   [2]Traffic    // waiting or being sent, and on the way
	sent     time.Duration // while busy, when sending will be sent
	fraction uint64        // of a nanosecond, by which sent is too early; in units of 1/bandwidth
	last     time.Duration // when the last of flying arrives
	draws    draws
}

// frame is a frame in a queue.
type frame struct {
	bytes   []byte
	in      *chunk
	size    Traffic       // on the wire
	came    time.Duration // when it began to wait
	arrives time.Duration // set once it is flying
}

// NewQueue returns an empty queue. Queues with equal seeds draw equal losses and jitter.
func NewQueue(i topology.Impairment, pool *Pool, seed uint64) *Queue {
	q := &Queue{store: store{pool: pool}, random: rand.New(rand.NewPCG(seed, 0))}
	q.draws = newDraws(rand.New(rand.NewPCG(seed, 1)))
	q.Set(0, i)
	return q
}

// Set changes the impairment. Packets on their way arrive when they would have, and are not
// overtaken by later ones. Waiting packets stay, also under another discipline, and are sent at the
// new bandwidth, as is the rest of the packet being sent. A smaller limit only affects packets that
// arrive later.
func (q *Queue) Set(now time.Duration, i topology.Impairment) {
	q.advance(now)
	old := q.impairment
	q.impairment, q.limit = i, i.QueueLimit()
	if was := q.waiting; was == nil || old.Queue != i.Queue {
		q.waiting = q.newDiscipline()
		for was != nil {
			f, ok := was.take()
			if !ok {
				break
			}
			q.waiting.push(now, f)
		}
	}
	switch {
	case !q.busy:
	case i.Bandwidth == 0:
		q.each(func(f frame) { q.fly(f, now) })
	default: // the product fits: it is at most one packet's bits × 1e9
		_, left := bits.Mul64(uint64(q.sent-now), uint64(old.Bandwidth))
		q.sent, q.fraction = now+time.Duration(left/uint64(i.Bandwidth)), 0
	}
}

// each removes all frames that are being sent or wait, and calls do for each.
func (q *Queue) each(do func(frame)) {
	for q.busy {
		f := q.sending
		q.sending, q.busy = q.waiting.take()
		q.inside[0].Sub(f.size)
		do(f)
	}
}

// Push enqueues a frame that the sender sent at now, with its size on the wire (packets is more
// than 1 if the frame is to be segmented). It copies the frame, or drops and counts it.
func (q *Queue) Push(now time.Duration, bytes []byte, size Traffic) {
	q.advance(now)
	q.counters.In.Add(size)
	decided := accept
	switch {
	case q.down:
		q.counters.Cleared.Add(size)
		return
	case q.impairment.Bandwidth > 0:
		decided = q.waiting.admit(now, bytes, size)
	case q.inside[1].Packets > 0 && q.inside[1].Packets+size.Packets > uint64(q.limit):
		decided = overflow
	}
	if decided == signal && !ecnCapable(bytes) {
		decided = discard
	}
	switch decided {
	case overflow:
		q.counters.Overflowed.Add(size)
		return
	case discard:
		q.counters.Dropped.Add(size)
		return
	}
	kept, in, ok := q.store.keep(bytes)
	if !ok {
		q.counters.NoMemory.Add(size)
		return
	}
	f := frame{bytes: kept, in: in, size: size, came: now}
	if decided == signal {
		q.mark(&f)
	}
	if q.impairment.Bandwidth == 0 {
		q.fly(f, now)
		return
	}
	q.inside[0].Add(size)
	q.waiting.push(now, f)
	if !q.busy {
		q.sent, q.fraction = now, 0
		q.start()
	}
}

// waits returns how many packets wait, without the one being sent.
func (q *Queue) waits() int {
	n := q.inside[0].Packets
	if q.busy {
		n -= q.sending.size.Packets
	}
	return int(n)
}

// Pop returns the next frame that has arrived by now, its size on the wire, and when it arrived.
// The bytes stay valid until the next call of a queue of the same pool.
func (q *Queue) Pop(now time.Duration) (bytes []byte, size Traffic, arrived time.Duration, ok bool) {
	q.advance(now)
	next := q.nextFlying()
	if next == nil || next.head().arrives > now {
		return nil, Traffic{}, 0, false
	}
	f := q.takeFlying(next)
	q.counters.Out.Add(f.size)
	q.store.release(f.in)
	return f.bytes, f.size, f.arrives, true
}

// nextFlying returns the ring with the frame that arrives next, or nil.
func (q *Queue) nextFlying() *ring[frame] {
	switch {
	case q.ahead.len > 0 && (q.flying.len == 0 || q.ahead.head().arrives <= q.flying.head().arrives):
		return &q.ahead
	case q.flying.len > 0:
		return &q.flying
	}
	return nil
}

// Next returns when Pop should be called next; ok is false if the queue is empty. Nothing arrives
// earlier. If jitter or an order has yet to be drawn, Pop may still return nothing then.
func (q *Queue) Next() (at time.Duration, ok bool) {
	if next := q.nextFlying(); next != nil {
		at, ok = next.head().arrives, true
	}
	if q.busy {
		leaves := max(q.last, q.sent+time.Duration(q.impairment.Delay))
		if q.impairment.Jitter > 0 || q.impairment.Reorder > 0 {
			leaves = q.sent
		}
		if !ok || leaves < at {
			at, ok = leaves, true
		}
	}
	return at, ok
}

// Up takes the line up (its initial state) or down. While it is down, what is in the queue and what
// arrives is dropped.
func (q *Queue) Up(now time.Duration, up bool) {
	q.advance(now)
	if q.down = !up; up {
		return
	}
	q.each(func(f frame) { q.drop(f, &q.counters.Cleared) })
	for next := q.nextFlying(); next != nil; next = q.nextFlying() {
		q.drop(q.takeFlying(next), &q.counters.Cleared)
	}
	q.last = now
}

// Counters returns what has become of the packets so far.
func (q *Queue) Counters(now time.Duration) Counters {
	q.advance(now)
	return q.counters
}

// Len returns what waits to be sent (or is being sent), and what is on its way.
func (q *Queue) Len(now time.Duration) (waiting, flying Traffic) {
	q.advance(now)
	return q.inside[0], q.inside[1]
}

// advance sends what should have been sent by now. It may be called late: times are derived from
// when frames arrived, not from when it is called.
func (q *Queue) advance(now time.Duration) {
	for q.busy && q.sent <= now {
		f := q.sending
		q.inside[0].Sub(f.size)
		q.busy = false
		q.fly(f, q.sent)
		q.start()
	}
}

// start begins to send the next frame that waits, at the time at which the last was sent.
func (q *Queue) start() {
	if q.sending, q.busy = q.waiting.pop(q.sent); q.busy {
		q.send(q.sending)
	}
}

// send advances sent by the time the frame takes, and keeps the remaining fraction of a nanosecond,
// so that the rate is exact in the long run.
func (q *Queue) send(f frame) {
	duration := f.size.Bytes*8*uint64(time.Second) + q.fraction
	q.sent += time.Duration(duration / uint64(q.impairment.Bandwidth))
	q.fraction = duration % uint64(q.impairment.Bandwidth)
}

func (q *Queue) takeFlying(from *ring[frame]) frame {
	f := from.pop()
	q.inside[1].Sub(f.size)
	return f
}

// signal signals congestion by a frame that a discipline has removed: it marks the frame if marks
// allows and the flow understands it, else it drops the frame. It says whether the frame is still
// to be sent.
func (q *Queue) signal(f *frame, marks bool) bool {
	if marks && ecnCapable(f.bytes) {
		q.mark(f)
		return true
	}
	q.dropWaiting(*f, &q.counters.Dropped)
	return false
}

func (q *Queue) mark(f *frame) {
	mark(f.bytes)
	q.counters.Marked.Add(f.size)
}

// dropWaiting drops a frame that a discipline has removed.
func (q *Queue) dropWaiting(f frame, count *Traffic) {
	q.inside[0].Sub(f.size)
	q.drop(f, count)
}

func (q *Queue) drop(f frame, count *Traffic) {
	count.Add(f.size)
	q.store.release(f.in)
}
