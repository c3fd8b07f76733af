package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"

	"trivet.dev/trivet/lab"
)

// stages shows how far a lab has got: on a terminal, one line that fills up; in a pipe, the same
// line once at the end.
type stages struct {
	out              io.Writer
	live             bool
	width            int // of the terminal
	names            []string
	counts           map[string]string
	drawn            int // length of the line on the terminal
	events, warnings []string
}

func newStages(out io.Writer) *stages {
	return &stages{out: out, live: isTerminal(out), width: columnsOf(out), counts: map[string]string{},
		warnings: []string{}}
}

// note keeps warnings and events until the end.
func (s *stages) note(p lab.Progress) {
	if p.Warning != "" {
		s.warnings = append(s.warnings, p.Warning)
	}
	if p.Event != "" {
		s.events = append(s.events, p.Event)
	}
}

func (s *stages) step(p lab.Progress) {
	s.note(p)
	if p.Stage == "" {
		return
	}
	if _, ok := s.counts[p.Stage]; !ok && p.Total > 0 {
		s.names = append(s.names, p.Stage)
	}
	if p.Total > 0 {
		s.counts[p.Stage] = fmt.Sprintf("%d/%d", p.Done, p.Total)
	}
	if s.live {
		line := strings.Join(s.lines(), " ")
		if _, ok := s.counts[p.Stage]; !ok {
			line += "   " + p.Stage + " …"
		}
		s.draw(line)
	}
}

// lines returns the counts, as many side by side as fit.
func (s *stages) lines() (out []string) {
	for _, n := range s.names {
		word := n + " " + s.counts[n]
		if last := len(out) - 1; last >= 0 && textWidth(out[last])+3+len(word) < s.width {
			out[last] += "   " + word
		} else {
			out = append(out, "  "+word)
		}
	}
	return out
}

// draw overwrites the line on the terminal. A line wider than the terminal would leave a piece
// behind each time, so it is cut, keeping its end.
func (s *stages) draw(line string) {
	if over := textWidth(line) - s.width + 1; over > 0 {
		line = runewidth.TruncateLeft(line, over+1, "…")
	}
	fmt.Fprintf(s.out, "\r%s%s", line, strings.Repeat(" ", max(0, s.drawn-textWidth(line))))
	s.drawn = textWidth(line)
}

// end completes the line and prints what has happened and the warnings.
func (s *stages) end() {
	switch {
	case len(s.names) == 0:
	case s.live:
		lines := s.lines()
		s.draw(lines[0])
		fmt.Fprintln(s.out, strings.Join(append([]string{""}, lines[1:]...), "\n"))
	default:
		fmt.Fprintln(s.out, strings.Join(s.lines(), "\n"))
	}
	for _, w := range append(s.events, s.warnings...) {
		fmt.Fprintln(s.out, harmlessText(w))
	}
}
