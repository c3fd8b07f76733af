package definition

import (
	"errors"
	"math"
	"regexp"
	"strconv"
)

// Margin is the largest difference that does not matter: a share of the second value's mean, or a
// value with its unit.
type Margin struct {
	Share float64
	Value float64
	Unit  string // "" of a share
}

var marginText = regexp.MustCompile(`^([0-9.eE+-]+)\s*(\S*)$`)

var errMargin = errors.New("is not a margin: write 5%, 0.2ms, rtt=0.2ms, or loss=0.1pp for percentage points")

// ParseMargin reads 5%, 0.2ms, and 0.1pp (percentage points).
func ParseMargin(text string) (Margin, error) {
	parts := marginText.FindStringSubmatch(text)
	if parts == nil {
		return Margin{}, errMargin
	}
	v, err := strconv.ParseFloat(parts[1], 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return Margin{}, errMargin
	}
	switch unit := parts[2]; unit {
	case "%":
		return Margin{Share: v / 100}, nil
	case "pp":
		return Margin{Value: v, Unit: "%"}, nil
	case "": // of what? 5 may be meant as 5 %
		return Margin{}, errMargin
	default:
		return Margin{Value: v, Unit: unit}, nil
	}
}

// In converts the margin to another unit; 0: it cannot be converted.
func (m Margin) In(unit string) float64 {
	factor, ok := Convert(m.Unit, unit)
	if !ok {
		return 0
	}
	return m.Value * factor
}
