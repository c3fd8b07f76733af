package verify

import (
	"fmt"
	"math"

	"trivet.dev/trivet/internal/words"
)

// finding is the result of one look at a direction that a task was to fill.
type finding int

const (
	nothing finding = iota
	atLeast         // all that came to it came through, but that was not enough to tell
	right
	tooLittle
	tooMuch
)

// find compares the rate that came out of a direction with the one that is asked for, and with the
// one that went in: more than asked for is always wrong, less only if more went in.
func (v *verifier) find(p *passage) finding {
	asked, kept := v.rate(p.hop), comes(v.egress(p.hop))
	// A sender that stalled for a moment leaves a gap; the other parts tell what the link carries.
	out := max(p.out, p.middle)
	switch {
	case min(p.out, p.middle) > asked*(1+rateOff):
		return tooMuch
	case out >= asked*(1-rateOff)*kept && (math.IsNaN(p.in) || p.in >= asked*(1+rateOff)):
		return right
	case math.IsNaN(p.in):
		return nothing
	case p.in >= asked*(1+rateOff) || p.drops && out < p.in*(1-2*rateOff)*kept:
		return tooLittle
	}
	return atLeast
}

// side is a quantity of a direction, measured by one sender or by several at once.
type side struct {
	hop
	what string
	many bool
}

// evidence collects the results of all looks at a side.
type evidence struct {
	right  int
	failed int
	got    *float64 // at the last look that was conclusive; before that, the maximum that came
	said   string   // finding of the last look that failed
	unsure string   // why the last look was inconclusive
	narrow *hop     // a direction on the way that let no more through
	again  bool     // another look may be conclusive
	by     []string
}

func (e *evidence) told() bool { return e.right+e.failed > 0 }

func (e *evidence) holds(got float64) { e.right, e.got = e.right+1, &got }

func (e *evidence) fails(got float64, format string, args ...any) {
	e.failed, e.got, e.said = e.failed+1, &got, fmt.Sprintf(format, args...)
}

// open records why a look was inconclusive; again says that another may not be.
func (e *evidence) open(again bool, format string, args ...any) {
	e.again, e.unsure = again, fmt.Sprintf(format, args...)
}

func (v *verifier) evidenceOf(h hop, what string, many bool) *evidence {
	s := side{h, what, many}
	if v.evidence[s] == nil {
		v.evidence[s] = &evidence{}
	}
	return v.evidence[s]
}

// learn evaluates a look at the direction of its task.
func (v *verifier) learn(r *reading) {
	many := len(r.shares) > 1
	e := v.evidenceOf(r.hop, Rate, many)
	q := v.evidenceOf(r.hop, Queue, many)
	q.open(false, "it could not be filled: the rate is not known to be as asked")
	e.by = nil
	for _, s := range r.shares {
		e.by = append(e.by, s.name())
	}
	if q.by = e.by; r.err != nil {
		e.open(true, "%v", r.err)
		return
	}
	all := v.passages(r)
	var p *passage
	for _, one := range all {
		if one.hop == r.hop {
			p = one
		}
	}
	if p == nil {
		e.open(true, "the senders did not send at the same time for long enough, or their packets went other ways")
		return
	}
	asked := v.rate(r.hop)
	got := max(p.out, p.middle)
	if r.busy == "" && p.missed > 0 {
		r.busy = fmt.Sprintf("taps missed %s", words.Plural(p.missed, "packet"))
	}
	switch f := v.find(p); {
	case f == tooMuch:
		e.fails(p.out, "the bandwidth does not hold in this direction: %s of %s came, sent by %s", bits(p.out),
			bits(asked), several(len(r.shares)))
	case f == right:
		e.holds(p.out)
		v.learnQueue(q, r, p, all)
	case f == tooLittle && r.busy != "":
		e.open(true, "the machine is too busy: %s while %s came", r.busy, bits(p.out))
		e.least(got)
	case f == tooLittle:
		e.fails(got, "%s came, not %s, of %s that were sent into it by %s", bits(got), bits(asked), bits(p.in),
			several(len(r.shares)))
	case f == atLeast:
		e.least(got)
		v.learnLimit(e, r, p, all)
	default:
		e.open(true, "its packets took several ways at once")
	}
}

func (e *evidence) least(got float64) {
	if !e.told() && (e.got == nil || got > *e.got) {
		e.got = &got
	}
}

