package routing

import (
	"fmt"
	"net/netip"
	"testing"

	"trivet.dev/trivet/routing/rib"
)

// Proves which of a router's static routes count, beside shortest paths and each other: by their
// distance, then by their metric, with one that discards and ones behind other routes; that a
// substitute counts as soon as the better route is gone; and that what does not count is listed
// with the reason.
func TestStaticRoutes(t *testing.T) {
	w := newWires(4) // r1 – r2 – r3 – r4, and r1 – r3
	w.join(0, 1, 1)
	w.join(1, 2, 1)
	w.join(2, 3, 1)
	w.join(0, 2, 1)
	to := netip.MustParsePrefix
	r2, r3 := netip.MustParseAddr("172.16.0.2"), netip.MustParseAddr("172.16.0.14")
	w.Routers[0].Static = []StaticRoute{
		{To: to("10.0.3.0/24"), Via: r2, Distance: 200},                    // a substitute for the way over r3
		{To: to("20.1.0.0/16"), Via: r2}, {To: to("20.1.0.0/16"), Via: r3}, // both
		{To: to("20.2.0.0/16"), Via: r2, Metric: 2}, {To: to("20.2.0.0/16"), Via: r3, Metric: 5},
		{To: to("20.3.0.0/16"), Discard: true, Distance: 5}, {To: to("20.3.0.0/16"), Via: r2},
		{To: to("20.4.0.0/16"), Via: netip.MustParseAddr("10.0.3.1")}, // behind the way to r4
		{To: to("20.5.0.0/16"), Via: netip.MustParseAddr("20.4.0.9")}, // behind that
		{To: to("20.6.0.0/16"), Via: netip.MustParseAddr("20.6.0.1")}, // behind itself
		{To: to("20.7.0.0/16"), Via: netip.MustParseAddr("99.0.0.1")}, // behind the default route only
		{To: to("0.0.0.0/0"), Via: r2},
		{To: to("20.10.0.0/16"), Via: netip.MustParseAddr("20.11.1.9")}, // behind the longer of two that follow
		{To: to("20.11.1.0/24"), Via: netip.MustParseAddr("20.4.0.9")}, {To: to("20.11.0.0/16"), Via: r2},
		{To: to("20.8.0.0/16"), Via: r2, Distance: rib.Never},
		{To: to("20.9.0.0/16"), Via: netip.MustParseAddr("10.0.0.1")}, // itself
	}
	show := func(n *network, prefix string) (out string) {
		for _, c := range n.candidates(0, to(prefix)) {
			out += fmt.Sprintf("%v %v [%d/%d]", map[bool]string{true: "*", false: "-"}[c.Used], c.Source, c.Distance, c.Metric)
			for _, h := range c.Hops {
				out += " " + h.Via.String()
			}
			if out += "; "; c.Why != "" {
				out += "(" + c.Why + ") "
			}
		}
		return out
	}
	for _, demand := range []bool{false, true} {
		w.Reactive = demand
		n := w.network(t)
		for prefix, want := range map[string]string{
			"10.0.0.0/24":  "* connected [0/0] invalid IP; ",
			"10.0.3.0/24":  "* shortest path [115/3] 172.16.0.14; - static [200/1] 172.16.0.2; (distance 200, not 115) ",
			"20.1.0.0/16":  "* static [1/1] 172.16.0.2 172.16.0.14; ",
			"20.2.0.0/16":  "* static [1/2] 172.16.0.2; - static [1/5] 172.16.0.14; (metric 5, not 2) ",
			"20.3.0.0/16":  "* static [1/1] 172.16.0.2; - static [5/1]; (distance 5, not 1) ",
			"20.4.0.0/16":  "* static [1/1] 172.16.0.14; ",
			"20.5.0.0/16":  "* static [1/1] 172.16.0.14; ",
			"20.6.0.0/16":  "- static [1/1] 20.6.0.1; (no route leads to the next hop) ",
			"20.7.0.0/16":  "- static [1/1] 99.0.0.1; (no route leads to the next hop) ",
			"20.8.0.0/16":  "- static [255/1] 172.16.0.2; (distance 255: never used) ",
			"20.9.0.0/16":  "- static [1/1] 10.0.0.1; (the next hop is the router itself) ",
			"20.10.0.0/16": "* static [1/1] 172.16.0.14; ",
			"20.0.0.0/8":   "",
		} {
			if got := show(n, prefix); got != want {
				t.Errorf("on demand %v: %s:\n%s\nwant\n%s", demand, prefix, got, want)
			}
		}
		if r := n.lookup(0, netip.MustParseAddr("20.8.0.1")); r == nil || r.Prefix.Bits() != 0 {
			t.Errorf("on demand %v: a route that is never used hides the default route: %v", demand, r)
		}
	}

	cut := *w
	cut.up, cut.links = nil, w.links
	for _, m := range w.up {
		up := map[uint32]bool{}
		for port, is := range m {
			up[port] = is
		}
		cut.up = append(cut.up, up)
	}
	cut.cut(2) // r3 – r4: no shortest path leads to r4
	for _, demand := range []bool{false, true} {
		cut.Reactive = demand
		n := cut.network(t)
		want := "* static [200/1] 172.16.0.2; "
		if got := show(n, "10.0.3.0/24"); got != want {
			t.Errorf("on demand %v: the substitute: %s, want %s", demand, got, want)
		}
		if got, want := show(n, "20.4.0.0/16"), "* static [1/1] 172.16.0.2; "; got != want {
			t.Errorf("on demand %v: behind the substitute: %s, want %s", demand, got, want)
		}
	}
}
