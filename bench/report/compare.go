package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// CompareOptions select what is compared: two results, or two levels of a factor in one.
type CompareOptions struct {
	A, B    *result.Run // B is nil where levels of A are compared
	Names   [2]string   // of two results
	Factor  string      // of which Names are levels
	Metric  string      // only this; "" is all
	Probe   string
	Each    string // what stands for a repetition of several values; "" is their mean
	Margins Margins
	Sources []definition.Source // of two results: what is compared; nil: each metric of each probe
}

// Comparison is of two sides, row by row.
type Comparison struct {
	Names [2]string    `json:"names"`
	Rows  []CompareRow `json:"rows"`
	Notes []string     `json:"notes,omitempty"`

	few     bool  // repetitions, in all rows
	each    bool  // it is one of several, of each two levels
	order   *data // knows in which order levels are
	margins Margins
	judge   *judge // at which it is judged
}

// CompareRow is one metric in one cell. Values are in Unit, which is the metric's own; differences
// are A less B.
type CompareRow struct {
	Metric string   `json:"metric"`
	Probe  string   `json:"probe,omitempty"`
	Unit   string   `json:"unit"`
	Levels []string `json:"levels,omitempty"`

	stats.Comparison
	Paired   bool                 `json:"paired"`
	Adjusted stats.Float          `json:"p_adjusted"` // of t, by Holm over all rows
	Shares   *ShareDifference     `json:"shares,omitempty"`
	Verdicts [2]environment.Level `json:"fidelity"`
	Words    string               `json:"words"` // the conclusion

	// Needed is of an undecided row: about how many repetitions of each side would decide it, at
	// the spread so far; 0: not known, or unreasonably many.
	Needed int `json:"repetitions_needed,omitempty"`

	dims      []string
	groups    [2]*group
	values    [2][]float64
	intervals [2]*stats.Interval // of the means
	margin    float64
	show      string // unit to show
	factor    float64
}

// ShareDifference is the difference of two shares, of all packets together. It is used where
// repetitions do not differ (nothing was lost).
type ShareDifference struct {
	CountA   int            `json:"count_a"`
	OfA      int            `json:"of_a"`
	CountB   int            `json:"count_b"`
	OfB      int            `json:"of_b"`
	Interval stats.Interval `json:"interval"`         // by Newcombe, of 95 %
	Margin   float64        `json:"margin,omitempty"` // in which that of 90 % lies
}

// side is one of the two.
type side struct {
	*data
	where definition.Condition
}

func (s side) pick(src definition.Source, dims []string) []*group {
	src.Where = slices.Concat(src.Where, s.where)
	return s.data.pick(src, dims)
}

// Compare compares. It fails if there is nothing to compare, and says what there is.
func Compare(o CompareOptions) (*Comparison, error) {
	if err := definition.CheckEach(o.Each); err != nil {
		return nil, err
	}
	a := side{data: newData(o.A)}
	b := a
	c := &Comparison{Names: o.Names, order: a.data, margins: o.Margins, judge: a.judge}
	if o.B != nil {
		b = side{data: newData(o.B)}
		c.judge = a.judge.stricter(b.judge)
		c.Notes = differences(o.Names, o.A.Header, o.B.Header)
		for i, s := range []side{a, b} {
			if n := s.sequential(); n != "" {
				c.note(o.Names[i] + ": " + n)
			}
		}
	} else {
		if err := a.levels(o.Factor, o.Names); err != nil {
			return nil, err
		}
		a.where = definition.Condition{{Dimension: o.Factor, Any: o.Names[:1]}}
		b.where = definition.Condition{{Dimension: o.Factor, Any: o.Names[1:]}}
		if n := a.sequential(); n != "" {
			c.note(n)
		}
	}
	c.forwarding(a, b, o)
	c.emulated(a, b, o)
	c.modelled(a, b, o)
	c.rows(a, b, o)
	if len(c.Rows) == 0 {
		return nil, nothingCommon(a, b, o)
	}
	if err := o.Margins.check(c.Rows); err != nil {
		return nil, err
	}
	c.tooFew(o)
	conclude(c)
	return c, nil
}

