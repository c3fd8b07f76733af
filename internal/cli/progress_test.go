package cli

import (
	"bytes"
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
)

// TestStagesFit proves that no line that up shows while it works is wider than the terminal, where
// it could not be overwritten and would leave pieces behind; that all counts are readable at the
// end; and that in a pipe they stay on one line.
func TestStagesFit(t *testing.T) {
	stages := []string{"nodes", "links", "addresses", "switches", "shaping", "carriers", "controllers"}
	var out bytes.Buffer
	s := newStages(&out)
	if s.live {
		t.Fatal("a buffer is no terminal")
	}
	s.live, s.width = true, 60
	run := func() {
		for _, name := range stages {
			s.step(lab.Progress{Stage: name, Done: 0, Total: 120})
			s.step(lab.Progress{Stage: name, Done: 120, Total: 120})
		}
		s.step(lab.Progress{Stage: "waiting for the controller"})
		s.end()
	}
	run()
	for _, line := range strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if w := textWidth(strings.TrimRight(line, " ")); w >= 60 {
			t.Errorf("%d columns wide: %q", w, line)
		}
	}
	if !strings.Contains(out.String(), "\r  …") && !strings.Contains(out.String(), "\r…") {
		t.Errorf("nothing was cut: %q", out.String())
	}
	_, last, _ := strings.Cut(out.String(), "waiting for the controller …")
	for _, name := range stages {
		if !strings.Contains(last, name+" 120/120") {
			t.Errorf("no %s at the end: %q", name, last)
		}
	}

	out.Reset()
	s = newStages(&out)
	run()
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("in a pipe: %q", out.String())
	}
}
