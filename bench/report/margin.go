package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/report/definition"
)

// Margins are up to which differences do not matter, by metric; "" is for all others.
type Margins map[string]Margin

// Margin is a share of B's mean, or a value with its unit.
type Margin struct {
	Share float64
	Value float64
	Unit  string // "" of a share
}

var marginText = regexp.MustCompile(`^([0-9.eE+-]+)\s*(\S*)$`)

// ParseMargins reads 5%, 0.2ms, rtt=0.2ms and loss=0.1pp (percentage points).
func ParseMargins(texts []string) (Margins, error) {
	out := Margins{}
	for _, text := range texts {
		metric, value, ok := strings.Cut(text, "=")
		if !ok {
			metric, value = "", text
		}
		m, err := parseMargin(strings.TrimSpace(value))
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

func parseMargin(text string) (Margin, error) {
	wrong := fmt.Errorf("is no margin: write 5%%, 0.2ms, rtt=0.2ms, or loss=0.1pp for percentage points")
	parts := marginText.FindStringSubmatch(text)
	if parts == nil {
		return Margin{}, wrong
	}
	v, err := strconv.ParseFloat(parts[1], 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return Margin{}, wrong
	}
	switch unit := parts[2]; unit {
	case "%":
		return Margin{Share: v / 100}, nil
	case "pp":
		return Margin{Value: v, Unit: "%"}, nil
	case "":
		return Margin{Value: v, Unit: "1"}, nil
	default:
		return Margin{Value: v, Unit: unit}, nil
	}
}

// of is the margin in the metric's unit; 0 where there is none that fits.
func (m Margins) of(metric, unit string, mean float64) float64 {
	margin, ok := m[metric]
	if !ok {
		margin = m[""]
	}
	if margin.Share > 0 {
		return margin.Share * math.Abs(mean)
	}
	factor, ok := definition.Convert(margin.Unit, unit)
	if !ok {
		return 0
	}
	return margin.Value * factor
}