// rows adds those of all metrics that both sides have.
func (c *Comparison) rows(a, b side, o CompareOptions) {
	for _, src := range common(a, b, o) {
		c.metric(a, b, src, o)
	}
}

// tooFew adds a single note, with a remedy, if no test has enough repetitions.
func (c *Comparison) tooFew(o CompareOptions) {
	most := 0
	for _, r := range c.Rows {
		most = max(most, r.A.N, r.B.N)
	}
	if c.few = most < enough &&
		!slices.ContainsFunc(c.Rows, func(r CompareRow) bool { return r.Conclusion != stats.Undecided }); !c.few {
		return
	}
	why := "Each cell was measured " + words.Plural(most, "time")
	if most == 1 {
		why = "Each cell was measured once"
	}
	if slices.Contains(o.A.Header.Command, "--quick") {
		why += " (--quick)"
	}
	c.note(fmt.Sprintf("%s, which is too few to tell a difference from chance: nothing below is decided. Measure at least %d repetitions: trivet bench run %s --repetitions %d, without --quick.",
		why, enough, cmp.Or(name(o.A.Header.Experiment.File), "EXPERIMENT"), enough))
}

// forwarding says where Open vSwitch did not forward as it usually does: a comparison with it is
// one with that.
func (c *Comparison) forwarding(a, b side, o CompareOptions) {
	for i, s := range []side{a, b} {
		if n := userSpace(s.run.Header); n != "" && s.hasOVS() {
			c.note(o.Names[i] + ": " + n)
		}
	}
}

// emulated says of both sides whose processors were emulated, if that is not the same.
func (c *Comparison) emulated(a, b side, o CompareOptions) {
	x, y := a.emulated(), b.emulated()
	if slices.Equal(x, y) {
		return
	}
	for i, nodes := range [][]string{x, y} {
		if len(nodes) > 0 {
			c.note(fmt.Sprintf("%s: QEMU emulated the processors of %s: what goes through them is slower by far than by KVM.", o.Names[i], name(words.Some(nodes))))
		}
	}
}

