package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trivet.dev/trivet/bench/stats"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// How far something may be off and be right.
const (
	rateOff    = 0.05   // share of a rate
	delayOff   = 0.05   // share of a delay
	delayFloor = 0.0005 // seconds that a delay may always be off: timers and wake-ups
	jitterOff  = 0.30   // share of a jitter
	queueOff   = 0.15   // share of a queue
	lossSure   = 0.999  // confidence of the interval that a loss must be in
)

func (c *Check) set(got float64) {
	c.Got, c.Verdict, c.Why = &got, OK, ""
}

func (c *Check) wrong(got float64, format string, args ...any) {
	c.Got, c.Verdict, c.Why = &got, Wrong, fmt.Sprintf(format, args...)
}

func (c *Check) untold(format string, args ...any) {
	c.Verdict, c.Why = Untold, fmt.Sprintf(format, args...)
}

// sample is what two points of a stream say of the direction between them.
type sample struct {
	delays  []float64 // seconds, of small packets
	lost    int
	of      int
	largest int // frame; full: of those that were sent
	full    int
	by      string
}

// judgeTraces says of each direction what the stream with most packets over it showed.
func (v *verifier) judgeTraces(traces []*trace) {
	if v.RateOnly {
		return
	}
	best := map[hop]*sample{}
	for _, t := range traces {
		for i := 1; i < len(t.points); i++ {
			s := t.sample(i)
			hops := t.points[i].hops
			for _, h := range hops {
				one := *s
				if last := hops[len(hops)-1]; h != last && s.lost < s.of {
					// Of links without devices before one that has one it is known that these
					// packets crossed them; and, where that one is to delay nothing, that they took
					// no longer in sum.
					one = sample{of: s.of - s.lost, largest: s.largest, full: s.full, by: s.by}
					if v.egress(last).Delay == 0 {
						one.delays = s.delays
					}
				}
				if b := best[h]; b == nil || one.of-one.lost > b.of-b.lost {
					best[h] = &one
				}
			}
		}
	}
	for h, s := range best {
		v.judgeSample(h, s)
	}
	v.judgeMTUs(traces)
}

// sample compares a point of a stream with the one before.
func (t *trace) sample(i int) *sample {

	before, here := t.points[i-1], t.points[i]
	s := &sample{by: t.name(), largest: here.largest, full: t.frame}
	small := uint64(max(0, t.sent-t.full))
	for n := range uint64(t.sent) {
		at, came := here.at[n]
		was, left := before.at[n]
		if i == 1 {
			left = true // the sender sent it, whether or not it is known when
		}
		if n >= small {
			if came && i == len(t.points)-1 && here.largest == 0 {
				s.largest = t.frame // the receiver has one that was sent so
			}
			continue
		}
		if !left {
			continue
		}
		s.of++
		if !came {
			s.lost++
		} else if was != 0 {
			s.delays = append(s.delays, float64(at-was)/1e9)
		}
	}
	slices.Sort(s.delays)
	return s
}

func (v *verifier) judgeSample(h hop, s *sample) {
	d := &v.result.Links[h.link].Directions[h.out]
	came := s.of - s.lost
	stop := v.mayStop(h)
	for i := range d.Checks {
		c := &d.Checks[i]
		if c.What != Rate && c.What != Queue && c.What != MTU {
			c.By = []string{s.by}
		}
		switch c.What {
		case Up:
			switch {
			case came > 0:
				c.set(1)
			case s.of == 0:
				c.untold("%s put no packet into it: is a route missing there?", v.near(h))
			case stop != "":
				c.untold("none of %d packets came through it, %s", s.of, stop)
			default:
				c.wrong(0, "none of %d packets came through it", s.of)
			}
		case Delay:
			v.judgeDelay(c, h, s.delays)
		case Jitter:
			if v.egress(h).Reorder > 0 {
				c.untold("packets that overtake others take no time at all")
				break
			}
			v.judgeJitter(c, s.delays)
		case Loss:
			if came == 0 && (stop != "" || s.of == 0) {
				c.untold("no packet came through it")
			} else {
				judgeLoss(c, v.egress(h), v.damaged(h), s.lost, s.of)
			}
		}
	}
}

// mayStop is why a direction may rightly get no packets, or empty: where a controller of the
// user's own decides what goes there, it may be a firewall, and of routes that are as written the
// one over it may not be.
func (v *verifier) mayStop(h hop) string {
	n := v.nodes[v.near(h)]
	switch {
	case n.IsDatapath() && slices.ContainsFunc(n.Controllers, func(c string) bool {
		return c != topology.ControllerNone && !v.t.IsBuiltin(c)
	}):
		return "which the controller of " + n.Name + " may intend"
	case n.Kind == topology.Router && v.t.Routes == topology.RoutesAsWritten:
		return "as there may be no route over it at " + n.Name + ", whose routes are as written"
	}
	return ""
}

