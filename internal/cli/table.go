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
// the terminal, it drops empty columns and wraps the last column, and others if that is not enough
// and splits no word.
func (a *app) table(rows [][]string) {
	for _, line := range layOut(rows, columnsOf(a.out)) {
		fmt.Fprintln(a.out, line)
	}
}

// columnsOf returns the width of a terminal; other outputs have no limit.
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
	narrow(width, full, total(width, gap)-room)
	var lines []string
	for _, r := range full {
		for r != nil {
			line, rest, more := "", make([]string, len(r)), false
			for j, c := range r {
				var cell string
				cell, rest[j] = breakText(c, width[j])
				line += cell + strings.Repeat(" ", max(0, width[j]-textWidth(cell))+gap)
				more = more || rest[j] != ""
			}
			lines = append(lines, strings.TrimRight(line, " "))
			if r = nil; more {
				r = rest
			}
		}
	}
	return lines
}

// leastOfLast is the minimum width of the last column, which may split words.
const leastOfLast = 16

// narrow reduces the widths of columns by over in total: first the last column, then always the
// widest that can be reduced.
func narrow(width []int, rows [][]string, over int) {
	last := len(width) - 1
	least := make([]int, len(width))
	for _, r := range rows {
		for j, c := range r {
			least[j] = max(least[j], longestWord(c))
		}
	}
	least[last] = min(leastOfLast, width[last])
	by := max(0, min(over, width[last]-least[last]))
	width[last] -= by
	for over -= by; over > 0; over-- {
		widest := -1
		for j := range width {
			if width[j] > least[j] && (widest < 0 || width[j] > width[widest]) {
				widest = j
			}
		}
		if widest < 0 {
			return
		}
		width[widest]--
	}
}

// longestWord is the width of the longest part of a text that breakText keeps whole.
func longestWord(text string) (longest int) {
	if text != plain(text) {
		return textWidth(text)
	}
	for _, word := range strings.Fields(strings.ReplaceAll(text, ",", ", ")) {
		longest = max(longest, textWidth(word))
	}
	return longest
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
	if blank := strings.LastIndexAny(text[:at], " ,"); blank > at/3 || blank > 0 && longestWord(text) <= width {
		at = blank + 1
	}
	return strings.TrimRight(text[:at], " "), strings.TrimLeft(text[at:], " ")
}
