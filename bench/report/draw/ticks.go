package draw

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// maxLevels are the most levels of a factor that get a tick each.
const maxLevels = 12

// digit is about how wide one is, in shares of the axis.
const digit = 0.022

// ticks are the levels themselves on the x axis, where there are few; else round numbers.
func (b builder) ticks() {
	if !b.log[1] {
		b.Y.Tick.Marker = round{}
	} else {
		b.Y.Tick.Marker = logarithmic{}
	}
	if b.figure.X.Categories != nil {
		return
	}
	levels := map[float64]string{}
	for _, s := range b.figure.Series {
		for _, p := range s.Points {
			levels[p.X] = p.Name
		}
	}
	switch {
	case len(levels) > 1 && len(levels) <= maxLevels:
		var marks plot.ConstantTicks
		end := math.Inf(-1)
		for _, x := range slices.Sorted(maps.Keys(levels)) { // so that one figure is always the same bytes
			t := plot.Tick{Value: x, Label: short(levels[x], 12)}
			half := float64(len(t.Label)) * digit / 2
			if at := b.X.Norm(x); at-half < end { // it would stand on the one before
				t.Label = ""
			} else {
				end = at + half
			}
			marks = append(marks, t)
		}
		b.X.Tick.Marker = marks
	case b.log[0]:
		b.X.Tick.Marker = logarithmic{}
	default:
		b.X.Tick.Marker = round{}
	}
}

// round is a plot.Ticker of round numbers, about six of them.
type round struct{}

// Ticks is of plot.Ticker.
func (round) Ticks(low, high float64) (out []plot.Tick) {
	span := high - low
	if !(span > 0) || math.IsInf(span, 0) {
		return []plot.Tick{{Value: low, Label: strconv.FormatFloat(low, 'g', 4, 64)}}
	}
	rough := span / 6
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	step := 10 * power
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= rough {
			step = m * power
			break
		}
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	if step == 2.5*power {
		digits = max(0, 1-int(math.Floor(math.Log10(power)+1e-9)))
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high+span*1e-9 && len(out) < 30; i++ {
		v := i*step + 0 // which makes 0 of −0
		label := strconv.FormatFloat(v, 'f', digits, 64)
		if digits > 8 || math.Abs(high) >= 1e7 {
			label = strconv.FormatFloat(v, 'g', 4, 64)
		}
		out = append(out, plot.Tick{Value: v, Label: label})
	}
	return out
}

// logarithmic is a plot.Ticker of powers of ten, with 2 and 5 between few of them.
type logarithmic struct{}

// Ticks is of plot.Ticker.
func (logarithmic) Ticks(low, high float64) (out []plot.Tick) {
	if !(low > 0) || !(high > low) {
		return nil
	}
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	every := math.Max(1, math.Ceil((last-first)/8))
	for e := first; e <= last; e += every {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < low*0.9999 || v > high*1.0001 || m > 1 && last-first > 3 {
				continue
			}
			out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 4, 64)})
		}
	}
	return out
}
