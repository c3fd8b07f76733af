package experiment

import (
	"fmt"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// leastMost is the minimum of the maximum number of repetitions: a report concludes nothing from
// fewer.
const leastMost = 5

// manyLooks is about the maximum number of looks of an experiment that continues until it is
// decided: with more, each would judge by a stricter level, and little time would be saved.
const manyLooks = 10

// until reads the key of that name.
func (r *reader) until(v *yamlfile.Value) {
	if !r.scalar(v, "until") {
		return
	}
	if err := CheckUntil(v.Text); err != nil {
		text, hint := topology.TextAndHint(err)
		r.add(v, hint, "until: %s", text)
	}
	r.e.Until = true
}

// CheckUntil refuses unknown rules.
func CheckUntil(rule string) error {
	if rule != result.UntilDecided {
		return topology.Mistaken("write "+result.UntilDecided, "%q: an experiment goes on until it is decided", rule)
	}
	return nil
}

// GoOn makes the experiment continue until it is decided, with at most so many repetitions; 0: as
// many as its file says.
func (e *Experiment) GoOn(most int) {
	if e.Until = true; most > 0 {
		e.Repetitions, e.Wanted = most, most
	}
}

// Fix makes the experiment have as many repetitions as its file says, whatever they decide.
func (e *Experiment) Fix() {
	if e.Until {
		e.Until, e.Repetitions, e.Wanted = false, e.fixed, e.fixed
	}
}

// sequential reports why an experiment cannot continue until it is decided.
func (e *Experiment) sequential() error {
	switch {
	case e.Times > 0:
		return topology.Mistaken("leave until: out, or --every",
			"until: a campaign has as many rounds as it is told to")
	case e.Order == Random:
		return topology.Mistaken("write order: blocked",
			"until: it is judged after whole repetitions of all cells, which order: random mixes")
	case e.Repetitions < leastMost:
		return topology.Mistaken(fmt.Sprintf("say how many repetitions there may be at most: at_most: 40 or --at-most 40; "+
			"nothing is decided by fewer than %d", leastMost),
			"until: at most %s cannot decide anything", words.Plural(e.Repetitions, "repetition"))
	}
	return nil
}

// untilDecided determines the looks: one after each tenth of the maximum, from leastMost on.
func untilDecided(most int) *result.Until {
	u := &result.Until{Rule: result.UntilDecided, Spending: result.OBrienFleming, Level: 0.05}
	for i := 1; i <= manyLooks; i++ {
		n := (most*i + manyLooks - 1) / manyLooks
		if n >= leastMost && (u.Looks == nil || n > u.Looks[len(u.Looks)-1]) {
			u.Looks = append(u.Looks, n)
		}
	}
	return u
}

// UntilText describes the looks in a line; "" if there are none.
func (p *Plan) UntilText() string {
	if p.Until == nil {
		return ""
	}
	return "goes on until all is decided, with looks after " + words.Numbers(p.Until.Looks) + " repetitions"
}

// look judges the measurements, if a look is due before a run of the given repetition, and records
// that in the result; it reports whether the experiment ends.
func (r *Runner) look(next int) (ends bool, err error) {
	u := r.Plan.Until
	if u == nil || r.Judge == nil || r.ended {
		return false, nil
	}
	due := 0
	for _, n := range u.Looks {
		if n < next {
			due = n
		}
	}
	if due <= r.looked {
		return false, nil
	}
	l, err := r.Judge(due)
	if err != nil {
		return false, fmt.Errorf("judging what was measured: %w", err)
	}
	r.looked, l.Repetitions = due, due
	switch {
	case l.Open() == 0:
		l.Ends = result.EndsDecided
	case due == u.Looks[len(u.Looks)-1]:
		l.Ends = result.EndsMost
	}
	if err := r.Writer.Look(l); err != nil {
		return false, fmt.Errorf("results can no longer be written: %w; make room and resume", err)
	}
	r.say("after %s, %d of %s undecided", words.Plural(due, "repetition"), l.Open(),
		words.Plural(len(l.Statements), "statement"))
	r.ended = l.Ends != ""
	return r.ended, nil
}

// after says whether a run belongs to a repetition after the end.
func (r *Runner) after(run Run) bool { return r.ended && run.Repetition > r.looked }

// goOn takes over the looks of the result that is resumed.
func (r *Runner) goOn() {
	if r.Before == nil {
		return
	}
	r.ended = r.Before.Ended() != nil
	for _, l := range r.Before.Looks {
		r.looked = max(r.looked, l.Repetitions)
	}
}