// emulated are the nodes whose processors were emulated in labs of a side.
func (s side) emulated() (nodes []string) {
	for _, one := range s.counted {
		if one.Usage != nil && s.holds(s.where, &one, nil) {
			nodes = append(nodes, one.Usage.Emulated()...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// modelled says of both sides which nodes stood for slow devices.
func (c *Comparison) modelled(a, b side, o CompareOptions) {
	for i, s := range []side{a, b} {
		var of []*environment.Usage
		for k := range s.counted {
			if one := &s.counted[k]; one.Usage != nil && s.holds(s.where, one, nil) {
				of = append(of, one.Usage)
			}
		}
		for _, n := range models(of) {
			c.note(o.Names[i] + ": " + n)
		}
	}
}

// mostModels is how many models are described; of further ones it is said how many they are.
const mostModels = 8

// models describes the slow devices for which nodes stood: what was measured of them is as true as
// the model.
func models(of []*environment.Usage) (notes []string) {
	type stand struct {
		model string
		where string // "": in all runs
	}
	runs := map[string]map[string]int{} // by model and node
	for _, u := range of {
		for node, model := range u.Models {
			if runs[model] == nil {
				runs[model] = map[string]int{}
			}
			runs[model][node]++
		}
	}
	nodes := map[stand][]string{}
	for model, in := range runs {
		for node, n := range in {
			where := ""
			if n < len(of) {
				where = " in some of the runs"
			}
			nodes[stand{model, where}] = append(nodes[stand{model, where}], node)
		}
	}
	all := slices.SortedFunc(maps.Keys(nodes), func(a, b stand) int {
		return cmp.Or(strings.Compare(a.model, b.model), strings.Compare(a.where, b.where))
	})
	for _, s := range all[:min(len(all), mostModels)] {
		slices.Sort(nodes[s])
		verb := "stand"
		if len(nodes[s]) == 1 {
			verb = "stands"
		}
		notes = append(notes, clip(Clean(fmt.Sprintf("A model, no device: %s %s for %s%s.", words.Some(nodes[s]), verb,
			s.model, s.where)), 600))
	}
	if more := len(all) - mostModels; more > 0 {
		notes = append(notes, fmt.Sprintf("%d further models of devices are not described here.", more))
	}
	return notes
}

// hasOVS reports whether Open vSwitch ran in labs of a side, or Mininet, which may have one.
func (s side) hasOVS() bool {
	return slices.ContainsFunc(s.counted, func(one result.Sample) bool {
		return one.Usage != nil && s.holds(s.where, &one, nil) &&
			slices.ContainsFunc(one.Usage.Cgroups,
				func(g environment.CgroupUsage) bool { return g.Name == "ovs" || g.Name == "mininet" })
	})
}

// userSpace describes a result in which Open vSwitch forwarded in user space; "": it did not.
func userSpace(h result.Header) string {
	if !strings.HasPrefix(h.Environment.Tools[environment.OVSForwards], environment.InUserSpace) {
		return ""
	}
	return "Open vSwitch forwarded in user space (Mininet's too), as this kernel has no module for it: its figures are far below those of its kernel datapath."
}

// levels checks that a factor has two levels.
func (s side) levels(factor string, names [2]string) error {
	var known []string
	for _, f := range s.factors {
		known = append(known, f.Name)
		if f.Name != factor {
			continue
		}
		for _, l := range names {
			if !slices.ContainsFunc(f.Levels, func(have string) bool { return have == l || sameNumber(have, l) }) {
				return fmt.Errorf("%s: the factor %s has no such level; it has %s", name(l), factor,
					name(strings.Join(f.Levels, ", ")))
			}
		}
		if names[0] == names[1] {
			return errors.New("both levels are the same: name two")
		}
		return nil
	}
	if near := topology.DidYouMean(factor, known); near != "" {
		return fmt.Errorf("%s: there is no such factor; %s", name(factor), name(near))
	}
	return fmt.Errorf("%s: there is no such factor; there are %s", name(factor), name(strings.Join(known, ", ")))
}

// common are the metrics that both sides have.
func common(a, b side, o CompareOptions) (out []definition.Source) {
	if strings.HasPrefix(o.Metric, usagePrefix) {
		return []definition.Source{{Metric: o.Metric, Probe: o.Probe, Each: o.Each}}
	}
	if o.Sources != nil {
		return o.Sources
	}
	theirs := b.kindsOf()
	for _, src := range a.kindsOf() {
		if o.Metric != "" && src.Metric != o.Metric || o.Probe != "" && src.Probe != "" && src.Probe != o.Probe {
			continue
		}
		if slices.ContainsFunc(theirs, func(t definition.Source) bool {
			return t.Metric == src.Metric && (t.Probe == src.Probe || t.Probe == "" || src.Probe == "")
		}) {
			src.Each = o.Each
			out = append(out, src)
		}
	}
	return out
}

var errNothingCommon = errors.New("to compare")

func nothingCommon(a, b side, o CompareOptions) error {
	list := func(s side) string {
		words := lists.Map(s.kindsOf(), metricTitle)
		if len(words) == 0 {
			return "nothing"
		}
		return clip(strings.Join(words, ", "), 300)
	}
	what := ""
	if o.Metric != "" {
		what = " of " + name(o.Metric)
	}
	return fmt.Errorf("there is nothing%s %w: no cell has values on both sides; %s has measured %s, %s %s", what,
		errNothingCommon, name(o.Names[0]), list(a), name(o.Names[1]), list(b))
}

// dims returns the factors that distinguish rows: those that vary on a side and that both sides
// have.
func dims(a, b side, src definition.Source, factor string, sources bool) (out, notes []string) {
	for _, f := range a.factors {
		if f.Name == factor {
			continue
		}
		many := max(len(a.pick(src, []string{f.Name})), len(b.pick(src, []string{f.Name})))
		has := slices.ContainsFunc(b.factors, func(g result.Factor) bool { return g.Name == f.Name })
		switch {
		case many > 1 && has:
			out = append(out, f.Name)
		case many > 1:
			notes = append(notes, "All levels of "+name(f.Name)+", a factor of one side only, are taken together.")
		}
	}
	if src.Each == "sum" && sources { // of all directions together
		return out, notes
	}
	theirs := b.labels(src)
	out = append(out, lists.Filter(a.labels(src), func(l string) bool { return slices.Contains(theirs, l) })...)
	return out, notes
}

// metric adds the rows of one.
func (c *Comparison) metric(a, b side, src definition.Source, o CompareOptions) {
	factors, notes := dims(a, b, src, o.Factor, o.Sources != nil)
	c.note(notes...)
	left, right := a.pick(src, factors), b.pick(src, factors)
	for _, g := range left {
		i := slices.IndexFunc(right, func(h *group) bool {
			return slices.EqualFunc(g.levels, h.levels, func(x, y string) bool { return x == y || sameNumber(x, y) })
		})
		if i < 0 {
			c.only(0, src, factors, g)
			continue
		}
		row, err := c.row([2]side{a, b}, g, right[i], src, o)
		if err != nil {
			c.note(fmt.Sprintf("%s, %s: %s.", metricTitle(src), seriesName(factors, g.levels), err))
			continue
		}
		row.dims = factors
		c.Rows = append(c.Rows, row)
		right = slices.Delete(right, i, i+1)
	}
	for _, h := range right {
		c.only(1, src, factors, h)
	}
}

// only notes what one side only has. In comparisons of each two levels, a level without any values
// is noted once: see eachTwo.
func (c *Comparison) only(side int, src definition.Source, dims []string, g *group) {
	where := seriesName(dims, g.levels)
	switch {
	case where != "":
		c.note(fmt.Sprintf("Only %s has %s: %s.", c.Names[side], metricTitle(src), where))
	case !c.each:
		c.note(fmt.Sprintf("Only %s has %s.", c.Names[side], metricTitle(src)))
	}
}

func (c *Comparison) note(notes ...string) {
	for _, n := range notes {
		if n = Clean(n); !slices.Contains(c.Notes, n) && len(c.Notes) < maxListed {
			c.Notes = append(c.Notes, n)
		}
	}
}

func (c *Comparison) row(sides [2]side, g, h *group, src definition.Source, o CompareOptions) (CompareRow, error) {
	factor, ok := definition.Convert(h.unit, g.unit)
	if !ok {
		return CompareRow{}, fmt.Errorf("one is in %s, the other in %s", name(g.unit), name(h.unit))
	}
	x, y, paired := g.values(src), h.values(src), false
	if o.B == nil {
		x, y, paired = twoGroups(g, h, src)
	}
	y = scaled(y, factor)
	margin := o.Margins.of(src.Metric, g.unit, mean(y))
	row := CompareRow{Metric: src.Metric, Probe: src.Probe, Unit: g.unit, Levels: g.levels, Paired: paired,
		groups: [2]*group{g, h}, values: [2][]float64{x, y},
		margin: margin, Verdicts: [2]environment.Level{g.verdict().Level, h.verdict().Level}, Adjusted: stats.None}
	var err error
	row.Comparison, err = stats.Compare(x, y, stats.CompareOptions{Options: stats.Options{Seed: sides[0].seed},
		Margin: margin, Paired: paired, Alpha: c.judge.of(alpha)})
	if err != nil {
		return row, err
	}
	row.intervals = [2]*stats.Interval{sides[0].interval(g, row.A, src, definition.Mean),
		sides[1].interval(h, row.B, src, definition.Mean)}
	row.show, row.factor = display("", []*group{g, h}, src)
	row.Shares = c.judge.shares(g, h)
	if flat(x) && flat(y) {
		c.judge.withoutSpread(&row)
	}
	return row, nil
}

// withoutSpread concludes where the repetitions on each side are identical, so that no test is
// possible: for shares from all packets, otherwise from the values themselves. That takes enough
// repetitions, except that shares of none or of all may be equivalent, as these have an interval.
func (j *judge) withoutSpread(r *CompareRow) {
	many := min(r.A.N, r.B.N) >= enough
	s := r.Shares
	switch {
	case s == nil:
		if many && math.Abs(r.Difference) > r.margin {
			r.Conclusion = stats.Different
		}
	case r.margin > 0 && j.within(s, r.margin) && r.groups[0].certain() && r.groups[1].certain():
		r.Conclusion, s.Margin = stats.Equivalent, r.margin
	case many && (s.Interval.Low > 0 || s.Interval.High < 0):
		r.Conclusion = stats.Different
	}
}

func (s *ShareDifference) String() string {
	return fmt.Sprintf("%d of %d and %d of %d", s.CountA, s.OfA, s.CountB, s.OfB)
}

// within reports whether shares are shown to differ by less than a margin, which is a test of the
// level.
func (j *judge) within(s *ShareDifference, margin float64) bool {
	_, i, err := stats.RatioDifference(s.CountA, s.OfA, s.CountB, s.OfB, 1-2*j.of(alpha))
	return err == nil && i.Within(-margin, margin)
}

// shares compares all packets together; nil where it is not a share.
func (j *judge) shares(g, h *group) *ShareDifference {
	s := &ShareDifference{}
	s.CountA, s.OfA = g.share()
	s.CountB, s.OfB = h.share()
	var err error
	if _, s.Interval, err = stats.RatioDifference(s.CountA, s.OfA, s.CountB, s.OfB, 1-j.of(alpha)); err != nil {
		return nil
	}
	return s
}

// differences lists what else differs between two results.
func differences(names [2]string, a, b result.Header) (notes []string) {
	x, y := a.Environment, b.Environment
	place := placesDiffer(names, x.Place, y.Place)
	if place != "" {
		notes = append(notes, place)
	}
	if x.Host != y.Host || x.Host == "" {
		notes = append(notes,
			"Measured on different machines, or it is not known: all differences below are theirs as well.")
	}
	notes = append(notes, environmentsDiffer(x, y)...)
	if a.Experiment.Plan != b.Experiment.Plan && !(place != "" && sameButPlace(a, b)) {
		notes = append(notes, "Different experiments, or of different factors or repetitions.")
	}
	return notes
}

// environmentsDiffer lists relevant differences between two machines; for programs and settings,
// only those in both records.
func environmentsDiffer(x, y environment.Record) (notes []string) {
	processors := func(c environment.CPU) string { return fmt.Sprintf("%d × %s", c.Usable, c.Model) }
	clocked := func(c environment.CPU) string {
		return strings.Join(slices.DeleteFunc([]string{strings.Join(c.Governors, "+"), c.Driver, c.Idle},
			func(s string) bool { return s == "" }), ", ")
	}
	memory := func(m environment.Memory) string { return fmt.Sprintf("%.0f GiB", float64(m.Total)/(1<<30)) }
	for _, f := range [][3]string{{"processors", processors(x.CPU), processors(y.CPU)},
		{"architecture", x.Machine, y.Machine}, {"hyper-threading", x.CPU.SMT, y.CPU.SMT},
		{"frequency and sleep of processors", clocked(x.CPU), clocked(y.CPU)}, {"turbo", x.CPU.Turbo,
			y.CPU.Turbo}, {"isolated processors", x.CPU.Isolated, y.CPU.Isolated}, {"memory", memory(x.Memory),
			memory(y.Memory)},
		{"system", x.System, y.System}, {"kernel", x.Kernel, y.Kernel}, {"words to the kernel", x.CommandLine,
			y.CommandLine}, {"clock", x.ClockSource, y.ClockSource},
		{"virtualisation", x.Virtualisation, y.Virtualisation}, {"Trivet", x.Trivet, y.Trivet}} {
		if f[1] != f[2] {
			notes = append(notes, fmt.Sprintf("Different %s: %s and %s.", f[0], cmp.Or(name(f[1]), "unknown"),
				cmp.Or(name(f[2]), "unknown")))
		}
	}
	for _, f := range []struct {
		what string
		x, y map[string]string
	}{{"programs", x.Tools, y.Tools}, {"settings of the kernel", x.Sysctls, y.Sysctls}} {
		var differ []string
		for _, key := range slices.Sorted(maps.Keys(f.x)) {
			if other, both := f.y[key]; both && other != f.x[key] {
				differ = append(differ, fmt.Sprintf("%s (%s and %s)", name(key), name(f.x[key]), name(other)))
			}
		}
		if differ != nil {
			notes = append(notes, clip("Different "+f.what+": "+strings.Join(differ, "; "), 1000)+".")
		}
	}
	return notes
}
