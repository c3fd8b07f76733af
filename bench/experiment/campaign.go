package experiment

import (
	"context"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
)

// campaign determines when the rounds of a plan begin: the first at its origin, each other one a
// whole number of periods later, and at most one per period. It is derived from the result file:
// resuming needs no other state, and missed rounds postpone the end.
type campaign struct {
	every  time.Duration // 0: no campaign
	origin time.Time
	last   time.Time // of the last measurement; zero: there is none
	round  int       // of that measurement
}

// campaignOf begins a campaign, or continues that of a result.
func campaignOf(every time.Duration, before *result.Run) campaign {
	c := campaign{every: every, origin: wallClock()}
	if before == nil {
		return c
	}
	c.origin = before.Header.Started
	for i := range before.Samples {
		s := &before.Samples[i]
		c.round = max(c.round, s.Round)
		if ended := s.Started.Add(time.Duration(s.Seconds * float64(time.Second))); ended.After(c.last) {
			c.last = ended
		}
	}
	return c
}

// due returns, at a given time, when a round begins, and how many periods after the one before it.
// A round that has begun continues at once.
func (c *campaign) due(round int, now time.Time) (at time.Time, periods int) {
	if c.every == 0 || round <= c.round || c.last.IsZero() {
		return now, 0
	}
	before := max(0, c.last.Sub(c.origin)/c.every) // the period of the last measurement
	at = c.origin.Add((before + 1) * c.every)
	if at.After(now) {
		return at, 1
	}
	return now, int(now.Sub(c.origin)/c.every - before)
}

// wallClock returns the time without the monotonic clock, which stops while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// await waits for the round of a run; meanwhile no lab, and nothing else made for one, is kept.
func (r *Runner) await(ctx context.Context, run Run, left []Run) error {
	if err := ctx.Err(); err != nil || r.campaign.every == 0 {
		return err
	}
	at, periods := r.campaign.due(run.Round, wallClock())
	if periods > 1 {
		r.say("round %d of %d is %s late", run.Round, r.Plan.Experiment.Times, words.Plural(periods-1, "period"))
	}
	if at.After(wallClock()) {
		r.step(run, left, "down")
		r.down()
		_ = r.release() // remains are removed at the end of the next round
		r.step(run, left, "waiting")
		r.say("round %d of %d begins at %s, in %s", run.Round, r.Plan.Experiment.Times,
			at.Local().Format("2006-01-02 15:04:05 MST"), About(at.Sub(wallClock())))
	}
	for {
		wait := at.Sub(wallClock())
		if wait <= 0 {
			return nil
		}
		select {
		case <-time.After(min(wait, time.Minute)): // the clock may be set, the machine may sleep
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// measuredLast records that a run has been measured.
func (r *Runner) measuredLast(run Run) {
	r.campaign.last, r.campaign.round = wallClock(), max(r.campaign.round, run.Round)
}

// maxPeriod is the maximum time from one round to the next.
const maxPeriod = 366 * 24 * time.Hour

// ParsePeriod reads the time from one round of a campaign to the next: 90s, 12h, 1d, 2w.
func ParsePeriod(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		number, ok := strings.CutSuffix(strings.TrimSpace(s), suffix)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err == nil && n > 0 && time.Duration(n) <= maxPeriod/unit {
			return time.Duration(n) * unit, nil
		}
		return 0, topology.Mistaken("write 1w, 12h or 90s; the longest is a year", "%q is not a period", s)
	}
	d, err := topology.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, topology.Mistaken("write 1w, 12h or 90s; the longest is a year", "%q is not a period", s)
	}
	return time.Duration(d), nil
}
