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
)

// Margins are the largest differences that do not matter, by metric; "" is for all others.
type Margins map[string]definition.Margin

// ParseMargins reads 5%, 0.2ms, rtt=0.2ms and loss=0.1pp (percentage points).
func ParseMargins(texts []string) (Margins, error) {
	out := Margins{}
	for _, text := range texts {
		metric, value, ok := strings.Cut(text, "=")
		if !ok {
			metric, value = "", text
		}
		m, err := definition.ParseMargin(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("--margin %s: %w", name(text), err)
		}
		if _, twice := out[metric]; twice {
			return nil, fmt.Errorf("--margin %s: there are two for the same; write METRIC=MARGIN", name(text))
		}
		out[metric] = m
	}
	return out, nil
}

// among are those of metrics that there are.
func (m Margins) among(sources []definition.Source) Margins {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(metric string, _ definition.Margin) bool {
		return metric != "" &&
			!slices.ContainsFunc(sources, func(s definition.Source) bool { return s.Metric == metric })
	})
	return out
}

// of returns the margin in the metric's unit; 0: none applies.
func (m Margins) of(metric, unit string, mean float64) float64 {
	margin, ok := m[metric]
	if !ok {
		margin = m[""]
	}
	if margin.Share > 0 {
		return margin.Share * math.Abs(mean)
	}
	return margin.In(unit)
}

// check reports margins that apply to no row: a metric or a unit is misspelt.
func (m Margins) check(rows []CompareRow) error {
	var errs []error
	for _, metric := range slices.Sorted(maps.Keys(m)) {
		margin, units := m[metric], []string{}
		for _, r := range rows {
			if metric == "" || r.Metric == metric {
				units = append(units, r.Unit)
			}
		}
		switch {
		case len(units) == 0:
			errs = append(errs, fmt.Errorf("--margin %s=…: there is nothing to compare with it", name(metric)))
		case margin.Share == 0 && !slices.ContainsFunc(units, func(u string) bool { return margin.In(u) > 0 }):
			slices.Sort(units)
			errs = append(errs, fmt.Errorf("--margin %s: it is in %s, and what is compared is in %s",
				name(cmp.Or(metric, "of all")), name(margin.Unit), name(strings.Join(slices.Compact(units), ", "))))
		}
	}
	return errors.Join(errs...)
}
