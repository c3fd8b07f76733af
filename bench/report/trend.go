package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// Outcome is the result of testing a statement.
type Outcome string

// Outcomes. A statement that was not shown is CannotTell, never Fails.
const (
	Holds       Outcome = "holds"
	Fails       Outcome = "does not hold"
	CannotTell  Outcome = "cannot tell"
	NotMeasured Outcome = "not measured"
	// The paper says the opposite elsewhere, so that no measurement can decide between the two.
	Contradicts Outcome = "contradicts itself"
)

// Needing is what all outcomes are together that NeedOf has.
const Needing Outcome = "needs …"

// Needing reports whether it is of a statement that is about something which was not there.
func (o Outcome) Needing() bool { return strings.HasPrefix(string(o), "needs ") }

// Trend is a published statement, tested with our values.
type Trend struct {
	Text    string            `json:"text"`   // in words
	Tested  string            `json:"tested"` // what was tested
	Outcome Outcome           `json:"outcome"`
	Why     string            `json:"why"`
	Theirs  string            `json:"theirs,omitempty"` // what the paper's own numbers say, if there are any
	Level   environment.Level `json:"level,omitempty"`  // of the samples it is tested with
	// Nodes stood for devices, as a model: it is tested as far as that is like them.
	Model bool `json:"by_model,omitempty"`

	// Here is what the test says, where the outcome is another: the paper contradicts itself, or
	// the statement needs what was not there.
	Here Outcome `json:"here,omitempty"`
	// Against is what the paper says elsewhere against it, in words.
	Against string `json:"contradicts,omitempty"`
	// By is what would decide a statement that needs something: where, and the command.
	By string `json:"decided_by,omitempty"`

	// Needed is of a statement that cannot be told: about how many repetitions would tell, at the
	// spread so far; 0: not known, or unreasonably many.
	Needed int `json:"repetitions_needed,omitempty"`
}

// alpha is the level of tests of a result that was judged once; see judge.
const alpha = 0.05

func (d *data) trend(t definition.Trend, paper *definition.Paper) Trend {
	out := Trend{Text: clip(strings.TrimSpace(Clean(t.Text)), 400), Tested: name(tested(t))}
	out.Text = cmp.Or(out.Text, out.Tested)
	if d.judge.broken {
		out.open("the result does not say when it was looked at", needs{})
		return out
	}
	switch {
	case t.Of == definition.Slope:
		d.slope(&out, t)
	case t.Of == definition.Curvature:
		d.curvature(&out, t)
	case t.Is == definition.Falls, t.Is == definition.Rises:
		d.monotone(&out, t)
	case t.Is == definition.Flat:
		d.flat(&out, t)
	case t.Is == definition.Linear:
		d.linear(&out, t)
	case t.Is == definition.Steeper:
		d.steeper(&out, t)
	case t.Is == definition.Times:
		d.times(&out, t)
	default:
		d.ordered(&out, t)
	}
	out.Theirs = paperSays(t, paper)
	if out.Outcome != NotMeasured {
		out.Level, out.Model = d.trust(t), d.byModel(t)
	}
	d.need(&out, t)
	if out.Against = clip(strings.TrimSpace(Clean(t.Contradicts)), 400); out.Against != "" {
		if out.Here == "" {
			out.Here = out.Outcome
		}
		out.Outcome = Contradicts
	}
	return out
}

// trust returns the verdict on all samples that a statement is tested with.
func (d *data) trust(t definition.Trend) environment.Level {
	var all []environment.Verdict
	for _, src := range []definition.Source{t.Source, otherSide(t)} {
		for _, g := range d.pick(src, nil) {
			all = append(all, g.verdict())
		}
	}
	return worstLevel(all)
}

// tested says in words what is tested.
func tested(t definition.Trend) string {
	words := metricTitle(t.Source)
	if t.Of == definition.Slope || t.Of == definition.Curvature {
		words = t.Of + " of " + words
	}
	if len(t.Where) > 0 {
		words += " (" + describe(t.Where) + ")"
	}
	words += " is " + t.Is
	if t.Is == definition.Steeper {
		words += " than"
	}
	if t.Is == definition.Falls || t.Is == definition.Rises {
		words = strings.TrimSuffix(words, "is "+t.Is) + t.Is
	}
	if t.Factor > 0 {
		words = strings.TrimSuffix(words, t.Is) + exact(t.Factor) + " times"
	}
	if t.Limit != nil {
		words += " " + strings.TrimSpace(exact(*t.Limit)+" "+t.Unit)
	} else if t.Than != nil {
		words += " " + describe(t.Than)
	}
	if t.Along != "" {
		words += " along " + t.Along
	}
	if t.Within > 0 {
		words += " (" + percent(t.Within) + ")"
	}
	return words
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + " %" }

func signed(share float64) string {
	if math.IsInf(share, 0) {
		return "from none"
	}
	if share > 0 {
		return "+" + percent(share)
	}
	return percent(share)
}

// along returns a statement's groups along its factor, with the positions of their levels.
func (d *data) along(t definition.Trend) (groups []*group, places []float64) {
	groups = d.pick(t.Source, []string{t.Along})
	numbers := !slices.ContainsFunc(groups, func(g *group) bool { return !isNumber(g.levels[0]) })
	if numbers {
		slices.SortStableFunc(groups,
			func(a, b *group) int { return int(compare(number(a.levels[0]), number(b.levels[0]))) })
	}
	for i, g := range groups {
		if numbers {
			places = append(places, number(g.levels[0]))
		} else {
			places = append(places, float64(i))
		}
	}
	return groups, places
}

