package delayline

import (
	"time"

	"trivet.dev/trivet/topology"
)

// fqCoDel is FQ-CoDel (RFC 8290): flows are hashed to queues, each of which CoDel manages, and take
// turns by deficit round robin; queues that have just begun to hold packets come first.
type fqCoDel struct {
	q     *Queue
	set   topology.Queue
	seed  uint64       // of the hash (section 4.1: perturbation)
	flows []*flowQueue // nil until first used
	new   ring[*flowQueue]
	old   ring[*flowQueue]
}

type flowQueue struct {
	codel
	fifo
	listed  bool // it is in one of the lists
	credits int  // bytes that it may still send in its turn
}

func newFQCoDel(q *Queue, p topology.Queue) *fqCoDel {
	return &fqCoDel{q: q, set: p, seed: q.random.Uint64(), flows: make([]*flowQueue, p.Flows)}
}

// admit drops from the longest queue to make room.
func (c *fqCoDel) admit(_ time.Duration, _ []byte, size Traffic) verdict {
	if n := c.q.waits(); n > 0 && n+int(size.Packets) > c.set.Limit {
		c.shorten()
	}
	return accept
}

// push appends a frame to its flow's queue (section 4.1).
func (c *fqCoDel) push(_ time.Duration, f frame) {
	at := flow(f.bytes, c.seed) % uint64(len(c.flows))
	n := c.flows[at]
	if n == nil {
		n = &flowQueue{codel: newCoDel(c.set)}
		c.flows[at] = n
	}
	n.push(f)
	if !n.listed {
		n.listed, n.credits = true, c.set.Quantum
		c.new.push(n)
	}
}

// mostShortened is how many packets are dropped at once, when all queues together are too long.
const mostShortened = 64

// shorten drops half of the longest queue from its head (section 4.1.3).
func (c *fqCoDel) shorten() {
	var longest *flowQueue
	for _, n := range c.flows {
		if n != nil && (longest == nil || n.bytes > longest.bytes) {
			longest = n
		}
	}
	half := longest.bytes / 2
	for range mostShortened {
		f, ok := longest.fifo.pop()
		if !ok {
			return
		}
		if c.q.dropWaiting(f, &c.q.counters.Overflowed); longest.bytes <= half {
			return
		}
	}
}

// pop takes from the queue whose turn it is (section 4.2).
func (c *fqCoDel) pop(now time.Duration) (frame, bool) {
	for {
		list := &c.new
		if list.len == 0 {
			list = &c.old
		}
		if list.len == 0 {
			return frame{}, false
		}
		n := *list.head()
		if n.credits <= 0 {
			n.credits += c.set.Quantum
			c.old.push(list.pop())
			continue
		}
		f, ok := n.codel.pop(now, &n.fifo, c.q)
		if ok {
			n.credits -= int(f.size.Bytes)
			return f, true
		}
		if list.pop(); list == &c.new {
			c.old.push(n) // else it could come first again and again
		} else {
			n.listed = false
		}
	}
}

func (c *fqCoDel) take() (frame, bool) {
	for _, n := range c.flows {
		if n != nil && n.items.len > 0 {
			return n.fifo.pop()
		}
	}
	return frame{}, false
}
