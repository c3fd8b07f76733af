package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/lab"
)

// watchedLab is a lab whose links are watched, and what was last read of them.
type watchedLab struct {
	*kernels
	name string
	at   time.Time
	sent map[lab.Place]uint64 // bytes, by who sends them
}

// watchedLink is a link as the controller knows it, or as its devices do, with its queues.
type watchedLink struct {
	api.Link
	Directions *[2]lab.LinkDirection `json:"directions,omitempty"`

	counted bool // somebody counts what it carries
}

func (a *app) watchedLab(ctx context.Context) (*watchedLab, error) {
	c, s, err := a.client()
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedLab{kernels: &kernels{c, a.controllerOf(c), info.Topology, info.Topology.NodesByName()},
		name: s.Name}, nil
}

// links are those of the lab: as the controller has measured them where it has, else as their
// devices have since the last time; and links that only the controller knows.
func (w *watchedLab) links(ctx context.Context, measured []api.Link) ([]watchedLink, error) {
	queues, err := w.client.Queues(ctx)
	if err != nil {
		return nil, err
	}
	was, period := w.sent, time.Since(w.at).Seconds()
	w.at, w.sent = time.Now(), map[lab.Place]uint64{}
	known := map[lab.Place]api.Link{}
	for _, l := range measured {
		for _, e := range l.Ends {
			known[place(e)] = l
		}
	}
	out, shown := make([]watchedLink, 0, len(queues)), map[lab.Place]bool{}
	for _, q := range queues {
		one := watchedLink{Directions: &q.Directions, counted: q.Directions[0].Sent != nil}
		rates := [2]*float64{}
		for i, d := range q.Directions {
			one.Ends[i] = api.End{Node: d.From.Node, Interface: d.From.Interface}
			shown[d.From] = true
			if d.Queue != nil {
				one.Capacity[i] = float64(d.Queue.Bandwidth)
			}
			if d.Sent == nil {
				continue
			}
			w.sent[d.From] = d.Sent.Bytes
			if before, there := was[d.From]; there {
				rate := 8 * float64(d.Sent.Bytes-min(before, d.Sent.Bytes)) / period
				rates[i] = &rate
			}
		}
		one.SetRates(rates)
		if l, ok := known[q.Directions[0].From]; ok && !w.isLinuxRouter(one.Ends[0].Node) &&
			!w.isLinuxRouter(one.Ends[1].Node) {
			if one.Link, one.counted = l, true; place(l.Ends[0]) != q.Directions[0].From {
				one.Directions = &[2]lab.LinkDirection{q.Directions[1], q.Directions[0]}
			}
		}
		out = append(out, one)
	}
	for _, l := range measured {
		if !shown[place(l.Ends[0])] && !shown[place(l.Ends[1])] {
			out = append(out, watchedLink{Link: l, counted: true})
		}
	}
	slices.SortStableFunc(out, func(a, b watchedLink) int { return b.CompareLoad(a.Link) })
	return out, nil
}

func place(e api.End) lab.Place { return lab.Place{Node: e.Node, Interface: e.Interface} }

// queued is how many packets wait in a direction; – if nothing can.
func (l *watchedLink) queued(direction int) string {
	if l.Directions == nil || l.Directions[direction].Queue == nil {
		return "–"
	}
	return fmt.Sprint(l.Directions[direction].Queue.Packets)
}

// dropped is how many packets were dropped in a direction; – if nobody counts them.
func (l *watchedLink) dropped(direction int) string {
	if l.Directions == nil || l.Directions[direction].Sent == nil {
		return "–"
	}
	d := l.Directions[direction]
	if d.Queue != nil {
		return fmt.Sprint(d.Dropped + d.Queue.Dropped)
	}
	return fmt.Sprint(d.Dropped)
}
