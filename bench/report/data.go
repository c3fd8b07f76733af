package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// data is a result, prepared for queries.
type data struct {
	run     *result.Run
	counted []result.Sample

	definition *definition.Definition
	factors    []result.Factor
	seed       uint64
	memo       map[string]stats.Summary
	unusable   int // values that cannot be shown
	judge      *judge
}

// usableValue limits values: their squares and sums must be finite, too.
const usableValue = 1e100

func newData(run *result.Run) *data {
	d := &data{run: run, factors: run.Header.Experiment.Factors, seed: run.Header.Seed,
		memo: map[string]stats.Summary{}, judge: judgeOf(run)}
	for _, s := range run.Counted() {
		if err := s.Check(); err != nil { // the file may come from anyone
			s.Failure = "cannot be used: " + err.Error()
		}
		if s.Failure != "" { // what it measured until then is not what was intended
			s.Measurements, s.Usage = nil, nil
		}
		d.counted = append(d.counted, s)
	}
	return d
}

// roundDimension is that of the rounds of a campaign.
const roundDimension = "round"

// level is that of a dimension: of a factor, the probe, the round, or a label.
func (d *data) level(s *result.Sample, m *result.Measurement, dimension string) (string, bool) {
	if v, ok := s.Factors[dimension]; ok {
		return d.levelName(dimension, v), true
	}
	if dimension == "probe" {
		return s.Probe, true
	}
	if dimension == roundDimension && s.Round > 0 {
		return strconv.Itoa(s.Round), true
	}
	if m != nil {
		v, ok := m.Labels[dimension]
		return v, ok
	}
	return "", false
}

// levelName returns the level as written in the experiment: 0.10 stays 0.10, though JSON has 0.1.
func (d *data) levelName(factor string, v any) string {
	name := plain(v)
	for _, f := range d.factors {
		if f.Name != factor || slices.Contains(f.Levels, name) {
			continue
		}
		for _, l := range f.Levels {
			if sameNumber(l, name) {
				return l
			}
		}
	}
	return name
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

func plain(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// holds reports whether a condition is fulfilled. Without a measurement, labels count as matching.
func (d *data) holds(c definition.Condition, s *result.Sample, m *result.Measurement) bool {
	for _, l := range c {
		level, ok := d.level(s, m, l.Dimension)
		if !ok && m == nil {
			continue
		}
		if !ok || !slices.ContainsFunc(l.Any, func(any string) bool { return any == level || sameNumber(any, level) }) {
			return false
		}
	}
	return true
}

func (d *data) usable(m *result.Measurement, factor float64) (values, at []float64) {
	for i, v := range m.Values {
		if v *= factor; math.Abs(v) > usableValue || m.At != nil && math.Abs(m.At[i]) > usableValue {
			d.unusable++
			continue
		}
		values = append(values, v)
		if m.At != nil {
			at = append(at, m.At[i])
		}
	}
	return values, at
}

func (d *data) levels(s *result.Sample, m *result.Measurement, dimensions []string) []string {
	out := make([]string, len(dimensions))
	for i, dim := range dimensions {
		out[i], _ = d.level(s, m, dim)
	}
	return out
}

// compareLevels orders levels as the experiment does; unknown ones by number, or else by name.
func (d *data) compareLevels(dimensions, a, b []string) int {
	for i, dim := range dimensions {
		if c := d.compareLevel(dim, a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func (d *data) compareLevel(dimension, a, b string) int {
	for _, f := range d.factors {
		if f.Name == dimension {
			if c := cmp.Compare(slices.Index(f.Levels, a), slices.Index(f.Levels, b)); c != 0 {
				return c
			}
		}
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil && x != y {
		return cmp.Compare(x, y)
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // h2 before h10
}

func total(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum
}

// mean is exact if all values are equal.
func mean(xs []float64) float64 {
	if flat(xs) {
		return xs[0]
	}
	return total(xs) / float64(len(xs))
}

// flat reports whether all values are equal.
func flat(xs []float64) bool { return slices.Min(xs) == slices.Max(xs) }

// unwatched is the verdict on a sample that has none.
var unwatched = environment.Verdict{Level: environment.Doubtful, Reasons: []environment.Reason{
	{Level: environment.Doubtful, Code: "unwatched", Text: "the machine was not watched during it"}}}

func judged(v *environment.Verdict) environment.Verdict {
	if v == nil {
		return unwatched
	}
	return *v
}

// summary describes values; those that were described before are not computed again.
func (d *data) summary(values []float64) stats.Summary {
	key := fmt.Sprint(values)
	s, ok := d.memo[key]
	if !ok {
		s, _ = stats.Summarize(values, stats.Options{Seed: d.seed}) // there are values, and all are numbers
		d.memo[key] = s
	}
	return s
}

// certain reports whether all packets together give the certainty of a share that is the same in
// all repetitions. This takes enough repetitions, as the packets of one may be lost together,
// unless none or all are lost.
func (g *group) certain() bool {
	count, of := g.share()
	return len(g.reps) >= enough || count == 0 || count == of
}

// interval returns a confidence interval of the mean or the median; nil for too few repetitions,
// and for values within repetitions, which are not independent. If a share is the same in all
// repetitions, it is Wilson's interval of all packets: a bootstrap would have no spread.
func (d *data) interval(g *group, s stats.Summary, src definition.Source, y string) *stats.Interval {
	if count, of := g.share(); s.Min == s.Max && of > 0 && g.certain() {
		if i, err := stats.Wilson(count, of, 0.95); err == nil {
			return &i
		}
	}
	switch {
	case s.N < enough || src.Of == definition.Values:
		return nil
	case y == definition.Median:
		return s.MedianInterval
	}
	return s.MeanInterval
}

// judging returns the interval by which a value is judged, whose share of the error rate is share:
// that which is shown or, where the share is not all of alpha, or the result was judged several
// times, one of that level, or of its last look. That is of a mean by t: few values have no
// bootstrap of such a level. A median has none.
func (d *data) judging(g *group, s stats.Summary, src definition.Source, y string, share float64) *stats.Interval {
	if d.judge.design == nil && share == alpha {
		return d.interval(g, s, src, y)
	}
	if d.judge.broken {
		return nil
	}
	sure := 1 - d.judge.of(share)
	if count, of := g.share(); s.Min == s.Max && of > 0 && g.certain() {
		if i, err := stats.Wilson(count, of, sure); err == nil {
			return &i
		}
	}
	if s.N < enough || src.Of == definition.Values || y == definition.Median {
		return nil
	}
	half := stats.HalfWidth(g.values(src), sure)
	return &stats.Interval{Low: s.Mean - half, High: s.Mean + half, Confidence: sure, Method: "t"}
}
