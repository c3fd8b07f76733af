package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "ping", Doc: "Round trip times of ICMP echoes.",
		Options: []experiment.Option{
			optional(fromNode), optional(toNode),
			{Name: "all", Type: experiment.Truth, Default: "false",
				Doc: "Every host pings every other at the same time; instead of from and to."},
			{Name: "count", Type: experiment.Whole, Default: "10", Least: 1, Doc: "Echoes to send to each host."},
			{Name: "interval", Type: experiment.Time, Default: "200ms", Doc: "Time from one echo to the next."},
			by(payload, "56"), useIPv6,
			{Name: "paced", Type: experiment.Truth, Default: "true",
				Doc: "With all: only so many pings are under way at a time that they do not measure each other; false: all pairs begin at once."},
			{Name: "warm_up", Type: experiment.Truth, Default: "true",
				Doc: "Send one echo first that does not count, so that the others do not wait for ARP and flow entries."},
		},
		Check: func(o experiment.Options) error {
			if one := o["from"] != "" && o["to"] != ""; one == o.Truth("all") {
				return errors.New("it needs either from and to, or all: true; write {from: h1, to: h2}")
			}
			if !o.Truth("paced") && !o.Truth("all") {
				return errors.New("paced: is for the pings of all pairs; leave it out, or write all: true")
			}
			return nil
		},
		Estimate: pinging,
		// Pings of all pairs take as long as hosts ask for addresses.
		Patience: func(o experiment.Options) time.Duration {
			if o.Truth("all") {
				return 10 * time.Minute
			}
			return 0
		},
		Metrics:  []experiment.Metric{between("rtt", "s"), between("loss", "1")},
		Answered: true,
	}, order: 10, run: pings})
}

// pinging is how long pings take: with all: true 16 pairs are in turn, each for as long as its
// echoes take, but no longer than 100 ms (see bench/probe, PingPairs). Where they are not paced all
// are the machine's work of a moment: some 50 us each.
func pinging(o experiment.Options, l experiment.Lab) time.Duration {
	one := time.Duration(o.Int("count")-1)*o.Time("interval") + 5*time.Millisecond
	if !o.Truth("all") {
		return one
	}
	n, _ := l.Size()
	hosts := time.Duration(min(n, mostPinging))
	if !o.Truth("paced") {
		return one + hosts*(hosts-1)*time.Duration(o.Int("count"))*50*time.Microsecond
	}
	return one + hosts*(hosts-1)*min(one, 100*time.Millisecond)/16
}

// mostPinging bounds the hosts whose pairs are counted, so that the time of all stays far below
// what a Duration holds.
const mostPinging = 10_000

// pings measures round trip times (rtt, in s) and their loss, of a pair or of all pairs of hosts.
func pings(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	r := lab.PingRequest{From: b.options.Text("from"), To: b.options.Text("to"), Count: b.options.Int("count"),
		Size: b.options.Int("size"), Interval: topology.Duration(b.options.Time("interval")), IPv6: b.v6()}
	if b.options.Truth("warm_up") { // whatever becomes of it: those that count will tell
		first := r
		first.Count = 1
		_, _ = b.nodes.ping(ctx, first)
	}
	r.Unpaced = !b.options.Truth("paced")
	got, err := b.nodes.ping(ctx, r)
	received := 0
	var reasons []error
	for _, p := range got.Pairs {
		if p.Sent == 0 {
			continue
		}
		received += p.Received
		o.Measurements = append(o.Measurements, pingMeasurements(p.From, p.To, p.RTT, p.Sent, p.Received)...)
		if p.Error != "" {
			reasons = append(reasons, fmt.Errorf("%s → %s: %s", p.From, p.To, p.Error))
		}
		if b.alone {
			o.Links = append(o.Links, b.checkPing(p.From, p.To, r.Size, p.RTT, p.Sent)...)
		}
	}
	o.Details, _ = json.Marshal(map[string]any{"sent": got.Sent, "received": got.Received})
	if err == nil && received == 0 && len(b.cell.Schedule) == 0 {
		err = errors.Join(append(reasons, errors.New("no reply came"))...)
	}
	return o, err
}

func pingMeasurements(from, to string, ms []float64, sent, received int) []result.Measurement {
	labels := map[string]string{"from": from, "to": to}
	loss := result.Share("loss", sent-received, sent)
	loss.Labels = labels
	if len(ms) == 0 {
		return []result.Measurement{loss}
	}
	rtt := result.Measurement{Metric: "rtt", Unit: "s", Labels: labels}
	for _, v := range ms {
		rtt.Values = append(rtt.Values, v/1e3)
	}
	return []result.Measurement{rtt, loss}
}
