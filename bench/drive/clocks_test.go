package drive

import (
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
)

// TestClocks proves that a one-way delay between sites is doubtful where their clocks are apart, or
// may be, by more than a twentieth of it; whichever of the two is the head, and where neither is.
func TestClocks(t *testing.T) {
	s := &lab.Sites{Others: []lab.SiteInfo{{Name: "m1", Clock: &lab.Clock{Offset: 2, Within: 0.1}}, {Name: "m2", Clock: &lab.Clock{Offset: -1, Within: 0.1}}, {Name: "m3"}}}
	for _, c := range []struct {
		from, to string
		delay    float64 // s
		want     string
	}{
		{"head", "m1", 1, ""},
		{"head", "m1", 0.01, "+2 ms ± 0.1 ms apart, beside a delay of 10 ms"},
		{"m1", "head", 0.01, "-2 ms ± 0.1 ms apart"},
		{"m1", "m2", 0.02, "-3 ms ± 0.2 ms apart"},
		{"m2", "m1", -0.003, "+3 ms"},
		{"m1", "m3", 1, "is not known"},
	} {
		got := ""
		for _, r := range apart(s, c.from, c.to, c.delay) {
			got += r.Text
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s to %s, %g s: %q, want %q", c.from, c.to, c.delay, got, c.want)
		}
	}
}
