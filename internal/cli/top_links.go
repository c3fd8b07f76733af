package cli

import (
	"cmp"
	"fmt"
	"slices"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/lab"
)

// withMeasured are links of a lab and those that only its controller knows, the busiest first.
func withMeasured(links []lab.LinkTraffic, measured []api.Link) []lab.LinkTraffic {
	out, shown := append([]lab.LinkTraffic{}, links...), map[lab.Place]bool{}
	for _, l := range links {
		shown[l.Directions[0].From], shown[l.Directions[1].From] = true, true
	}
	for _, l := range measured {
		if t := measuredLink(l); !shown[t.Directions[0].From] && !shown[t.Directions[1].From] {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b lab.LinkTraffic) int {
		return cmp.Or(cmp.Compare(most(b, share), most(a, share)), cmp.Compare(most(b, rate), most(a, rate)))
	})
	return out
}

// measuredLink is a link as a controller has measured it.
func measuredLink(l api.Link) (t lab.LinkTraffic) {
	t.Link = l.Ends[0].Node + "-" + l.Ends[1].Node
	for i, e := range l.Ends {
		d, far := &t.Directions[i], l.Ends[1-i]
		d.From, d.To = lab.Place{Node: e.Node, Interface: e.Interface}, lab.Place{Node: far.Node, Interface: far.Interface}
		d.Bandwidth, d.Rate = int64(l.Capacity[i]), l.Rates[i]
		if d.Rate != nil && d.Bandwidth > 0 {
			share := *d.Rate / l.Capacity[i]
			d.Share = &share
		}
	}
	return t
}

func rate(d lab.LinkDirection) *float64  { return d.Rate }
func share(d lab.LinkDirection) *float64 { return d.Share }

// most is the greater value of a link's two directions; -1: neither is known.
func most(l lab.LinkTraffic, of func(lab.LinkDirection) *float64) float64 {
	out := -1.0
	for _, d := range l.Directions {
		if v := of(d); v != nil {
			out = max(out, *v)
		}
	}
	return out
}

// queued is how many packets wait in a direction; – if nothing can.
func queued(d lab.LinkDirection) string {
	if d.Queue == nil {
		return "–"
	}
	return fmt.Sprint(d.Queue.Packets)
}

// dropped is how many packets were dropped in a direction; – if nobody counts them.
func dropped(d lab.LinkDirection) string {
	switch {
	case d.Sent == nil:
		return "–"
	case d.Queue != nil:
		return fmt.Sprint(d.Dropped + d.Queue.Dropped)
	}
	return fmt.Sprint(d.Dropped)
}
