package sites

import (
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/topology"
)

// TestLargest proves that the largest packet that passes is found, whatever it is, in few rounds.
func TestLargest(t *testing.T) {
	for limit := 500; limit <= 1600; limit++ {
		want := min(limit, 1500)
		if limit < 576 {
			want = 0
		}
		if got := largest(576, 1500, func(n int) bool { return n <= limit }); got != want {
			t.Fatalf("%d of %d", got, limit)
		}
	}
}

// TestRemarks proves that what a carrier cannot give is said, of each carrier and of each link that
// asks for less delay than its carrier has, and that nothing is said of one that is as it should
// be.
func TestRemarks(t *testing.T) {
	top := &topology.Topology{Nodes: []*topology.Node{{Name: "a", Kind: topology.Host}, {Name: "b", Kind: topology.Host, On: "m1"}, {Name: "c", Kind: topology.Host, On: "m2"}}}
	for _, ends := range [][2]string{{"a", "b"}, {"a", "c"}, {"b", "c"}} {
		l := &topology.Link{}
		l.Ends[0].Node, l.Ends[1].Node = ends[0], ends[1]
		l.Delay = topology.Duration(2e6)
		top.Links = append(top.Links, l)
	}
	good := lab.Carried{Sites: [2]string{"head", "m1"}, Sent: 20, Received: 20, RTT: &ping.Summary{Median: 3}, Full: true, Whole: 1450}
	slow, bad := good, good
	slow.Sites, slow.RTT = [2]string{"head", "m2"}, &ping.Summary{Median: 8}
	bad.Sites, bad.Received, bad.Full = [2]string{"m1", "m2"}, 17, false
	got := remarks(top, lab.Sites{Carriers: []lab.Carried{good, slow, bad}})
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	for _, want := range []string{"3 of 20 probes between m1 and m2 were lost", "1,500 bytes do not arrive between m1 and m2", "asked for less delay than the way between head and m2 has by itself, which is 4ms"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}
