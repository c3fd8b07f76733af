package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// ping measures round trip times (rtt, in s) and their loss, of a pair or of all pairs of hosts.
func ping(ctx context.Context, b *bed) (o experiment.Outcome, err error) {
	r := lab.PingRequest{From: b.options.Text("from"), To: b.options.Text("to"), Count: b.options.Int("count"),
		Size: b.options.Int("size"), Interval: topology.Duration(b.options.Time("interval")), IPv6: b.v6()}
	if b.options.Truth("warm_up") { // whatever becomes of it: those that count will tell
		first := r
		first.Count = 1
		_, _ = b.place.ping(ctx, first)
	}
	got, err := b.place.ping(ctx, r)
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
