package ospf

import "time"

// instant is the time since the domain's epoch. Timers compare instants by the hundred thousand.
type instant = time.Duration

// timer is an entry of the domain's agenda, embedded in what it is for.
type timer struct {
	at   instant
	pos  int // index in the agenda + 1; 0: not set
	what timerKind
	of   interface{ expire(what timerKind) }
}

type timerKind uint8

const (
	timerHello      timerKind = iota // of a wire: section 9.5
	timerWait                        // of a wire: section 9.1
	timerAck                         // of a wire: delayed acknowledgments, section 13.5
	timerInactivity                  // of a neighbour: section 10
	timerDD                          // of a neighbour: the last Database Description again
	timerRequest                     // of a neighbour: the Link State Request again
	timerRetransmit                  // of a neighbour: LSAs not acknowledged, section 13.6
	timerAge                         // of a database's entry: section 14
	timerOriginate                   // of an origin: MinLSInterval is over, section 12.4
	timerCalculate                   // of the domain: section 16
	timerGrace                       // of a neighbour that is helped: RFC 3623, section 3.2
	timerRestart                     // of a router that restarts: RFC 3623, section 2.2
)

// agenda is a heap of timers, the next one on top.
type agenda []*timer

// set starts or restarts a timer.
func (a *agenda) set(t *timer, at instant) {
	a.stop(t)
	t.at = at
	*a = append(*a, t)
	t.pos = len(*a)
	a.up(t.pos - 1)
}

// stop stops a timer, which need not be set.
func (a *agenda) stop(t *timer) {
	if t.pos == 0 {
		return
	}
	i, last := t.pos-1, len(*a)-1
	a.swap(i, last)
	*a = (*a)[:last]
	t.pos = 0
	if i < last {
		a.up(i)
		a.down(i)
	}
}

func (a agenda) swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].pos, a[j].pos = i+1, j+1
}

func (a agenda) up(i int) {
	for i > 0 && a[i].at < a[(i-1)/2].at {
		a.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (a agenda) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(a) {
			return
		}
		if child+1 < len(a) && a[child+1].at < a[child].at {
			child++
		}
		if a[i].at <= a[child].at {
			return
		}
		a.swap(i, child)
		i = child
	}
}

// Throttle limits the rate of events that may come in bursts: after a quiet time the first waits
// Initial, the next Hold, each further one twice as long, up to Max.
type Throttle struct{ Initial, Hold, Max time.Duration }

// throttle is the state of one Throttle.
type throttle struct {
	last instant
	wait time.Duration // minimum time after last; 0 before the first event
}

// due returns when an event that is wanted now may happen.
func (t *throttle) due(now instant, s Throttle) instant {
	if t.wait > 0 && now >= t.last+t.wait+s.Hold {
		t.wait = 0 // there was a quiet time
	}
	if t.wait == 0 {
		return now + s.Initial
	}
	return max(now, t.last+t.wait)
}

// happened records that the event takes place.
func (t *throttle) happened(now instant, s Throttle) {
	if t.wait == 0 {
		t.wait = s.Hold
	} else {
		t.wait = min(2*t.wait, s.Max)
	}
	t.last = now
}
