package delayline

import (
	"math"
	"time"

	"trivet.dev/trivet/topology"
)

// codel is CoDel (RFC 8289, section 5): once packets have waited for longer than the target for an
// interval, it drops from the head of the queue, at times that come closer together by the control
// law, until they no longer wait that long.
type codel struct {
	target, interval time.Duration
	ecn              bool

	largest    uint64        // bytes of a packet: a queue no longer than that is not standing
	first      time.Duration // when the wait will have been above the target for an interval; 0: it is not
	dropping   bool
	next       time.Duration // when to drop next, while dropping
	count      int           // drops since dropping began
	countBegan int           // count when it last began
}

func newCoDel(p topology.Queue) codel {
	return codel{target: time.Duration(p.Target), interval: time.Duration(p.Interval), ecn: p.ECN}
}

// fifo is the queue that CoDel manages.
type fifo struct {
	items ring[frame]
	bytes uint64
}

func (f *fifo) push(x frame) { f.items.push(x); f.bytes += x.size.Bytes }

func (f *fifo) pop() (frame, bool) {
	x, ok := popOf(&f.items)
	f.bytes -= x.size.Bytes
	return x, ok
}

// look takes the first frame, and says whether it has been waiting for too long (section 5.5,
// dodequeue).
func (c *codel) look(now time.Duration, from *fifo) (f frame, tooLong, ok bool) {
	if f, ok = from.pop(); !ok {
		c.first = 0
		return f, false, false
	}
	c.largest = max(c.largest, f.size.Bytes/f.size.Packets)
	switch {
	case now-f.came < c.target || from.bytes <= c.largest:
		c.first = 0
	case c.first == 0:
		c.first = now + c.interval
	case now >= c.first:
		tooLong = true
	}
	return f, tooLong, true
}

// law is the control law (section 5.3).
func (c *codel) law(from time.Duration) time.Duration {
	return from + time.Duration(float64(c.interval)/math.Sqrt(float64(c.count)))
}

// pop returns the next frame to be sent (section 5.4). A frame that is to be dropped is marked and
// sent instead if both ends of the flow understand marks.
func (c *codel) pop(now time.Duration, from *fifo, q *Queue) (frame, bool) {
	f, tooLong, ok := c.look(now, from)
	switch {
	case !ok:
		c.dropping = false
		return f, false
	case c.dropping && !tooLong:
		c.dropping = false
	case c.dropping:
		for now >= c.next && c.dropping {
			c.count++
			if q.signal(&f, c.ecn) {
				c.next = c.law(c.next)
				return f, true
			}
			if f, tooLong, ok = c.look(now, from); !tooLong {
				c.dropping = false
			} else {
				c.next = c.law(c.next)
			}
		}
	case tooLong:
		if !q.signal(&f, c.ecn) {
			f, _, ok = c.look(now, from)
		}
		c.dropping = true
		// If it stopped dropping only recently, it resumes at about the rate of then.
		recent := c.count - c.countBegan
		c.count = 1
		if recent > 1 && now-c.next < 16*c.interval {
			c.count = recent
		}
		c.next = c.law(now)
		c.countBegan = c.count
	}
	return f, ok
}

// codelQueue is one queue, managed by CoDel.
type codelQueue struct {
	q     *Queue
	limit int
	codel
	fifo
}

func (c *codelQueue) admit(_ time.Duration, _ []byte, size Traffic) verdict {
	if c.items.len > 0 && c.q.waits()+int(size.Packets) > c.limit {
		return overflow
	}
	return accept
}

func (c *codelQueue) push(_ time.Duration, f frame) { c.fifo.push(f) }

func (c *codelQueue) pop(now time.Duration) (frame, bool) { return c.codel.pop(now, &c.fifo, c.q) }

func (c *codelQueue) take() (frame, bool) { return c.fifo.pop() }
