package cli

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"trivet.dev/trivet/internal/words"
)

// table prints rows with aligned columns; the first row is the headings. If a table is too wide for
// the terminal, it drops empty columns and wraps the lines of its last column.
func (a *app) table(rows [][]string) {
	for _, line := range layOut(rows, columnsOf(a.out)) {
		fmt.Fprintln(a.out, line)
	}
}

// columnsOf is the width of a terminal; anything else has no limit.
func columnsOf(out any) int {
	if f, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return math.MaxInt
}

// harmless makes a cell safe for a terminal: names that switches and foreign files give themselves
// must not control it.
func harmless(cell string) string { return unlessPaint(cell, words.Printable) }

// harmlessText is harmless for text of several lines. Everything that is printed passes through it.
func harmlessText(text string) string { return unlessPaint(text, words.Text) }

// paints matches what paint writes.
var paints = regexp.MustCompile(`\x1b\[(` + red + `|` + green + `|` + yellow + `|0)m`)

// unlessPaint makes everything except paint's sequences harmless.
func unlessPaint(text string, harmless func(string) string) string {
	var b strings.Builder
	for {
		at := paints.FindStringIndex(text)
		if at == nil {
			b.WriteString(harmless(text))
			return b.String()
		}
		b.WriteString(harmless(text[:at[0]]) + text[at[0]:at[1]])
		text = text[at[1]:]
	}
}

func layOut(rows [][]string, room int) []string {
	count := 0
	for _, r := range rows {
		count = max(count, len(r))
	}
	full := make([][]string, len(rows))
	for i, r := range rows {
		full[i] = make([]string, count)
		for j, c := range r {
			full[i][j] = harmless(c)
		}
	}
	gap, width := 3, widths(full)
	if total(width, gap) > room {
		gap, full = 2, withoutEmpty(full)
		width = widths(full)
	}
	last := len(width) - 1
	if before := total(width[:last], gap) + gap; total(width, gap) > room && room-before >= 16 {
		width[last] = room - before
	}
	var lines []string
	for _, r := range full {
		for r != nil {
			cell, rest := breakText(r[last], width[last])
			line := ""
			for j, c := range append(slices.Clone(r[:last]), cell) {
				line += c + strings.Repeat(" ", max(0, width[j]-textWidth(c))+gap)
			}
			lines = append(lines, strings.TrimRight(line, " "))
			if r = nil; rest != "" {
				r = append(make([]string, last), rest)
			}
		}
	}
	return lines
}

func textWidth(s string) int { return runewidth.StringWidth(plain(s)) }

func widths(rows [][]string) []int {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for j, c := range r {
			width[j] = max(width[j], textWidth(c))
		}
	}
	return width
}

func total(width []int, gap int) int {
	sum := gap * (len(width) - 1)
	for _, w := range width {
		sum += w
	}
	return sum
}

// withoutEmpty leaves out columns that have only a heading.
func withoutEmpty(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for j := range rows[0] {
		if slices.ContainsFunc(rows[1:], func(r []string) bool { return r[j] != "" && r[j] != "–" }) {
			for i, r := range rows {
				out[i] = append(out[i], r[j])
			}
		}
	}
	if len(out[0]) == 0 {
		return rows
	}
	return out
}

// breakText breaks a text at a blank or comma if it is wider than width.
func breakText(text string, width int) (line, rest string) {
	if textWidth(text) <= width || text != plain(text) {
		return text, ""
	}
	at := len(runewidth.Truncate(text, width, ""))
	if blank := strings.LastIndexAny(text[:at], " ,"); blank > at/3 {
		at = blank + 1
	}
	return strings.TrimRight(text[:at], " "), strings.TrimLeft(text[at:], " ")
}
