package report

import (
	"math"
	"strconv"
	"strings"
	"unicode"

	"trivet.dev/trivet/measure/stats"
)

// Number writes a number with four significant digits, and all digits of greater whole numbers, in
// groups from 10,000 on.
func Number(v float64) string {
	magnitude := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v == 0:
		return "0"
	case magnitude >= 1e9 || magnitude < 1e-4:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	digits := max(0, 3-int(math.Floor(math.Log10(magnitude))))
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if magnitude >= 1e4 {
		return grouped(s)
	}
	if strings.Contains(s, ".") && v == math.Trunc(v) {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// narrow is the space between thousands; a comma would be taken for that between the ends of an
// interval.
const narrow = "\u202f"

// grouped writes a whole number with its thousands apart.
func grouped(s string) string {
	first := len(s) % 3
	if s[0] == '-' && first == 1 {
		first = 4
	}
	out := s[:first]
	for i := first; i < len(s); i += 3 {
		if out != "" {
			out += narrow
		}
		out += s[i : i+3]
	}
	return out
}

// Interval writes an interval, its values multiplied by a factor.
func Interval(i *stats.Interval, factor float64) string {
	if i == nil {
		return "–"
	}
	return "[" + Number(i.Low*factor) + ", " + Number(i.High*factor) + "]"
}

// withUnit writes a number with its unit.
func withUnit(v float64, unit string) string {
	switch unit {
	case "1", "":
		return Number(v)
	}
	return Number(v) + " " + unit
}

// Clean makes one line of a text that somebody else wrote: control characters, those that change
// the direction of writing among them, become spaces.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl,
			unicode.Zp) || r == unicode.ReplacementChar || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
}

// clip shortens what is too long to be read.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// name is a text of somebody else's, fit for a heading.
func name(s string) string { return clip(strings.TrimSpace(Clean(s)), 120) }

// Shell is a command line that a shell takes as it is.
func Shell(words []string) string {
	var out []string
	for _, w := range words {
		w = Clean(w)
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=:,@%+", r)
		}) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}
