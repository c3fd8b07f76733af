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

// campaign is when the rounds of a plan begin: the first at its origin, each other one at a whole
// number of periods after it, and never two in one period. All of it is in the result file: what
// goes on needs no other memory, and rounds that were missed move the end.
type campaign struct {
	every  time.Duration // 0: it is none
	origin time.Time
	last   time.Time // when something was measured last; zero: nothing was
	round  int       // the one that this was of
}

// campaignOf begins a campaign, or goes on with that of a result.
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

// due is when a round begins, and how many periods after the one before it, at a given time. One
// that has begun goes on at once.
func (c *campaign) due(round int, now time.Time) (at time.Time, periods int) {
	if c.every == 0 || round <= c.round || c.last.IsZero() {
		return now, 0
	}
	before := max(0, c.last.Sub(c.origin)/c.every) // the period in which something was measured last
	at = c.origin.Add((before + 1) * c.every)
	if at.After(now) {
		return at, 1
	}
	return now, int(now.Sub(c.origin)/c.every - before)
}

// wallClock is the time without the reading of the monotonic clock, which stands still while the
// machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// await waits for the round of a run, without a lab or anything else that was made for one.
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
		_ = r.release() // what is left, the end of the next round removes
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

// measuredLast notes that a run has been measured.
func (r *Runner) measuredLast(run Run) {
	r.campaign.last, r.campaign.round = wallClock(), max(r.campaign.round, run.Round)
}

// maxPeriod is the longest from one round to the next.
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