// learnLimit records what limited the rate that came to a direction: an earlier direction that
// dropped packets, one that is known to be narrow, or the machine.
func (v *verifier) learnLimit(e *evidence, r *reading, p *passage, all []*passage) {
	for _, one := range all {
		if one.hop == p.hop {
			break
		}
		if f := v.find(one); one.drops && (f == tooLittle || f == right) {
			if f == tooLittle && r.busy != "" {
				e.open(true, "the machine is too busy: %s while %s came", r.busy, bits(p.out))
				return
			}
			e.narrow = &one.hop
			e.open(f == tooLittle, "at least %s: %s let no more through", bits(max(p.out, p.middle)), v.nameOf(one.hop))
			return
		}
	}
	if r.narrow.link >= 0 {
		e.narrow = &r.narrow
		how := "is narrower"
		if v.rate(r.narrow) >= v.rate(r.hop) {
			how = "carries no more"
		}
		e.open(false, "at least %s: %s, on every path to it, %s", bits(max(p.out, p.middle)), v.nameOf(r.narrow), how)
		return
	}
	e.open(false, "at least %s: this machine sends no more than %s", bits(max(p.out, p.middle)), bits(p.in))
}

// faulty returns the evidence that a direction has brought too little at every conclusive look;
// otherwise nil.
func (v *verifier) faulty(h hop) *evidence {
	for _, many := range []bool{false, true} {
		if e := v.evidence[side{h, Rate, many}]; e != nil && e.failed > 0 && e.right == 0 && *e.got < v.rate(h) {
			return e
		}
	}
	return nil
}

// carries returns the known rate of a direction: the one that is asked for, or less if less came.
func (v *verifier) carries(h hop) float64 {
	if e := v.faulty(h); e != nil {
		return *e.got
	}
	return v.rate(h)
}

// unsettled returns those tasks, planned with what is known by now, that another look may settle.
func (v *verifier) unsettled(tasks []*task) (out []*task) {
	for _, t := range tasks {
		settled := true
		for _, what := range []string{Rate, Queue} {
			e := v.evidence[side{t.hop, what, len(t.shares) > 1}]
			switch {
			case e == nil:
				settled = settled && what == Queue
			case e.failed > 0:
				settled = settled && e.failed+e.right >= tries
			case e.right == 0:
				settled = settled && (!e.again || t.narrow.link >= 0 && e.got != nil)
			}
		}
		if !settled {
			out = append(out, t)
		}
	}
	return out
}

// conclude sums up all looks at a direction.
func (v *verifier) conclude(h hop) {
	for _, what := range []string{Rate, Queue} {
		c := v.check(h, what)
		if c == nil || c.Verdict != Untold || c.Why != "" {
			continue
		}
		if what == Rate && c.Asked == 0 {
			c.Verdict = OK // nothing is promised
			continue
		}
		var verdicts []Check
		for _, many := range []bool{false, true} {
			if e := v.evidence[side{h, what, many}]; e != nil {
				verdicts = append(verdicts, v.verdict(*c, h, e))
			}
		}
		if len(verdicts) > 0 {
			*c = verdicts[0]
		}
		if len(verdicts) > 1 {
			*c = better(verdicts[0], verdicts[1])
		}
	}
}

// verdict returns the verdict from the evidence of a side.
func (v *verifier) verdict(c Check, h hop, e *evidence) Check {
	c.By, c.Looks, c.Failed = e.by, e.right+e.failed, e.failed
	switch {
	case e.failed > 0 && e.right == 0:
		c.wrong(*e.got, "%s", e.said)
	case e.failed > 0:
		c.Got = e.got
		c.untold("%s: in %d of %d looks", e.said, e.failed, e.failed+e.right)
	case e.right > 0:
		c.set(*e.got)
	default:
		c.Got, c.AtLeast = e.got, e.got != nil && c.What == Rate
		if c.untold("%s", e.unsure); e.narrow != nil && v.faulty(*e.narrow) != nil && e.got != nil {
			c.untold("at least %s: %s, which is wrong, let no more through", bits(*e.got), v.nameOf(*e.narrow))
		}
	}
	return c
}

// better combines the results of one check by several ways of sending: wrong if one is wrong,
// untold if one comes and goes, otherwise told if one is.
func better(a, b Check) Check {
	switch {
	case a.Verdict == Wrong || b.Verdict == Wrong:
		return worse(a, b)
	case a.Failed > 0:
		return a
	case b.Failed > 0 || b.Verdict == OK:
		return b
	}
	return a
}
