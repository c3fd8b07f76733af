package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
)

// TestModelLines proves that of many modelled nodes top shows as many as have room, and says how
// many more there are.
func TestModelLines(t *testing.T) {
	nodes := make([]lab.ModelledNode, 7)
	for i := range nodes {
		nodes[i].Node = fmt.Sprint("s", i)
	}
	for most, want := range map[int]string{3: "… and 4 more", 7: "s6"} {
		lines := modelLines(nodes, most)
		if len(lines) > most+3 || !strings.HasPrefix(lines[len(lines)-1], want) {
			t.Errorf("at most %d: %q", most, lines)
		}
	}
	if lines := modelLines(nil, 3); len(lines) != 0 {
		t.Errorf("of none: %q", lines)
	}
}

// TestTopTime proves that the time of measurements is not that of a controller's statistics, but
// the one that was set, in JSON, too.
func TestTopTime(t *testing.T) {
	m := measurements{Statistics: api.Statistics{Time: time.Unix(1, 0)}, Time: time.Unix(2, 0).UTC()}
	text, err := json.Marshal(m)
	if err != nil || strings.Count(string(text), `"time"`) != 1 || !strings.Contains(string(text), `"time":"1970-01-01T00:00:02Z"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestTopLinks proves that top lists the lab's links with those that only its controller knows,
// each once, by the share of the bandwidth that the busier direction takes, then by its rate, and
// those last of which nothing is known; that a controller's rates, capacities and ends become a
// link's; and that it says the rate of a direction that nobody counts in the lab, whose links stay
// what they are.
func TestTopLinks(t *testing.T) {
	n := func(v float64) *float64 { return &v }
	link := func(a, b string, rate, share *float64) lab.LinkTraffic {
		l := lab.LinkTraffic{Link: a + "-" + b}
		l.Directions[0].From, l.Directions[1].From = lab.Place{Node: a, Interface: a + "-eth0"}, lab.Place{Node: b, Interface: b + "-eth0"}
		l.Directions[1].Rate, l.Directions[1].Share = rate, share
		return l
	}
	measured := func(a, b string, capacity float64) api.Link {
		return api.Link{Ends: [2]api.End{{Node: a, Interface: a + "-eth0"}, {Node: b, Interface: b + "-eth0"}},
			Rates: [2]*float64{n(100), nil}, Capacity: [2]float64{capacity, 0}}
	}
	out := withMeasured([]lab.LinkTraffic{link("a", "b", nil, nil), link("c", "d", n(5), nil), link("e", "f", n(1), n(0.1)), link("g", "h", n(7), nil)},
		[]api.Link{measured("d", "c", 0), measured("x", "y", 200), measured("v", "w", 0)})
	var names []string
	for _, l := range out {
		names = append(names, l.Link)
	}
	if want := []string{"x-y", "e-f", "v-w", "g-h", "c-d", "a-b"}; !slices.Equal(names, want) {
		t.Fatalf("%v, not %v", names, want)
	}
	if there, back := out[0].Directions[0], out[0].Directions[1]; there.Bandwidth != 200 || *there.Rate != 100 || *there.Share != 0.5 ||
		there.To != back.From || back.From.Node != "y" || back.Rate != nil || back.Share != nil {
		t.Errorf("%+v, %+v", there, back)
	}

	known := []lab.LinkTraffic{link("a", "b", nil, nil)}
	known[0].Directions[1].Sent = &counters.Traffic{}
	out = withMeasured(known, []api.Link{{Ends: [2]api.End{{Node: "b", Interface: "b-eth0"}, {Node: "a", Interface: "a-eth0"}},
		Rates: [2]*float64{n(7), n(100)}, Capacity: [2]float64{200, 200}}})
	if there, back := out[0].Directions[0], out[0].Directions[1]; len(out) != 1 || there.Rate == nil || *there.Rate != 100 ||
		*there.Share != 0.5 || back.Rate != nil || known[0].Directions[0].Rate != nil {
		t.Errorf("of %d links: %+v, %+v", len(out), there, back)
	}
}
