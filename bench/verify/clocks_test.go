package verify

import (
	"strings"
	"testing"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/lab"
)

// TestClocks proves that a delay between two machines is told by both clocks' distance, and by no
// more than that is known: what is right with clocks that differ by much is right, what is wrong by
// more than they may be off is wrong, and what they cannot tell is not told.
func TestClocks(t *testing.T) {
	const text = "nodes: {s1: switch, h1: host, h2: {host: {on: m1}}}\nlinks: [h1 -- s1, s1 -- h2: {delay: 10ms}]\n"
	far := hop{1, 0} // s1 → h2
	for _, c := range []struct {
		name    string
		clock   *lab.Clock // of m1
		takes   int64      // milliseconds
		verdict Verdict
		why     string
	}{
		{"right", &lab.Clock{Offset: 3000, Within: 0.2}, 10, OK, ""},
		{"late", &lab.Clock{Offset: 3000, Within: 0.2}, 14, Wrong, "take 14 ms, not 10 ms"},
		{"early", &lab.Clock{Offset: -3000, Within: 0.2}, 7, Wrong, "take 7 ms, not 10 ms"},
		{"off by what is not known", &lab.Clock{Offset: 3000, Within: 4}, 14, Untold, "apart is known to ± 4 ms only"},
		{"not known", nil, 10, Untold, "how far the clocks of head and m1 are apart is not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verifierOf(t, text)
			v.sites.Others = []lab.SiteInfo{{Name: "m1", Clock: c.clock}}
			offset := int64(0)
			if c.clock != nil {
				offset = int64(c.clock.Offset * 1e6)
			}
			tapped := &packets.Tapped{Sights: []packets.Sight{{Device: "h2-eth0"}}}
			s := point{at: map[uint64]int64{}}
			for n := range 100 {
				left := began + int64(n)*1e7
				s.at[uint64(n)] = left
				tapped.Sights[0].Numbers = append(tapped.Sights[0].Numbers, uint64(n))
				tapped.Sights[0].At = append(tapped.Sights[0].At, left+c.takes*1e6+offset)
			}
			tapped.InTimeOf(v.ahead("h2"))
			here := pointOf(sighting{place: "h2", Sight: tapped.Sights[0]})
			sample := &sample{by: "h1 → h2", of: 100}
			var both []crossing
			for n, left := range s.at {
				both = append(both, crossing{left, here.at[n]})
			}
			sample.cross(both, 10e6, idle())
			v.saw(far, sample)
			got := v.result.Links[1].Directions[0].Check(Delay)
			if got.Verdict != c.verdict || !strings.Contains(got.Why, c.why) {
				t.Errorf("%s: %s", got.Verdict, got.Why)
			}
		})
	}
}
