package drive

import (
	"context"
	"errors"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/controller/api"
)

// families are what packets at the controller are counted as, see controller/monitor.
var families = []string{"arp", "ipv4", "ipv6", "lldp", "other"}

// controllerPackets counts the packets that come to the lab's controller while other probes of its group run (packets_in), and
// all that came since the lab began (packets_in_total), by family. It is paper 3's figure.
func controllerPackets(ctx context.Context, b *bed) (o experiment.Outcome, err error) {
	c := b.lab.Controller()
	before, err := packetsIn(ctx, c)
	if err != nil {
		return o, err
	}
	select {
	case <-time.After(b.options.Time("time")):
	case <-ctx.Done():
		return o, ctx.Err()
	}
	after, err := packetsIn(ctx, c)
	if err != nil {
		return o, err
	}
	for _, family := range families {
		labels := map[string]string{"family": family}
		o.Measurements = append(o.Measurements,
			result.Measurement{Metric: "packets_in", Unit: "packets", Values: []float64{float64(after[family] - before[family])}, Labels: labels},
			result.Measurement{Metric: "packets_in_total", Unit: "packets", Values: []float64{float64(after[family])}, Labels: labels})
	}
	return o, nil
}

// packetsIn are the packets so far, by family.
func packetsIn(ctx context.Context, c *api.Client) (map[string]uint64, error) {
	s, err := c.Statistics(ctx)
	if err != nil {
		return nil, errors.Join(errors.New("the packets at the controller are known of Trivet's own only; write controller: trivet"), err)
	}
	out := map[string]uint64{}
	for _, p := range s.PacketsIn {
		out[p.Family] += p.Packets
	}
	return out, nil
}
