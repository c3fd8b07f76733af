package delayline

import (
	"time"

	"trivet.dev/trivet/topology"
)

// discipline is how frames wait for the sender to be free: which are taken, in what order they are
// sent, and which of them are marked or dropped on the way. The one being sent is not in it. Times
// never decrease.
type discipline interface {
	// admit decides on a frame that arrives, before it is copied; push then takes it, in whatever
	// way it was admitted.
	admit(now time.Duration, bytes []byte, size Traffic) verdict
	push(now time.Duration, f frame)
	// pop decides on frames that may be sent next, and returns the first that is sent.
	pop(now time.Duration) (f frame, ok bool)
	// take gives a frame back undecided, of each flow the first first.
	take() (f frame, ok bool)
}

// verdict is what becomes of a frame that arrives.
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

// tail is a queue that drops what finds it full.
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
