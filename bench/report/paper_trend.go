package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
)

// level is a paper's number at a level of a factor: the mean of all that it has there.
type level struct {
	name  string
	value float64
}

// paperSays says whether the paper's own numbers support a statement; "": it has none.
func paperSays(t definition.Trend, p *definition.Paper) string {
	unit := ""
	for _, n := range p.Numbers {
		if n.Metric == t.Metric {
			unit = name(n.Unit)
			break
		}
	}
	ours := publishedAt(p, t.Source, t.Along, unit)
	switch {
	case t.Limit != nil || t.Of == definition.Slope || len(ours) == 0:
		return ""
	case t.Is == definition.Times:
		return timesTheirs(ours, publishedAt(p, otherSide(t), t.Along, unit))
	case t.Is == definition.Above || t.Is == definition.Below:
		return beyond(t, ours, publishedAt(p, otherSide(t), t.Along, unit), unit)
	case len(ours) < 2:
		return ""
	case slices.ContainsFunc(ours, func(l level) bool { return !isNumber(l.name) }):
		low := slices.MinFunc(ours, func(a, b level) int { return cmp.Compare(a.value, b.value) })
		high := slices.MaxFunc(ours, func(a, b level) int { return cmp.Compare(a.value, b.value) })
		return fmt.Sprintf("from %s (%s) to %s (%s)", Number(low.value), name(low.name), withUnit(high.value, unit),
			name(high.name))
	}
	slices.SortFunc(ours, func(a, b level) int { return cmp.Compare(number(a.name), number(b.name)) })
	from, to := ours[0].value, ours[len(ours)-1].value
	return fmt.Sprintf("%s → %s (%s)", Number(from), withUnit(to, unit), signed(relative(to-from, from)))
}

// publishedAt returns the published numbers of a metric under a condition, by level of a factor;
// without a factor, all together.
func publishedAt(p *definition.Paper, src definition.Source, along, unit string) (out []level) {
	counts := map[string]int{}
	for _, n := range p.Numbers {
		if n.Metric != src.Metric || name(n.Unit) != unit || n.Probe != "" && src.Probe != "" && n.Probe != src.Probe ||
			!meets(n.Where, src.Where) {
			continue
		}
		at := n.Where.Get(along)
		if along != "" && len(at) != 1 {
			continue
		}
		where := strings.Join(at, "")
		i := slices.IndexFunc(out, func(l level) bool { return l.name == where })
		if i < 0 {
			out, i = append(out, level{name: where}), len(out)
		}
		counts[where]++
		out[i].value += (n.Value - out[i].value) / float64(counts[where])
	}
	return out
}

// meets reports whether a number's levels fulfil a condition.
func meets(levels, condition definition.Condition) bool {
	for _, c := range condition {
		at := levels.Get(c.Dimension)
		if len(at) != 1 ||
			!slices.ContainsFunc(c.Any, func(any string) bool { return any == at[0] || sameNumber(any, at[0]) }) {
			return false
		}
	}
	return true
}

// timesTheirs lists the ratios of published numbers.
func timesTheirs(a, b []level) string {
	var out []string
	for _, x := range a {
		if i := slices.IndexFunc(b, func(y level) bool { return y.name == x.name && y.value != 0 }); i >= 0 {
			out = append(out, Number(x.value/b[i].value)+" times")
		}
	}
	return strings.Join(out, ", ")
}

// beyond counts the levels at which the published numbers agree with the statement.
func beyond(t definition.Trend, a, b []level, unit string) string {
	places, as, text := 0, 0, ""
	for _, x := range a {
		i := slices.IndexFunc(b, func(y level) bool { return y.name == x.name })
		if i < 0 {
			continue
		}
		places++
		if (x.value > b[i].value) == (t.Is == definition.Above) && x.value != b[i].value {
			as++
		}
		text = fmt.Sprintf("%s against %s (%s)", Number(x.value), withUnit(b[i].value, unit),
			signed(relative(x.value-b[i].value, b[i].value)))
	}
	if places > 1 {
		return fmt.Sprintf("%s at %d of %d", t.Is, as, places)
	}
	return text
}