// judgeDelay takes the median; what is too long for the middle of them, and right for the fastest,
// may be the machine's.
func (v *verifier) judgeDelay(c *Check, h hop, delays []float64) {
	if len(delays) == 0 {
		if !v.hasDevice(h.link) {
			c.untold("the link has no device: it is one with the next, which has a delay")
			return
		}
		c.untold("no packet came through it")
		return
	}
	off := max(delayFloor, delayOff*c.Asked)
	slack := 0.0
	if e := v.egress(h); e.Bandwidth > 0 && v.wires[h.link] == datapath.Line { // a packet takes its time on the wire
		slack = 8 * 80 / float64(e.Bandwidth)
	}
	if e := v.egress(h); e.Jitter > 0 { // of few packets the median is off by its own spread; and none comes before it was sent
		j := time.Duration(e.Jitter).Seconds()
		off += 4 * j / math.Sqrt(float64(len(delays)))
		if 3*j > c.Asked {
			off += j
		}
	}
	right := func(d float64) bool { return (d >= c.Asked-off || c.Asked == 0) && d <= c.Asked+off+slack }
	median, fast := stats.Quantile(delays, 0.5), stats.Quantile(delays, 0.1)
	switch {
	case right(median):
		c.set(max(0, median))
	case v.egress(h).Reorder >= 0.4:
		c.Got = &median
		c.untold("too many packets overtake others to tell what the others take")
	case median > c.Asked && (right(fast) || v.busy):
		c.Got = &median
		c.untold("the machine is too busy: half of the packets took %.3g ms or longer, the fastest %.3g ms", 1e3*median, 1e3*delays[0])
	default:
		c.wrong(max(0, median), "packets take %.3g ms, not %.3g ms", 1e3*max(0, median), 1e3*c.Asked)
	}
}

// enoughDelays is how many say something of their spread.
const enoughDelays = 50

func (v *verifier) judgeJitter(c *Check, delays []float64) {
	if len(delays) < enoughDelays {
		c.untold("too few packets to judge it (%d)", len(delays))
		return
	}
	most := stats.Quantile(delays, 0.99) // beyond it a busy machine is at work
	var kept []float64
	for _, d := range delays {
		if d <= most {
			kept = append(kept, d)
		}
	}
	var mean, sum float64
	for _, d := range kept {
		mean += d / float64(len(kept))
	}
	for _, d := range kept {
		sum += (d - mean) * (d - mean)
	}
	sd := math.Sqrt(sum / float64(len(kept)-1))
	off := (jitterOff+2/math.Sqrt(float64(len(kept))))*c.Asked + 0.0002
	if math.Abs(sd-c.Asked) <= off {
		c.set(sd)
		return
	}
	if sd > c.Asked && v.busy {
		c.Got = &sd
		c.untold("the machine is too busy: the delay varies by %.3g ms", 1e3*sd)
		return
	}
	c.wrong(sd, "the delay varies by %.3g ms, not %.3g ms (standard deviation)", 1e3*sd, 1e3*c.Asked)
}

// damaged is the share of packets that links other than a direction may have damaged.
func (v *verifier) damaged(but hop) float64 {
	whole := func(h hop) float64 { return max(1e-9, 1-float64(v.egress(h).Corrupt)) }
	if v.whole == 0 {
		v.whole = 1
		for i := range v.t.Links {
			v.whole *= whole(hop{i, 0}) * whole(hop{i, 1})
		}
	}
	return 1 - v.whole/whole(but)
}

// judgeLoss takes what is lost, and as much of what is damaged, here or before, as there may be:
// who receives it throws it away. Of packets that come twice one may be lost.
func judgeLoss(c *Check, e topology.Impairment, damaged float64, lost, of int) {
	if of == 0 {
		c.untold("no packet came this far")
		return
	}
	shown, err := stats.Wilson(lost, of, 0.95)
	sure, err2 := stats.Wilson(lost, of, lossSure)
	if firstOf(err, err2) != nil {
		c.untold("%v", firstOf(err, err2))
		return
	}
	low, high := float64(shown.Low), float64(shown.High)
	c.Low, c.High = &low, &high
	got := float64(lost) / float64(of)
	least, most := c.Asked*(1-float64(e.Duplicate)), 1-(1-c.Asked)*(1-float64(e.Corrupt))*(1-damaged)
	switch {
	case most == 0 && lost == 0, most > 0 && float64(sure.Low) <= most && least <= float64(sure.High):
		c.set(got)
	case e.LossCorrelation > 0 && c.Asked > 0:
		c.Got = &got
		c.untold("losses that depend on each other are not the share that was asked for, as with netem")
	default:
		c.wrong(got, "%d of %d packets were lost, which is not %.4g %%", lost, of, 100*c.Asked)
	}
}

// worse keeps, of several outcomes of a check, the one that says most against it.
func worse(a, b Check) Check {
	rank := map[Verdict]int{OK: 0, Untold: 1, Wrong: 2}
	if cmp.Compare(rank[b.Verdict], rank[a.Verdict]) > 0 {
		return b
	}
	return a
}
