package verify

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/stats"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// patience is how late a sender gives up packets, in seconds: beyond it less is sent than was to
// be.
const patience = 0.005

// Of a rate that does not hold, or that could not be told, at the first try.
const tries = 3

// rates measures the rates of directions that have one.
func (v *verifier) rates(ctx context.Context, p *plan) error {
	tasks := p.tasks
	judged := map[*Check]bool{}
	var mu sync.Mutex
	v.inTurns(ctx, len(tasks), 1, func(i int) []hop { return nil }, func(i int) {
		if v.late() {
			return
		}
		rate, queue := v.measure(ctx, tasks[i])
		mu.Lock()
		defer mu.Unlock()
		for _, got := range []*Check{rate, queue} {
			if got == nil {
				continue
			}
			c := v.check(tasks[i].hop, got.What)
			if c == nil {
				continue
			}
			if judged[c] {
				*c = better(*c, *got)
			} else {
				*c, judged[c] = *got, true
			}
		}
	}, func(done int) { v.Progress("rates", done, len(tasks)) })
	for i := range v.t.Links {
		for out := range 2 {
			if c := v.check(hop{i, out}, Rate); c != nil && c.Asked == 0 {
				c.Verdict = OK // nothing is promised
			}
		}
	}
	return ctx.Err()
}

// better joins what several ways of sending said of one check: wrong by one is wrong; told by one
// is told.
func better(a, b Check) Check {
	if a.Verdict != Wrong && b.Verdict != Wrong && (a.Verdict == OK) != (b.Verdict == OK) {
		if a.Verdict == OK {
			return a
		}
		return b
	}
	return worse(a, b)
}

// measure measures one direction, again where it seems wrong: a machine that stalls is no fault of
// the lab's.
func (v *verifier) measure(ctx context.Context, t *task) (rate, queue *Check) {
	for try := range tries {
		rate, queue = v.measureOnce(ctx, t, try)
		if rate.Verdict == OK && (queue == nil || queue.Verdict == OK) || rate.AtLeast && rate.Verdict == Untold || ctx.Err() != nil || v.late() {
			break
		}
	}
	return rate, queue
}

// arrival is a packet that came.
type arrival struct {
	at    int64   // nanoseconds since 1970
	delay float64 // seconds, without what the links of its way are to delay it
	bytes float64 // of layer 2; more than it has where links after the one that is measured lose others
}

// window is how long a rate is looked at, in seconds: a full frame's time often enough, and no more
// data than need be.
func (v *verifier) window(rate float64) float64 {
	w := 1.0
	if v.Quick {
		w = 0.25
	}
	if rate > 300e6 {
		w *= 0.6
	}
	return w
}

// load is how a task sends.
type load struct {
	payload  int     // bytes
	frame    int     // bytes of layer 2
	settle   float64 // seconds at the beginning that do not count
	duration float64 // seconds of sending
	share    float64 // of what the task says to send
}

// leastFrames come in a window at least.
const leastFrames = 80

// fullFrame is the largest that passes all ways of a task, in bytes of layer 2.
func (v *verifier) fullFrame(t *task) int {
	frame := topology.MaxMTU + ethernet
	for _, s := range t.shares {
		frame = min(frame, v.frame(s.way))
	}
	return frame
}

// load is how a task is sent at a try: later ones take longer, and offer less, which costs a busy
// machine less.
func (v *verifier) load(t *task, try int) load {
	asked, e := v.rate(t.hop), v.egress(t.hop)
	window := v.window(asked) * float64(1+try)
	over := overhead(v.address[t.shares[0].to])
	frame := v.fullFrame(t)
	size := min(frame, max(over+packets.HeaderLen, int(asked*window/8/leastFrames)))
	if tailLimit(e) > 0 {
		size = frame // queues are of full packets
	}
	offer := oversubscribe(asked)
	share := 1.0
	if try > 0 && t.narrow.link < 0 {
		share = (1 + (offer-1)*0.6) / offer
	}
	excess := asked * (offer*share - 1)
	// A bucket of tokens lets 5 ms, or two frames, go at once.
	settle := 1.2*8*max(2*float64(frame), asked/8/200)/excess + 0.02
	if q := tailLimit(e); q > 0 { // until it is full
		settle += 8 * float64(frame*(q+1)) / excess
	}
	window = max(window, 30*8*float64(size)/asked)
	return load{size - over, size, settle, settle + window, share}
}

// mostSettling is the longest that a queue is waited for to be full, in seconds.
const mostSettling = 8

