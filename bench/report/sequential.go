package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/stats"
)

// judge has the level of tests: 5 %, or of a result that was judged several times while it was
// measured, the nominal level of its last look, which keeps the error rate over all looks at 5 %.
type judge struct {
	design *stats.Sequential // nil: there was one look
	broken bool              // the result does not say how it was looked at: nothing is judged
	memo   map[float64]float64
}

// maxLooks is more than bench run makes; levels of many take long.
const maxLooks = 20

// unjudged is the level of results of which nothing is judged.
const unjudged = 1e-12

// judgeOf judges a result at the repetitions that it has. A look that the result's rule
// does not have, because it was interrupted after the last one, is one more.
func judgeOf(run *result.Run) *judge {
	u := run.Header.Experiment.Until
	j := &judge{memo: map[float64]float64{}}
	if u == nil {
		return j
	}
	looks, most := looksOf(run)
	j.design = &stats.Sequential{Spending: stats.LikeOBrienFleming}
	for _, n := range looks {
		j.design.Looks = append(j.design.Looks, float64(n)/float64(most))
	}
	j.broken = u.Rule != result.UntilDecided || u.Spending != result.OBrienFleming ||
		most < 1 || len(u.Looks) > maxLooks || j.design.Check() != nil
	return j
}

// looksOf are the repetitions after which a result was looked at, and the most.
func looksOf(run *result.Run) (looks []int, most int) {
	u, last := run.Header.Experiment.Until, 0
	for i := range run.Samples {
		last = max(last, run.Samples[i].Repetition)
	}
	if len(u.Looks) == 0 {
		return nil, 0
	}
	most = u.Looks[len(u.Looks)-1]
	looks = append(looks, lists.Filter(u.Looks, func(n int) bool { return n <= last })...)
	if last < most && !slices.Contains(looks, last) {
		looks = append(looks, max(1, last))
	}
	return looks, most
}

// of returns the level of one test, where its share of the error rate is alpha: 5 %, or less where
// several are read together.
func (j *judge) of(alpha float64) float64 {
	switch {
	case j.broken:
		return unjudged
	case j.design == nil:
		return alpha
	}
	nominal, known := j.memo[alpha]
	if !known {
		nominal = j.design.Level(alpha)
		j.memo[alpha] = nominal
	}
	return nominal
}

// significant says which of tests that are read together are (Holm, 1979): in the order of their p,
// each at the level of its share of alpha among those that are left.
func (j *judge) significant(ps []float64) []bool {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(compare(ps[a], ps[b])) })
	out := make([]bool, len(ps))
	for rank, i := range order {
		if !(ps[i] < j.of(alpha/float64(len(ps)-rank))) {
			break
		}
		out[i] = true
	}
	return out
}

// stricter returns the lower of two levels.
func (j *judge) stricter(than *judge) *judge {
	if j.of(alpha) < than.of(alpha) {
		return j
	}
	return than
}

// interval heads intervals that belong to tests of two sides: "95 % interval".
func (j *judge) interval() string { return confidence(1-j.of(alpha)) + " % interval" }

// confidence is that of an interval in percent, with as many digits as tell it from 100.
func confidence(share float64) string {
	digits := max(0, 1-int(math.Floor(math.Log10(100*(1-share))+1e-9)))
	text := strconv.FormatFloat(100*share, 'f', digits, 64)
	v, _ := strconv.ParseFloat(text, 64)
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// sequential says of a result that was judged while it was measured how that was; "" of others.
func (d *data) sequential() string {
	u := d.run.Header.Experiment.Until
	switch {
	case u == nil:
		return ""
	case d.judge.broken:
		return "Measured until it was decided, but the result does not say when it was looked at: no statement is judged."
	}
	looks, most := looksOf(d.run)
	last := looks[len(looks)-1]
	text := fmt.Sprintf("Sequential: repetitions were added until all statements were decided, %d at most, "+
		"with looks after %s.", most, words.Numbers(u.Looks[:min(len(u.Looks), maxListed)]))
	end := "It has not ended"
	if l := d.run.Ended(); l != nil {
		end = "It ended with the most repetitions"
		if l.Ends == result.EndsDecided {
			end = "It ended as all was decided"
		}
	}
	text += fmt.Sprintf(" %s, after %s and %s.", end, words.Plural(last, "repetition"),
		words.Plural(len(looks), "look"))
	return text + fmt.Sprintf(" Each statement is judged at the level of the last look, %s %%, "+
		"by which its error rate over all looks is %g %% (spending function of Lan and DeMets, like O'Brien and Fleming's), "+
		"and by t where others are judged by a bootstrap; all other intervals are of 95 %%, as of one look.",
		strconv.FormatFloat(100*d.judge.of(alpha), 'g', 2, 64), 100*alpha)
}

// Judged lists what a report states: statements of a paper, then rows of comparisons.
func (r *Report) Judged() (out []result.Judged) { return judgedOf(r.Paper, r.each) }

// Judge judges what a result states at the repetitions that it has, and nothing else of a report.
func Judge(run *result.Run) result.Look {
	d := newData(run)
	def, _ := d.define()
	var paper *Paper
	if def.Paper != nil {
		paper = &Paper{}
		for _, t := range def.Paper.Trends {
			paper.Trends = append(paper.Trends, d.trend(t, def.Paper))
		}
	}
	var each []*Comparison
	for _, c := range def.Compares {
		all, _ := d.eachTwo(c)
		each = append(each, all...)
	}
	return result.Look{Level: d.judge.of(alpha), Statements: judgedOf(paper, each)}
}

func judgedOf(paper *Paper, each []*Comparison) (out []result.Judged) {
	if paper != nil {
		for _, t := range paper.Trends {
			out = append(out, result.Judged{What: t.Text, Outcome: string(t.Outcome),
				Open: t.Outcome == CannotTell, Needed: t.Needed})
		}
	}
	for _, r := range allOf(each) {
		out = append(out, result.Judged{What: r.what + ": " + r.pair(), Outcome: string(r.Conclusion),
			Open: r.Conclusion == stats.Undecided && !r.hopeless(), Needed: r.Needed})
	}
	return out
}

// hopeless says of an undecided row that no repetitions will decide it: there is no spread, and
// nothing else to judge by.
func (r *CompareRow) hopeless() bool {
	return min(r.A.N, r.B.N) >= enough && r.T == nil && (r.Shares == nil || r.margin == 0 && r.Difference == 0)
}
