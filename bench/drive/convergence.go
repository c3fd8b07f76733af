package drive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "convergence", Doc: "How long packets are lost after an event (see schedule).", Events: true,
		Options: []experiment.Option{fromNode, toNode, sendTime, useIPv6,
			{Name: "interval", Type: experiment.Time, Default: "1ms", Doc: "Time from one packet to the next."},
		},
		Check: func(o experiment.Options) error {
			if i := o.Time("interval"); i < 10*time.Microsecond || o.Time("time")/i > 4_000_000 {
				return errors.New("interval is 10us or more, and a stream has up to 4 million packets")
			}
			return nil
		},
		Estimate: sending(aroundStream),
		Metrics: append([]experiment.Metric{between("outage", "s", "event", "number"),
			between("outage_lost", "packets", "event", "number"),
			between("gap", "s"), between("ttl", "packets", "ttl")}, streamed...),
	}, order: 100, chief: []string{"outage", "outage_lost", "loss"}, run: convergence})
}

// numberedSize is the payload of a packet of the stream that looks for outages, in bytes.
const numberedSize = 64

// keptOutages is the most outages that go into the result: the longest.
const keptOutages = 1000

// convergence sends a numbered packet each interval while things happen, and finds for how long
// packets were lost then (outage), how many, and how many hops the others went.
func convergence(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	interval := b.options.Time("interval")
	s := packets.Send{Size: numberedSize, Rate: float64(time.Second) / float64(interval),
		Count: max(2, int(b.options.Time("time")/interval))}
	x, err := b.stream(ctx, s, packets.Receive{Sample: keptDelays, Record: true})
	sent, got := x.sent, x.got
	if sent == nil || got == nil || got.Record == nil {
		return o, err
	}
	outages := packets.Outages(got.Record, sent, interval)
	o.Measurements = slices.Concat(x.outages(b.cell.Schedule, outages), x.hops(), x.measurements())
	o.Drops, o.Reasons = x.drops(b.options.Text("to")),
		append(slow(b.options.Text("from"), s.Rate, sent.Rate()), x.clocksTell()...)
	o.Links = append(b.checkStream(x),
		b.tooMuch(b.options.Text("from"), b.options.Text("to"), x.frameRate(b.frame(s.Size)))...)
	o.Details, _ = json.Marshal(map[string]any{"sender": sent, "outages": len(outages),
		"dropped_by_receiver": got.Dropped, "foreign": got.Foreign})
	if n := len(outages); err == nil && n > 0 && outages[n-1].Open && outages[n-1].Seconds > b.quiet().Seconds() {
		err = fmt.Errorf("packets were still lost when the stream ended, for %.3g s by then: the outage is longer than reported; give it more time", outages[n-1].Seconds)
	}
	return o, err
}

// outages are the longest one that may have begun after each event and before the next; without
// events the longest of all. Then all of more than one packet.
func (x *exchange) outages(schedule []experiment.Event, all []packets.Outage) (out []result.Measurement) {
	windows := x.windows(schedule)
	first := lists.Map(all, func(o packets.Outage) int { // window in which it may have begun; -1: in none
		return slices.IndexFunc(windows, func(w [2]int64) bool { return o.Latest >= w[0] && o.At < w[1] })
	})
	for i, window := range windows {
		longest := packets.Outage{At: window[0]}
		for k, o := range all {
			if first[k] == i && o.Seconds > longest.Seconds {
				longest = o
			}
		}
		m := x.over("outage", "s", []packets.Point{{At: longest.At, Value: longest.Seconds}})
		lost := x.one("outage_lost", "packets", float64(longest.Lost))
		if len(schedule) > 0 {
			m.Labels = x.eventLabels(i, schedule[i])
			lost.Labels = m.Labels
		}
		out = append(out, m, lost)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(o packets.Outage) bool { return o.Lost < 2 })
	slices.SortFunc(all, func(a, b packets.Outage) int { return cmp.Compare(b.Seconds, a.Seconds) })
	all = all[:min(len(all), keptOutages)]
	slices.SortFunc(all, func(a, b packets.Outage) int { return cmp.Compare(a.At, b.At) })
	if len(all) == 0 {
		return out
	}
	var points []packets.Point
	for _, o := range all {
		points = append(points, packets.Point{At: o.At, Value: o.Seconds})
	}
	return append(out, x.over("gap", "s", points))
}

// windows are the times from each event to the next, in nanoseconds since 1970. What is lost from
// some packets before an event on was sent earlier, and lost on its way: a packet is on its way for
// no longer than the longest delay that was seen.
func (x *exchange) windows(schedule []experiment.Event) (out [][2]int64) {
	const ever = 1<<63 - 1
	if len(schedule) == 0 {
		return [][2]int64{{0, ever}}
	}
	under := int64(min(x.got.Delay.Max, 1) * 1e9)
	for i, e := range schedule {
		window := [2]int64{x.began.Add(time.Duration(e.At)).UnixNano() - under, ever}
		if i > 0 {
			out[i-1][1] = window[0]
		}
		out = append(out, window)
	}
	return out
}

func (x *exchange) eventLabels(i int, e experiment.Event) map[string]string {
	labels := map[string]string{"event": e.What, "number": strconv.Itoa(i + 1)}
	for k, v := range x.labels {
		labels[k] = v
	}
	return labels
}

// hops are how many packets came with which TTL: 64 less the routers on the way.
func (x *exchange) hops() (out []result.Measurement) {
	var seen []int
	for ttl := range x.got.TTL {
		seen = append(seen, ttl)
	}
	slices.Sort(seen)
	for _, ttl := range seen {
		m := x.one("ttl", "packets", float64(x.got.TTL[ttl]))
		m.Labels = map[string]string{"ttl": strconv.Itoa(ttl)}
		for k, v := range x.labels {
			m.Labels[k] = v
		}
		out = append(out, m)
	}
	return out
}