func number(s string) float64 {
	v, _ := strconv.ParseFloat(s, 64)
	return v
}

// monotone applies Kendall's test to all repetitions, and checks the change from the first level to
// the last.
func (d *data) monotone(out *Trend, t definition.Trend) {
	groups, places := d.along(t)
	if len(groups) < 2 {
		out.Outcome, out.Why = NotMeasured, fmt.Sprintf("there are values for %s of %s",
			words.Plural(len(groups), "level"), name(t.Along))
		return
	}
	var xs, ys []float64
	for i, g := range groups {
		for _, v := range thin(g.values(t.Source), 4000/len(groups)+2) {
			xs, ys = append(xs, places[i]), append(ys, v)
		}
	}
	tau, p := kendall(xs, ys)
	first, last := groups[0].values(t.Source), groups[len(groups)-1].values(t.Source)
	from, to := mean(first), mean(last)
	change := relative(to-from, from)
	if t.Is == definition.Falls {
		tau, change = -tau, -change
	}
	unit, factor := display(t.Unit, groups, t.Source)
	real := change
	if t.Is == definition.Falls {
		real = -real
	}
	out.Why = fmt.Sprintf("%s → %s (%s; Kendall's τ = %.2f, %s)", Number(from*factor), withUnit(to*factor, unit),
		signed(real), tauSign(t.Is, tau), P(p))
	switch small := d.equivalent(first, last, t.Within*math.Abs(from)); {
	case small:
		out.Outcome, out.Why = Fails, out.Why+": a change of less than "+percent(t.Within)
	case p < d.judge.of(alpha) && tau > 0 && change >= t.Within:
		out.Outcome = Holds
	case p < d.judge.of(alpha) && tau < 0 && change < 0:
		out.Outcome = Fails
	default:
		out.open(out.Why, more(first, last, false, 0))
	}
}

func tauSign(is string, tau float64) float64 {
	if is == definition.Falls {
		return -tau
	}
	return tau
}

// relative returns a difference as a share of a value; infinite for 0.
func relative(difference, of float64) float64 {
	if difference == 0 {
		return 0
	}
	return difference / math.Abs(of)
}

// P writes a p value: "p = 0.02".
func P(p float64) string {
	if p < 0.001 {
		return "p < 0.001"
	}
	return "p = " + strconv.FormatFloat(p, 'g', 2, 64)
}

func (d *data) equivalent(x, y []float64, margin float64) bool {
	if min(len(x), len(y)) < enough || margin == 0 {
		return false
	}
	if flat(x) && flat(y) {
		return math.Abs(x[0]-y[0]) < margin
	}
	e, err := stats.TOST(x, y, margin, d.judge.of(alpha))
	return err == nil && e.Equivalent
}

// open makes it a statement that cannot be told, with what would tell.
func (out *Trend) open(why string, more needs) {
	out.Outcome, out.Why, out.Needed = CannotTell, why+more.text, more.repetitions
}

// needs is what would tell, and about how many repetitions that takes; 0: not known.
type needs struct {
	text        string
	repetitions int
}

// tooFew is what is missing of fewer repetitions than anything is concluded from.
func tooFew(n int) needs {
	return needs{fmt.Sprintf("; too few: %s, take at least %d", words.Plural(n, "repetition"), enough), enough}
}

// would says by about how many repetitions something is told whose estimate of n repetitions has a
// standard error and is so far from what would decide it.
func would(n int, standardError, distance float64) needs {
	if more := needed(n, standardError, distance); more > 0 {
		return needs{fmt.Sprintf("; about %d repetitions would tell", more), more}
	}
	return needs{"; no reasonable number of repetitions would tell", 0}
}

// more says how many repetitions would be needed to tell a difference from shift.
func more(x, y []float64, paired bool, shift float64) needs {
	n := min(len(x), len(y))
	if n < enough {
		return tooFew(n)
	}
	return would(n, standardError(x, y, paired), math.Abs(mean(x)-mean(y)-shift))
}

// flat holds if every two levels are equivalent, and fails if two differ by more than the margin.
func (d *data) flat(out *Trend, t definition.Trend) {
	groups, _ := d.along(t)
	if len(groups) < 2 {
		out.Outcome, out.Why = NotMeasured, fmt.Sprintf("there are values for %s of %s",
			words.Plural(len(groups), "level"), name(t.Along))
		return
	}
	var means []float64
	var values [][]float64
	for _, g := range groups {
		v := g.values(t.Source)
		values, means = append(values, v), append(means, mean(v))
	}
	margin := t.Within * math.Abs(total(means)/float64(len(means)))
	unit, factor := display(t.Unit, groups, t.Source)
	low, high := slices.Min(means), slices.Max(means)
	out.Why = fmt.Sprintf("from %s to %s", Number(low*factor), withUnit(high*factor, unit))
	same, ps := true, []float64{}
	for i := range values {
		for j := range i {
			same = same && d.equivalent(values[i], values[j], margin)
			difference, p := math.Abs(means[i]-means[j]), 1.0
			if difference > margin && min(len(values[i]), len(values[j])) >= enough {
				_, p, _ = differs(values[i], values[j], false, math.Copysign(margin, means[i]-means[j]))
			}
			ps = append(ps, p)
		}
	}
	switch {
	case same:
		out.Outcome = Holds
	case slices.Contains(d.judge.significant(ps), true):
		out.Outcome = Fails
	default:
		at, to := slices.Index(means, low), slices.Index(means, high)
		out.open(out.Why, more(values[to], values[at], false, margin))
	}
}
