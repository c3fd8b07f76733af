package cli

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// FuzzParseRoute proves that whatever a user writes as a route is either refused with a message, or
// has a prefix without host bits and next hops, and stays the same when it is written and read
// again.
func FuzzParseRoute(f *testing.F) {
	for _, s := range []string{"10.9.0.0/16 via 10.0.1.9", "default via 10.0.0.1,10.0.0.2", "fd00::/64 via fe80::1%eth0", "10.0.0.1 via 10.0.0.2",
		"10.9.0.1/16 via 10.0.1.9", " via ", "::/0 via ::1, ::2", "10.0.0.0/8 discard tag 7", "10.9.0.0/16 via 10.0.1.9, 10.0.1.8 distance 200 metric 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRoute("r1", text)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("refused without words")
			}
			return
		}
		if !r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked() || r.Router != "r1" {
			t.Fatalf("%q is read as %+v", text, r)
		}
		x := topology.Route{To: r.Prefix, Discard: len(r.Via) == 0, Distance: r.Distance, Metric: r.Metric, Tag: r.Tag}
		if !x.Discard {
			x.Via = r.Via[0]
		}
		written := x.String()
		if !x.Discard {
			written = strings.Replace(written, " via "+x.Via.String(), " via "+joined(r.Via), 1)
		}
		again, err := parseRoute("r1", written)
		if err != nil || again.Prefix != r.Prefix || len(again.Via) != len(r.Via) || again.Distance != r.Distance || again.Metric != r.Metric || again.Tag != r.Tag {
			t.Fatalf("%q is read as %+v, and that as %+v, %v", text, r, again, err)
		}
	})
}

// TestColumnsAndBars proves that columns line up whatever is in them, and that a bar's length is
// the share.
func TestColumnsAndBars(t *testing.T) {
	got := columns([][]string{{"LINK", "→"}, {"s1 – h1", "10"}, {"a", "9"}}, "lr")
	want := []string{"LINK       →", "s1 – h1   10", "a          9"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("columns %q, want %q", got, want)
	}
	for share, want := range map[float64]string{0: "", 0.5: strings.Repeat("█", 10), 1: strings.Repeat("█", 20), 7: strings.Repeat("█", 20), 1.0 / 160: "▏"} {
		if got := bar(share); got != want {
			t.Errorf("bar of %g is %q, want %q", share, got, want)
		}
	}
}
