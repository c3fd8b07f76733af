package packets

import (
	"math"
	"time"
)

// patience is how far a sender may be behind its time and still catch up, by sending what is due at
// once. What is older is given up: a burst of what a stalled sender owes would fill queues
// that the rate asked for does not fill.
const patience = 5 * time.Millisecond

// burst is how much of a stream one system call may hold: the packets of one share a time stamp,
// and leave together.
const burst = 50 * time.Microsecond

// maxBatch is the most packets of a system call.
const maxBatch = 32

// timetable says when the packets of a stream are due, since its beginning, in slots from 0 on. It
// has no clock of its own.
type timetable interface {
	left() int                 // slots that are neither sent nor given up
	upcoming() time.Duration   // when the next one is due
	due(now time.Duration) int // how many are to be sent now, in one batch, after giving up what is too old
	late(now time.Duration, i int) time.Duration
	sent(n int)
	givenUp() int
}

// pace is the timetable of an exact rate: slot k is due at k/rate, whenever the packets before it
// were sent.
type pace struct {
	rate  float64 // slots a second
	slots int     // in all
	next  int     // the slot that is to be sent next
	given int     // slots that were given up
}

// at is when a slot is due.
func (p *pace) at(slot int) time.Duration {
	return time.Duration(math.Round(float64(slot) / p.rate * 1e9))
}

func (p *pace) left() int               { return p.slots - p.next }
func (p *pace) upcoming() time.Duration { return p.at(p.next) }
func (p *pace) sent(n int)              { p.next += n }
func (p *pace) givenUp() int            { return p.given }

// late is how long ago the slot was due that is i after the next.
func (p *pace) late(now time.Duration, i int) time.Duration { return now - p.at(p.next+i) }

func (p *pace) due(now time.Duration) int {
	if p.upcoming() > now {
		return 0
	}
	last := int(now.Seconds()*p.rate) + 1 // slots that are due by now end before this one
	for last > p.next+1 && p.at(last-1) > now {
		last--
	}
	for p.at(last) <= now {
		last++
	}
	last = min(last, p.slots)
	if oldest := int(math.Ceil((now - patience).Seconds() * p.rate)); oldest > p.next && p.next < last-1 {
		keep := min(oldest, last-1) // what is due now is sent however slow the rate is
		p.given += keep - p.next
		p.next = keep
	}
	return min(last-p.next, p.batch())
}

// batch is the most packets of a system call at this rate.
func (p *pace) batch() int { return max(1, min(maxBatch, int(p.rate*burst.Seconds()))) }

// times is a timetable of any times, in order. Nothing is given up, and each is sent alone.
type times struct {
	at   []time.Duration
	next int
}

func (t *times) left() int                                   { return len(t.at) - t.next }
func (t *times) sent(n int)                                  { t.next += n }
func (t *times) givenUp() int                                { return 0 }
func (t *times) late(now time.Duration, i int) time.Duration { return now - t.at[t.next+i] }

func (t *times) upcoming() time.Duration { return t.at[min(t.next, len(t.at)-1)] }

func (t *times) due(now time.Duration) int {
	if t.upcoming() > now {
		return 0
	}
	return 1
}
