package monitor

import (
	"cmp"
	"container/heap"
	"math"
	"time"
)

// kind is a kind of reading. Each switch has one turn of each kind.
type kind int

const (
	readPorts  kind = iota
	readTables      // tables, and their numbers of entries
	readFlows
	readGroups
	numKinds
)

// cost is the number of requests that a reading may take.
var cost = [numKinds]float64{readPorts: 1, readTables: 1, readFlows: 2, readGroups: 2}

// turn is a reading scheduled for a time.
type turn struct {
	n    *node
	kind kind
	due  time.Time
	at   int  // index in the heap; -1: not in it
	once bool // it has been served before
}

// polled is the poller's state of a switch.
type polled struct {
	turns    [numKinds]turn
	busy     bool      // a request is in flight; one at a time
	silent   int       // consecutive requests without an answer
	started  time.Time // of the last reading of the ports
	phase    float64   // of its turns, as a fraction of the period
	gone     bool
	noGroups bool // the switch does not support group statistics
}

// poller schedules requests. Guarded by App.mu.
type poller struct {
	pacer    pacer
	turns    turns
	switches int
	phase    float64 // of the last switch added, as a fraction of the period
	inFlight int
	silent   int           // of these, to switches that did not answer the last request
	period   time.Duration // between readings of the same switch, smoothed; 0: no switch was read twice yet
}

// add schedules a switch's turns: the first at once, the following ones such that the switches'
// turns are spread over the period.
func (p *poller) add(n *node, now time.Time, o Options) {
	p.switches++
	_, p.phase = math.Modf(p.phase + math.Phi - 1) // multiples of the golden ratio are spread evenly
	n.phase = p.phase
	for k := range numKinds {
		t := &n.turns[k]
		*t = turn{n: n, kind: k, due: now.Add(time.Duration(k) * 50 * time.Millisecond)}
		heap.Push(&p.turns, slot{t, t.due})
	}
}

func (p *poller) remove(n *node) {
	p.switches--
	n.gone = true
	for k := range numKinds {
		if t := &n.turns[k]; t.at >= 0 {
			heap.Remove(&p.turns, t.at)
		}
	}
}

// run polls until the app stops.
func (a *App) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-timer.C:
		case <-a.wake:
		}
		now := time.Now()
		a.countPackets(now)
		turns, wait := a.step(now)
		for a.readAll(turns, now) { // skipped readings leave room for others
			turns, wait = a.step(now)
		}
		timer.Reset(wait)
	}
}

// step returns the turns that are due, as far as the limits allow, and how long to wait.
func (a *App) step(now time.Time) (served []*turn, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.poller
	wait = a.packets.last.Add(a.o.Period).Sub(now)
	for len(p.turns) > 0 {
		t := p.turns[0].turn
		if until := max(t.due.Sub(now), 0); until > 0 || p.pacer.wait(now) > 0 {
			pace := a.o.pace()
			if until > 0 {
				pace = p.rest(a.o)
			}
			return served, max(0, min(wait, max(until, pace)))
		}
		if p.inFlight >= a.o.InFlight {
			break // an answer wakes the poller
		}
		if a.serve(t, now) {
			served = append(served, t)
		}
	}
	return served, max(0, wait)
}

// pace is the poller's minimum pause: requests that become due meanwhile are sent together, so that
// the processor wakes once.
func (o Options) pace() time.Duration { return o.Period / 50 }

// rest is the pause if nothing else is due: longer if each switch has its turn less often.
func (p *poller) rest(o Options) time.Duration {
	return time.Duration(float64(o.pace()) * min(p.stretch(o), mostRest))
}

const mostRest = 12 // times pace

// serve reports whether a turn is to be executed now; otherwise it is rescheduled.
func (a *App) serve(t *turn, now time.Time) bool {
	p, n := &a.poller, t.n
	switch {
	case n.busy && t.kind == readPorts && n.silent == 0 && now.Sub(n.started) >= a.o.Period:
		a.requests.Skipped++ // the previous request has not been answered
		p.put(t, now.Add(a.o.Period))
	case n.busy:
		p.put(t, now.Add(a.o.Period/10))
	case n.silent > 0 && p.silent >= max(1, a.o.InFlight/4): // switches that answer come first
		p.put(t, now.Add(a.o.Period))
	default:
		p.pacer.spend(cost[t.kind])
		p.put(t, p.next(t, now, a.o))
		if t.kind == readPorts {
			if !n.started.IsZero() && n.silent == 0 {
				p.measure(now.Sub(n.started))
			}
			n.started = now
		}
		n.busy = true
		p.inFlight++
		if n.silent > 0 {
			p.silent++
		}
		return true
	}
	return false
}

// stretch is the factor by which all periods grow to keep requests per second within the limit.
func (p *poller) stretch(o Options) float64 {
	wanted := 0.0 // requests per second, by all switches
	for k, n := range cost {
		if kind(k) == readPorts {
			wanted += n / o.Period.Seconds()
		} else {
			wanted += n / o.SlowPeriod.Seconds()
		}
	}
	return max(1, wanted*float64(p.switches)/float64(o.PerSecond))
}

func (p *poller) put(t *turn, due time.Time) {
	t.due, p.turns[t.at].due = due, due
	heap.Fix(&p.turns, t.at)
}

// next returns when the turn, executed now, is due again.
func (p *poller) next(t *turn, now time.Time, o Options) time.Time {
	period := o.SlowPeriod
	if t.kind == readPorts {
		period = o.Period
	}
	period = time.Duration(float64(period) * p.stretch(o))
	if t.n.silent > 0 { // less and less often, down to every 32 s
		return now.Add(period + time.Second<<min(t.n.silent, 5))
	}
	if !t.once {
		t.once = true
		return now.Add(period/2 + time.Duration(t.n.phase*float64(period)))
	}
	if due := t.due.Add(period); due.After(now) {
		return due // it keeps its phase
	}
	return now.Add(period)
}

// measure records the time between two readings of a switch's ports.
func (p *poller) measure(between time.Duration) {
	p.period = cmp.Or(p.period, between)
	p.period += time.Duration(float64(between-p.period) / float64(min(100, max(4, p.switches))))
}

// pacer limits requests per second: a token bucket.
type pacer struct {
	perSecond, burst float64
	tokens           float64 // may be negative after a large answer
	last             time.Time
}

// wait returns the time until a request may be sent; 0: now.
func (p *pacer) wait(now time.Time) time.Duration {
	if p.last.IsZero() {
		p.tokens = p.burst
	} else if gap := now.Sub(p.last); gap > 0 {
		p.tokens = min(p.burst, p.tokens+gap.Seconds()*p.perSecond)
	}
	p.last = now
	if p.tokens >= 1 {
		return 0
	}
	return time.Duration((1-p.tokens)/p.perSecond*1e9) + time.Microsecond
}

func (p *pacer) spend(requests float64) { p.tokens -= requests }

// turns is a heap, the earliest first.
type turns []slot

// slot holds a copy of the turn's time: with thousands of switches, following pointers to scattered
// turns is slow.
type slot struct {
	*turn
	due time.Time
}

func (t turns) Len() int           { return len(t) }
func (t turns) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t turns) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].at, t[j].at = i, j }
func (t *turns) Push(x any)        { x.(slot).at = len(*t); *t = append(*t, x.(slot)) }
func (t *turns) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = slot{}
	*t = (*t)[:last]
	x.at = -1
	return x
}
