package cli

import (
	"fmt"
	"io"
	"strings"

	"trivet.dev/trivet/lab"
)

// stages shows how far a lab is: one line that fills up on a terminal, the same
// line once at the end in a pipe.
type stages struct {
	out              io.Writer
	live             bool
	names            []string
	counts           map[string]string
	drawn            int // length of the line on the terminal
	events, warnings []string
}

func newStages(out io.Writer) *stages {
	return &stages{out: out, live: isTerminal(out), counts: map[string]string{}, warnings: []string{}}
}

// note keeps what is said besides stages.
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
		line := s.line()
		if _, ok := s.counts[p.Stage]; !ok {
			line += "   " + p.Stage + " …"
		}
		s.draw(line)
	}
}

func (s *stages) line() string {
	words := make([]string, len(s.names))
	for i, n := range s.names {
		words[i] = n + " " + s.counts[n]
	}
	return "  " + strings.Join(words, "   ")
}

func (s *stages) draw(line string) {
	fmt.Fprintf(s.out, "\r%s%s", line, strings.Repeat(" ", max(0, s.drawn-len(line))))
	s.drawn = len(line)
}

// end completes the line and prints what has happened and the warnings.
func (s *stages) end() {
	switch {
	case len(s.names) == 0:
	case s.live:
		s.draw(s.line())
		fmt.Fprintln(s.out)
	default:
		fmt.Fprintln(s.out, s.line())
	}
	for _, w := range append(s.events, s.warnings...) {
		fmt.Fprintln(s.out, w)
	}
}
