package packets

import (
	"math"
	"time"
)

// patience is how far a sender may be behind its time and still catch up, by sending what is due at
// once. What is older is given up: a burst of what a stalled sender owes would fill queues
// that the rate asked for does not fill.
const patience = 5 * time.Millisecond

// burst is how much of a stream one system call may hold: the packets of one share a time stamp, and leave
// together.
const burst = 50 * time.Microsecond

// maxBatch is the most packets of a system call.
const maxBatch = 32

// pace says when packets of an exact rate are due: slot k at k/rate after the beginning, whenever the
// packets before it were sent. It has no clock of its own.
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

// done says whether all slots are sent or given up.
func (p *pace) done() bool { return p.next >= p.slots }

// wait is how long the next slot is away; 0 or less where it is due.
func (p *pace) wait(now time.Duration) time.Duration { return p.at(p.next) - now }

// due gives up what is too old, and returns how many slots are to be sent now, in one batch.
func (p *pace) due(now time.Duration) int {
	if p.wait(now) > 0 {
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

// sent counts slots as sent.
func (p *pace) sent(n int) { p.next += n }
