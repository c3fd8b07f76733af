package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// Position is a place in a file; Line and Column count from 1, and 0 means unknown.
type Position struct {
	File   string
	Line   int
	Column int
}

func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Mistake is the error of a parser of values: what is wrong, and what to write instead.
type Mistake struct{ What, Hint string }

func (m *Mistake) Error() string { return m.What + "; " + m.Hint }

// Mistaken makes a Mistake.
func Mistaken(hint, format string, args ...any) error {
	return &Mistake{fmt.Sprintf(format, args...), hint}
}

// TextAndHint splits an error that is, or wraps, a Mistake; other errors have no hint.
func TextAndHint(err error) (text, hint string) {
	var m *Mistake
	if !errors.As(err, &m) {
		return err.Error(), ""
	}
	return strings.TrimSuffix(err.Error(), "; "+m.Hint), m.Hint
}

// Problem is one thing wrong with a topology: where, what, and what to do.
type Problem struct {
	Pos     Position `json:"-"`
	Message string   `json:"message"`        // "link s1 -- h9: there is no node h9"
	Hint    string   `json:"hint,omitempty"` // "did you mean h8?"
	Warning bool     `json:"warning,omitempty"`
}

func (p Problem) String() string {
	s := shorten(p.Message)
	if p.Warning {
		s = "warning: " + s
	}
	if p.Hint != "" {
		s += "; " + p.Hint
	}
	if at := p.Pos.String(); at != "" {
		s = at + "  " + s
	}
	return words.Printable(s)
}

// shorten keeps a message readable even if it quotes an endless file.
func shorten(s string) string {
	const most = 300 // characters
	if len(s) <= most {
		return s
	}
	if r := []rune(s[:min(len(s), 4*most)]); len(r) > most { // a character has at most four bytes
		return string(r[:most]) + "…"
	}
	return s
}

// Problems is everything wrong with a topology. As an error it prints one line for each, up to
// maxPrinted: nobody reads more before fixing those.
type Problems []Problem

const maxPrinted = 100

func (ps Problems) Error() string {
	lines := lists.Map(ps[:min(len(ps), maxPrinted)], Problem.String)
	if more := len(ps) - maxPrinted; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Add records an error.
func (ps *Problems) Add(pos Position, hint, format string, args ...any) {
	*ps = append(*ps, Problem{Pos: pos, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Warn records something that is not an error but that the user should know.
func (ps *Problems) Warn(pos Position, hint, format string, args ...any) {
	*ps = append(*ps, Problem{Pos: pos, Hint: hint, Message: fmt.Sprintf(format, args...), Warning: true})
}

// Err returns the errors among the problems, each once, sorted by position, or nil.
func (ps Problems) Err() error {
	if errs := ps.filter(false); len(errs) > 0 {
		return errs
	}
	return nil
}

// Warnings returns the problems that are not errors.
func (ps Problems) Warnings() Problems { return ps.filter(true) }

func (ps Problems) filter(warning bool) Problems {
	var out Problems
	for _, p := range ps {
		if p.Warning == warning {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return slices.Compact(out)
}

// DidYouMean returns "did you mean x?" for the candidate most similar to word, or "" if none is
// similar.
func DidYouMean(word string, candidates []string) string {
	best, bestDistance := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// editDistance is the optimal string alignment distance: insertions, deletions, substitutions and
// swaps of adjacent characters each cost 1.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
