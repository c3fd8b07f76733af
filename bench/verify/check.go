package verify

import (
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/topology"
)

// Verdict is the result of a check.
type Verdict string

// Verdicts.
const (
	OK     Verdict = "ok"
	Wrong  Verdict = "wrong"
	Untold Verdict = "untold" // it cannot be told here; Why says why
)

// Quantities that are checked for a direction of a link, and their units.
const (
	Rate   = "rate"   // bit/s of layer 2: Ethernet header counted, preamble and FCS not
	Delay  = "delay"  // s, one way
	Jitter = "jitter" // s, standard deviation of the delay
	Loss   = "loss"   // share of packets, in [0, 1]
	Queue  = "queue"  // packets of 1514 bytes
	MTU    = "mtu"    // bytes of layer 3
	Up     = "up"     // 1: packets cross the link, 0: none do

	Reorder   = "reorder"   // share of packets that overtake others
	Duplicate = "duplicate" // share of packets that come more than once
	Corrupt   = "corrupt"   // share of packets that are damaged
)

// Measured are the quantities of links that are up, in the order in which they are shown, with
// units: % for shares, none for counts.
var Measured = []struct{ What, Unit string }{{Rate, "bit/s"}, {Delay, "s"}, {Jitter, "s"}, {Loss, "%"}, {Reorder, "%"},
	{Duplicate, "%"}, {Corrupt, "%"}, {Queue, ""}, {MTU, ""}}

// Check is a property that was asked for, and its actual value.
type Check struct {
	What    string   `json:"what" enum:"rate,delay,jitter,loss,reorder,duplicate,corrupt,queue,mtu,up"`
	Asked   float64  `json:"asked" doc:"bit/s, s, share, packets, bytes; 0 of a rate: not limited"`
	Got     *float64 `json:"got,omitempty" doc:"As it was measured; missing: nothing could be"`
	Low     *float64 `json:"low,omitempty" doc:"95 % interval of a share of packets"`
	High    *float64 `json:"high,omitempty"`
	AtLeast bool     `json:"at_least,omitempty" doc:"The direction may carry more: another link on the way did not let more come"`
	Verdict Verdict  `json:"verdict" enum:"ok,wrong,untold"`
	Why     string   `json:"why,omitempty" doc:"What is wrong, or why it cannot be told"`
	By      []string `json:"by,omitempty" doc:"Who sent to whom"`
	Default bool     `json:"default,omitempty" doc:"Of a queue: nobody asked for its length, it is what a link has that says nothing of it"`
	Looks   int      `json:"looks,omitempty" doc:"How often it was measured"`
	Failed  int      `json:"failed,omitempty" doc:"How often it was wrong: as often as it was measured where the verdict is wrong; fewer times, and something comes and goes"`
}

func (c *Check) set(got float64) {
	c.Got, c.Verdict, c.Why = &got, OK, ""
}

func (c *Check) wrong(got float64, format string, args ...any) {
	c.Got, c.Verdict, c.Why = &got, Wrong, fmt.Sprintf(format, args...)
}

func (c *Check) untold(format string, args ...any) {
	c.Verdict, c.Why = Untold, fmt.Sprintf(format, args...)
}

// asked lists what the topology promises of a direction.
func (v *verifier) asked(h hop) []Check {
	l := v.t.Links[h.link]
	e := l.Egress(h.out)
	ask := func(what string, asked float64) Check { return Check{What: what, Asked: asked, Verdict: Untold} }
	if l.Down {
		return []Check{ask(Up, 0)}
	}
	if v.Look {
		return []Check{ask(Up, 1)}
	}
	checks := []Check{ask(Up, 1), ask(Rate, float64(e.Bandwidth)), ask(Delay, v.takes80(h))}
	if e.Jitter > 0 {
		checks = append(checks, ask(Jitter, time.Duration(e.Jitter).Seconds()))
	}
	checks = append(checks, ask(Loss, float64(e.Loss)), ask(Reorder, float64(e.Reorder)),
		ask(Duplicate, float64(e.Duplicate)), ask(Corrupt, float64(e.Corrupt)))
	if e.Bandwidth > 0 {
		c := ask(Queue, float64(e.QueueLimit()))
		if c.Default = e.Queue == (topology.Queue{}); e.Queue.Managed() {
			c.Asked = 0
			c.untold("how long a queue of %s becomes depends on who sends", e.Queue.Discipline)
		}
		checks = append(checks, c)
	}
	return append(checks, ask(MTU, float64(min(l.MTUAt(0), l.MTUAt(1)))))
}

// judgeOne judges a check by samples.
func (v *verifier) judgeOne(c *Check, h hop, samples []*sample) {
	e := v.egress(h)
	living := slices.DeleteFunc(slices.Clone(samples),
		func(s *sample) bool { return s.dead() && v.mayRefuse(h, s) != "" })
	came := 0
	for _, s := range samples {
		came += s.of - s.lost
	}
	if c.By = namesOf(samples); came == 0 {
		v.judgeNone(c, h, samples)
		return
	}
	loss, corrupt, duplicate := float64(e.Loss), float64(e.Corrupt), float64(e.Duplicate)
	switch c.What {
	case Up:
		c.set(1)
	case Delay:
		v.judgeDelay(c, h, samples)
	case Jitter:
		if e.Reorder > 0 {
			c.untold("packets that overtake others take no time at all")
			break
		}
		v.judgeJitter(c, joined(samples))
	case Loss: // one of two copies may be lost, and damaged packets may be unreadable
		excuse := "the machine is too busy"
		if slices.ContainsFunc(living, func(s *sample) bool { return s.missed > 0 }) {
			excuse = "taps missed some"
		}
		v.judgeShare(c, living, happening{what: "were lost", get: func(s *sample) (int, int) {
			return s.lost, s.missed + s.late
		}, excuse: excuse,
			least: loss * (1 - duplicate), most: 1 - (1-loss)*(1-unreadable*corrupt), depends: e.LossCorrelation > 0})
	case Corrupt:
		v.judgeShare(c, living, happening{what: "were damaged", get: func(s *sample) (int, int) { return s.damaged, 0 },
			least: corrupt * (1 - loss) * (1 - unreadable), most: corrupt, depends: e.CorruptCorrelation > 0})
	case Duplicate:
		v.judgeShare(c, living,
			happening{what: "came more than once", get: func(s *sample) (int, int) { return s.again, 0 },
				least: duplicate * (1 - loss) * (1 - loss) * (1 - corrupt) * (1 - corrupt), most: duplicate,
				depends: e.DuplicateCorrelation > 0})
	case Reorder:
		v.judgeReorder(c, e, living)
	}
}