// measureOnce sends what a task says, and looks at what comes.
func (v *verifier) measureOnce(ctx context.Context, t *task, try int) (rate, queue *Check) {
	asked := v.rate(t.hop)
	rate = &Check{What: Rate, Asked: asked, Verdict: Untold}
	l := v.load(t, try)
	if q := tailLimit(v.egress(t.hop)); q > 0 {
		queue = &Check{What: Queue, Asked: float64(q), Verdict: Untold}
		if l.settle > mostSettling {
			queue.untold("it would take %.3g s to fill it", l.settle)
			l.duration -= l.settle - mostSettling
			l.settle = mostSettling
		}
	}
	for _, s := range t.shares {
		rate.By = append(rate.By, s.name())
	}
	before := readProcessors()
	outs := v.sendAll(ctx, t, l)
	busy := before.busySince()
	var arrivals []arrival
	from, until := int64(0), int64(math.MaxInt64)
	offered, lag, dropped := 0.0, 0.0, 0
	for i, o := range outs {
		if o.err != nil {
			rate.untold("%s: %v", t.shares[i].name(), o.err)
			return rate, queue
		}
		d := int64(v.delayOf(t.shares[i].way))
		from = max(from, o.sent.Began+d+int64(l.settle*1e9))
		until = min(until, o.sent.Began+d+int64(o.sent.Seconds*1e9))
		arrive, after := v.kept(t.shares[i].way, t.hop)
		offered += o.sent.Rate() * float64(l.frame) * 8 * arrive
		lag, dropped = max(lag, o.sent.Lag.Max), dropped+o.got.Dropped
		for n, sent := range o.got.Record.Sent {
			if sent != 0 {
				delay := o.got.Record.Delay[n]
				arrivals = append(arrivals, arrival{sent + delay, float64(delay-d) / 1e9, float64(l.frame) / after})
			}
		}
	}
	arrivals = slices.DeleteFunc(arrivals, func(a arrival) bool { return a.at < from || a.at > until })
	slices.SortFunc(arrivals, func(a, b arrival) int { return int(max(-1, min(1, a.at-b.at))) })
	if len(arrivals) < 20 {
		rate.untold("the senders did not send at the same time for long enough, or too little came (%d packets)", len(arrivals))
		return rate, queue
	}
	got := rateOf(arrivals)
	if middle := middleRate(arrivals); got < asked*(1-rateOff) && middle <= asked*(1+rateOff) {
		got = max(got, middle) // a sender that stalled for a moment leaves a gap; the other parts tell what the link carries
	}
	v.judgeRate(rate, t, got, offered, lag, dropped, busy)
	if queue != nil && queue.Why == "" {
		v.judgeQueue(queue, t, arrivals, rate)
	}
	return rate, queue
}

// rateOf is the rate at which packets came, in bit/s: of those after the first.
func rateOf(a []arrival) float64 {
	sum := 0.0
	for _, one := range a[1:] {
		sum += one.bytes
	}
	return 8 * sum / (float64(max(1, a[len(a)-1].at-a[0].at)) / 1e9)
}

// parts are how many parts of a window the middle rate is of.
const parts = 9

// middleRate is the median of the rates of parts of equally many packets.
func middleRate(a []arrival) float64 {
	var rates []float64
	for i := range parts {
		if part := a[i*len(a)/parts : (i+1)*len(a)/parts]; len(part) > 1 {
			rates = append(rates, rateOf(part))
		}
	}
	slices.Sort(rates)
	return stats.Quantile(rates, 0.5)
}

// comes is the share of what crosses a direction that receivers get: what is damaged they throw
// away, and count once what comes twice.
func comes(e topology.Impairment) float64 {
	return (1 - float64(e.Loss)) * (1 - float64(e.Corrupt)) / (1 + float64(e.Duplicate))
}

func (v *verifier) judgeRate(c *Check, t *task, got, offered, lag float64, dropped int, busy bool) {
	asked := c.Asked
	switch {
	case got > asked*(1+rateOff):
		c.wrong(got, "the bandwidth does not hold in this direction: %s of %s came, sent by %s", bits(got), bits(asked), several(len(t.shares)))
	case t.narrow.link >= 0:
		c.AtLeast = true
		c.Got = &got
		if r := v.rate(t.narrow); r >= asked {
			c.untold("at least %s: %s, on every path to it, carries no more", bits(got), v.nameOf(t.narrow))
		} else {
			c.untold("at least %s: %s, on every path to it, is narrower", bits(got), v.nameOf(t.narrow))
		}
	case offered < asked*(1+rateOff):
		c.AtLeast = true
		c.Got = &got
		c.untold("at least %s: this machine sends no more than %s", bits(got), bits(offered))
	case got >= asked*(1-rateOff)*comes(v.egress(t.hop)): // what it loses may have taken its time
		c.set(got)
	case lag > patience || dropped > 0:
		c.Got = &got
		c.untold("the machine is too busy: a sender was late by %.3g ms, and receivers missed %s", 1e3*lag, words.Plural(dropped, "packet"))
	case busy:
		c.Got = &got
		c.untold("the machine is too busy: its processors were never idle while %s came", bits(got))
	default:
		c.wrong(got, "%s came, not %s", bits(got), bits(asked))
	}
}

