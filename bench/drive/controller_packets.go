package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packetin"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "controller_packets", Doc: "Packets that come to the controller, by protocol, while other probes run.",
		Options:  []experiment.Option{sendTime},
		Estimate: sending(100 * time.Millisecond),
		Metrics: []experiment.Metric{metric("packets_in", "packets", "family"),
			metric("packets_in_total", "packets", "family"), metric("packets_in_protocol", "packets", "protocol")},
		Controller: true,
		Looks:      true,
	}, order: 80, listens: true, run: controllerPackets})
}

// controllerPackets counts the packets that come to the lab's controllers while other probes of its
// group run (packets_in), and all that came since the lab began (packets_in_total), by family, and
// the first also by protocol (packets_in_protocol). It is paper 3's figure. Trivet's own controller
// counts by itself; to others' connections it listens.
func controllerPackets(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	before, err := b.packetsIn(ctx)
	if err != nil {
		return o, err
	}
	b.looking()
	select {
	case <-time.After(b.options.Time("time")):
	case <-ctx.Done():
		return o, ctx.Err()
	}
	after, err := b.packetsIn(ctx)
	if err != nil {
		return o, err
	}
	heard := after.heard.Since(before.heard)
	o.Reasons = unheard(heard)
	if len(o.Reasons) > 0 {
		o.Details, _ = json.Marshal(map[string]packetin.Counts{"heard": heard})
	}
	o.Measurements = byFamily("packets_in", heard.Packets)
	if after.whole {
		o.Measurements = append(o.Measurements, byFamily("packets_in_total", after.heard.Packets)...)
	}
	for p, n := range heard.Packets {
		o.Measurements = append(o.Measurements,
			result.Measurement{Metric: "packets_in_protocol", Unit: "packets", Values: []float64{float64(n)},
				Labels: map[string]string{"protocol": monitor.Protocol(p).String()}})
	}
	return o, nil
}

// byFamily makes measurements of packets by protocol: arp, ipv4, ipv6, lldp, other.
func byFamily(metric string, packets [monitor.NumProtocols]uint64) (out []result.Measurement) {
	sums := map[string]uint64{}
	var families []string
	for p, n := range packets {
		family := monitor.Protocol(p).Family()
		if _, known := sums[family]; !known {
			families = append(families, family)
		}
		sums[family] += n
	}
	for _, f := range families {
		out = append(out,
			result.Measurement{Metric: metric, Unit: "packets", Values: []float64{float64(sums[f])},
				Labels: map[string]string{"family": f}})
	}
	return out
}

// packetsSoFar are the packets that have come to all controllers of a lab.
type packetsSoFar struct {
	heard packetin.Counts
	whole bool // since the lab began
}

func (b *bed) packetsIn(ctx context.Context) (now packetsSoFar, err error) {
	own, others := false, false
	for _, n := range b.topology.Nodes {
		if n.IsDatapath() {
			own = own || slices.Contains(n.Controllers, topology.ControllerTrivet)
			others = others || slices.ContainsFunc(n.Controllers, func(c string) bool {
				return c != topology.ControllerTrivet && c != topology.ControllerNone
			})
		}
	}
	if !own && !others {
		return now, errors.New("no switch of the lab has a controller; write lab: {controller: trivet}")
	}
	now.whole = true
	if others {
		south, err := b.south()
		if err != nil {
			return now, err
		}
		if now.heard, now.whole, err = south.counts(); err != nil {
			return now, err
		}
	}
	if !own {
		return now, nil
	}
	s, err := b.lab.Controller().Statistics(ctx)
	if err != nil {
		return now, err
	}
	for _, p := range s.PacketsIn {
		if i := slices.Index(monitor.ProtocolNames(), p.Protocol); i >= 0 {
			now.heard.Packets[i] += p.Packets
		}
	}
	return now, nil
}

// Of messages to the controller that were not seen: the share from which figures are bad.
const badUnheard = 0.01

// unheard says what speaks against counts of what was heard.
func unheard(c packetin.Counts) (out []environment.Reason) {
	add := func(level environment.Level, format string, args ...any) {
		out = append(out, environment.Reason{Level: level, Code: "unheard", Text: fmt.Sprintf(format, args...)})
	}
	if c.Gaps > 0 || c.Missing > 0 || c.Overflow > 0 {
		level := environment.Doubtful
		if float64(c.Missing) > badUnheard*float64(c.Missing+c.Bytes) {
			level = environment.Bad
		}
		add(level,
			"not all that switches sent their controllers was captured: %d bytes of %d are missing, in %d places",
			c.Missing, c.Missing+c.Bytes, c.Gaps)
	}
	if c.Unread > 0 {
		add(environment.Doubtful, "%d packets at the controller could not be read", c.Unread)
	}
	if c.Foreign > 0 {
		add(environment.Bad, "in %d connections to controllers no OpenFlow was found; TLS cannot be read", c.Foreign)
	}
	return out
}
