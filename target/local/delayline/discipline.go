package delayline

import (
	"time"

	"trivet.dev/trivet/topology"
)

// discipline decides how frames wait for the sender to be free: which are accepted, in what order
// they are sent, and which of them are marked or dropped. The one being sent is not in it. Times
// never decrease.
type discipline interface {
	// admit decides on an arriving frame before it is copied; push then adds it, whatever the
	// verdict by which it was accepted.
	admit(now time.Duration, bytes []byte, size Traffic) verdict
	push(now time.Duration, f frame)
	// pop decides on the frames at the head, and returns the first that is to be sent.
	pop(now time.Duration) (f frame, ok bool)
	// take removes a frame without deciding on it; of each flow the first comes first.
	take() (f frame, ok bool)
}

// verdict is what is done with an arriving frame.
type verdict int

const (
	accept   verdict = iota
	overflow         // the queue is full
	discard          // the discipline drops it
	signal           // it is marked, or dropped if its sender understands no marks
)

// newDiscipline returns the empty queue of an impairment.
func (q *Queue) newDiscipline() discipline {
	p := q.impairment.Queue
	switch p.Discipline {
	case topology.CoDel:
		return &codelQueue{q: q, limit: p.Limit, codel: newCoDel(p)}
	case topology.FQCoDel:
		return newFQCoDel(q, p)
	case topology.RED:
		return newRED(q, p)
	case topology.PIE:
		return newPIE(q, p)
	}
	return &tail{q: q}
}

// tail is a queue that drops what arrives when it is full (tail drop).
type tail struct {
	q     *Queue
	items ring[frame]
}

func (t *tail) admit(_ time.Duration, _ []byte, size Traffic) verdict {
	// A frame of many segments is accepted into an empty queue whatever the limit is: otherwise it
	// could never pass.
	if n := t.q.inside[0].Packets; n > 0 && n+size.Packets > uint64(t.q.limit) {
		return overflow
	}
	return accept
}

func (t *tail) push(_ time.Duration, f frame) { t.items.push(f) }

func (t *tail) pop(time.Duration) (frame, bool) { return t.take() }

func (t *tail) take() (frame, bool) { return popOf(&t.items) }

func popOf[T any](r *ring[T]) (v T, ok bool) {
	if r.len == 0 {
		return v, false
	}
	return r.pop(), true
}