// judgeQueue takes how long packets waited once the queue was full.
func (v *verifier) judgeQueue(c *Check, t *task, arrivals []arrival, rate *Check) {
	if rate.Verdict != OK {
		c.untold("the rate is not as asked")
		return
	}
	var waits []float64
	for _, a := range arrivals {
		waits = append(waits, a.delay)
	}
	slices.Sort(waits)
	got := math.Round(max(0, stats.Quantile(waits, 0.75)) * rate.Asked / 8 / float64(v.fullFrame(t)))
	if math.Abs(got-c.Asked) <= max(2, queueOff*c.Asked) {
		c.set(got)
		return
	}
	c.wrong(got, "it holds %.0f packets, not %.0f", got, c.Asked)
}

// delayOf is what the links of a way delay packets by in sum.
func (v *verifier) delayOf(way []hop) (sum time.Duration) {
	for _, h := range way {
		sum += time.Duration(v.egress(h).Delay)
	}
	return sum
}

// outcome is that of one flow.
type outcome struct {
	sent *packets.Sent
	got  *packets.Received
	err  error
}

// sendAll sends all flows of a task at once.
func (v *verifier) sendAll(ctx context.Context, t *task, l load) []outcome {
	outs := make([]outcome, len(t.shares))
	var group sync.WaitGroup
	for i, s := range t.shares {
		group.Go(func() {
			rate := s.rate * l.share / 8 / float64(l.frame)
			send := packets.Send{To: netip.AddrPortFrom(v.address[s.to], 0), Stream: uint16(rand.Uint32()), Size: l.payload, Rate: rate,
				Count: max(1, int(rate*(l.duration+0.1*float64(len(t.shares)-1))))} // they begin one after the other
			quiet := 100*time.Millisecond + v.delayOf(s.way) + inTime(4*8*float64(l.frame)/v.rate(t.hop)*float64(len(t.shares)))
			o := &outs[i]
			o.sent, o.got, o.err = packets.Measure(ctx, v.node(s.from), v.node(s.to), send, packets.Receive{Record: true}, quiet)
			if o.err == nil && (o.got == nil || o.got.Record == nil) {
				o.err = fmt.Errorf("the receiver reported nothing")
			}
		})
	}
	group.Wait()
	return outs
}

func several(n int) string {
	if n == 1 {
		return "one sender"
	}
	return fmt.Sprintf("%d at once", n)
}

// bits writes a rate for people.
func bits(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3g Gbit/s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3g Mbit/s", v/1e6)
	}
	return fmt.Sprintf("%.3g kbit/s", v/1e3)
}

// downs tries whether packets come over links that are to be down, where no other way leads round
// them.
func (v *verifier) downs(ctx context.Context) error {
	for i, l := range v.t.Links {
		if !l.Down || l.Ends[0].External() || l.Ends[1].External() {
			continue
		}
		for out := range 2 {
			h := hop{i, out}
			c := v.check(h, Up)
			from, to := v.reach(v.near(h)), v.reach(v.far(h))
			if from == "" || to == "" || from == to || v.back(v.tree(from, nil), to) != nil {
				if c.Why == "" && c.Got == nil {
					c.untold("the link has no device, and separates no two hosts")
				}
				continue
			}
			got, err := v.client.Ping(ctx, lab.PingRequest{From: from, To: v.address[to].String(), Count: 2,
				Interval: topology.Duration(50 * time.Millisecond), Timeout: topology.Duration(300 * time.Millisecond)})
			if err == nil && got.Received > 0 {
				c.wrong(1, "%s gets an answer from %s", from, to)
			} else if c.Verdict != Wrong {
				c.set(0)
			}
			c.By = []string{from + " → " + to}
		}
	}
	return ctx.Err()
}

// reach is a node that can send, is nearest to another, and is joined to it.
func (v *verifier) reach(node string) string {
	if _, ok := v.address[node]; ok && own(v.nodes[node]) {
		return node
	}
	came := v.tree(node, nil)
	for _, e := range v.ends {
		if _, ok := came[e]; ok {
			return e
		}
	}
	return ""
}
