package drive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// mostQueueValues is how many values a probe keeps at most.
const mostQueueValues = 8_000_000

func init() {
	var metrics []experiment.Metric
	for _, m := range backlogs {
		metrics = append(metrics, between(m.name, m.unit, "interface"))
		for _, s := range backlogSummary {
			metrics = append(metrics, between(m.name+"_"+s.name, m.unit, "interface"))
		}
	}
	metrics = append(metrics, between("dropped", "packets", "interface"),
		between("dropped_over_time", "packets", "interface"), between("drop_ratio", "1", "interface"))
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "queue", Doc: "What waits before links and is dropped there, over time, while probes of its group run.",
		Options: []experiment.Option{
			{Name: "link", Type: experiment.Text, Doc: "The link to look at, as h1-s1 (default: all)."},
			{Name: "time", Type: experiment.Time, Default: "10s", Doc: "For how long it looks."},
			{Name: "interval", Type: experiment.Time, Default: "100ms", Doc: "Time from one look to the next."},
		},
		Check: func(o experiment.Options) error {
			if i := o.Time("interval"); i < time.Millisecond || o.Time("time")/i > 1_000_000 {
				return errors.New("interval is 1ms or more, and there are up to a million looks")
			}
			return nil
		},
		Estimate: func(o experiment.Options, _ experiment.Lab) time.Duration { return o.Time("time") },
		Metrics:  metrics, Looks: true,
	}, order: 85, chief: []string{"backlog_mean", "backlog_max", "backlog_time_p95", "dropped"}, own: true, run: queue,
		fits: fitsQueue})
}

// fitsQueue says whether the options' link is none of a topology's.
func fitsQueue(t *topology.Topology, o experiment.Options) error {
	link := o.Text("link")
	if link == "" || slices.ContainsFunc(t.Links, func(l *topology.Link) bool {
		return isLink(link, l.Ends[0].Label(), l.Ends[1].Label())
	}) {
		return nil
	}
	return fmt.Errorf("there is no link %s", link)
}

func isLink(name, a, b string) bool { return name == a+"-"+b || name == b+"-"+a }

// What is sampled of a queue, and what its samples are summed up to.
var (
	backlogs = []struct {
		name, unit string
		of         func(*lab.Backlog) float64
	}{
		{"backlog", "packets", func(q *lab.Backlog) float64 { return float64(q.Packets) }},
		{"backlog_bytes", "B", func(q *lab.Backlog) float64 { return float64(q.Bytes) }},
		{"backlog_time", "s", func(q *lab.Backlog) float64 { return q.Delay }},
	}
	backlogSummary = []struct {
		name string
		of   func([]float64) float64
	}{
		{"mean", func(v []float64) float64 { return stat.Mean(v, nil) }},
		{"median", func(v []float64) float64 { return stats.Quantile(v, 0.5) }},
		{"p95", func(v []float64) float64 { return stats.Quantile(v, 0.95) }},
		{"p99", func(v []float64) float64 { return stats.Quantile(v, 0.99) }},
		{"max", slices.Max[[]float64]},
	}
)

// queue looks at what the lab's links hold at an interval, and at what they have dropped since the
// look before. Looks that are late, as the lab was changing, are not made up for.
func queue(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	w := queueWatch{link: b.options.Text("link"), all: map[lab.Place]*sampledQueue{}}
	interval := b.options.Time("interval")
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for end := time.Now().Add(b.options.Time("time")); ; {
		now, err := b.lab.Traffic(ctx, 0)
		if err != nil {
			return experiment.Measured{Measurements: w.measurements()}, err
		}
		w.look(time.Since(b.began).Seconds(), now.Links)
		if w.values > mostQueueValues {
			return experiment.Measured{Measurements: w.measurements()}, errors.New("that is more than can be kept of all links: name one, or give a longer interval")
		}
		b.looking()
		if time.Now().After(end) {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return experiment.Measured{Measurements: w.measurements()}, ctx.Err()
		}
	}
	if o.Measurements = w.measurements(); len(o.Measurements) == 0 {
		err = errors.New("none of the links has a queue, and nobody counts what they drop: give one a bandwidth")
	}
	return o, err
}

// queueWatch is what was seen of the directions of links so far.
type queueWatch struct {
	link   string // "": all
	all    map[lab.Place]*sampledQueue
	order  []*sampledQueue
	values int // that are kept
}

// sampledQueue is what was seen of one direction.
type sampledQueue struct {
	last    lab.LinkDirection
	at      []float64 // of looks at which there was a queue
	backlog [][]float64
	since   []float64 // of further looks
	drops   []float64 // packets, since the look before
	sent    uint64
}

func (w *queueWatch) look(at float64, links []lab.LinkTraffic) {
	for _, l := range links {
		for _, d := range l.Directions {
			if d.Sent == nil || w.link != "" && !isLink(w.link, d.From.Node, d.To.Node) {
				continue
			}
			s := w.all[d.From]
			if s == nil {
				s = &sampledQueue{backlog: make([][]float64, len(backlogs))}
				w.all[d.From], w.order = s, append(w.order, s)
			} else {
				s.since = append(s.since, at)
				s.drops = append(s.drops, float64(grown(droppedBy(s.last), droppedBy(d))))
				s.sent += grown(s.last.Sent.Packets, d.Sent.Packets)
				w.values++
			}
			s.last = d
			if d.Queue == nil {
				continue
			}
			s.at = append(s.at, at)
			for i, what := range backlogs {
				s.backlog[i] = append(s.backlog[i], what.of(d.Queue))
				w.values++
			}
		}
	}
}

// droppedBy is what a direction's devices and queue have dropped.
func droppedBy(d lab.LinkDirection) uint64 {
	if d.Queue == nil {
		return d.Dropped
	}
	return d.Dropped + d.Queue.Dropped
}

// grown is by how much a counter has grown; one that is smaller has begun anew.
func grown(was, is uint64) uint64 {
	if is < was {
		return is
	}
	return is - was
}

func (w *queueWatch) measurements() (out []result.Measurement) {
	parallel := map[[2]string]int{}
	for _, s := range w.order {
		parallel[[2]string{s.last.From.Node, s.last.To.Node}]++
	}
	for _, s := range w.order {
		labels := map[string]string{"from": s.last.From.Node, "to": s.last.To.Node}
		if parallel[[2]string{s.last.From.Node, s.last.To.Node}] > 1 {
			labels["interface"] = s.last.From.Interface
		}
		out = append(out, s.measurements(labels)...)
	}
	return out
}

func (s *sampledQueue) measurements(labels map[string]string) (out []result.Measurement) {
	add := func(metric, unit string, values, at []float64) {
		out = append(out, result.Measurement{Metric: metric, Unit: unit, Values: values, At: at, Labels: labels})
	}
	for i, what := range backlogs {
		if len(s.at) == 0 || what.name == "backlog_time" && (s.last.Queue == nil || s.last.Queue.Bandwidth == 0) {
			continue
		}
		add(what.name, what.unit, s.backlog[i], s.at)
		for _, sum := range backlogSummary {
			add(what.name+"_"+sum.name, what.unit, []float64{sum.of(s.backlog[i])}, nil)
		}
	}
	if len(s.drops) == 0 {
		return out
	}
	dropped := int(floats.Sum(s.drops))
	add("dropped", "packets", []float64{float64(dropped)}, nil)
	add("dropped_over_time", "packets", s.drops, s.since)
	ratio := result.Share("drop_ratio", dropped, dropped+int(s.sent))
	ratio.Labels = labels
	return append(out, ratio)
}
