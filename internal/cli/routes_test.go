package cli

import (
	"net/netip"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/api"
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

// Proves how routes of all sources are written in FRR's words: chosen and not, with several next
// hops, none, and one that was looked up.
func TestFRRLines(t *testing.T) {
	prefix, a := netip.MustParsePrefix("10.20.0.0/16"), netip.MustParseAddr
	for want, r := range map[string]api.Route{
		"O>* 10.20.0.0/16 [110/20] via 10.0.0.2 r2, r1-eth1, tag 7\n  *                       via 10.0.1.2, r1-eth2": {Source: "ospf", Distance: 110, Metric: 20, Tag: 7, Used: true,
			Hops: []api.Hop{{Interface: "r1-eth1", Via: a("10.0.0.2"), Router: "r2"}, {Interface: "r1-eth2", Via: a("10.0.1.2")}}},
		"C>* 10.20.0.0/16 is directly connected, r1-eth1":                                                   {Source: "connected", Used: true, Hops: []api.Hop{{Interface: "r1-eth1"}}},
		"S   10.20.0.0/16 [200/1] unreachable (blackhole), not used: distance 200, not 110":                 {Source: "static", Distance: 200, Metric: 1, Drop: true, Why: "distance 200, not 110"},
		"p   10.20.0.0/16 [20/1] via 10.9.0.1, unknown, of sdwan, not used: no route leads to the next hop": {Source: "program sdwan", Distance: 20, Metric: 1, Hops: []api.Hop{{Via: a("10.9.0.1")}}, Why: "no route leads to the next hop"},
		"s>* 10.20.0.0/16 [115/3] via 10.0.0.2, the way to 10.9.0.1, r1-eth1":                               {Source: "shortest path", Distance: 115, Metric: 3, Used: true, Hops: []api.Hop{{Interface: "r1-eth1", Via: a("10.0.0.2"), For: a("10.9.0.1")}}},
	} {
		r.Prefix = prefix
		if got := strings.Join(frrLines(r), "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
