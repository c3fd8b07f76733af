package cli

import (
	"cmp"
	"fmt"
	"slices"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/lab"
)

// withMeasured are links of a lab and those that only its controller knows, the busiest first. A
// direction that nobody counts in the lab has the rate that the controller has measured.
func withMeasured(links []lab.LinkTraffic, measured []api.Link) []lab.LinkTraffic {
	out, shown := append([]lab.LinkTraffic{}, links...), map[lab.Place]*lab.LinkDirection{}
	for i := range out {
		for e := range out[i].Directions {
			d := &out[i].Directions[e]
			shown[d.From] = d
		}
	}
	for _, l := range measured {
		t := measuredLink(l)
		there, back := shown[t.Directions[0].From], shown[t.Directions[1].From]
		if there == nil && back == nil {
			out = append(out, t)
		}
		for e, d := range []*lab.LinkDirection{there, back} {
			if d != nil && d.Sent == nil && d.Rate == nil {
				d.Rate, d.Share = t.Directions[e].Rate, t.Directions[e].Share
			}
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
		d.From, d.To = lab.Place{Node: e.Node, Interface: e.Interface},
			lab.Place{Node: far.Node, Interface: far.Interface}
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
