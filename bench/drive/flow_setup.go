package drive

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// followers are the packets of a flow after its first: the median of their delays is what the first
// one's is held against.
const followers = 3

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "flow_setup", Doc: "How much longer the first packet of a flow takes.",
		Options: []experiment.Option{fromNode, toNode, useIPv6,
			{Name: "count", Type: experiment.Whole, Default: "20", Least: 1, Doc: "Flows to set up."},
			{Name: "new", Type: experiment.Word, Words: []string{"ports", "hosts"}, Default: "ports",
				Doc: "What is new in each: UDP ports, or the sender's addresses."},
			{Name: "rate", Type: experiment.Number, Default: "10", Least: 0.001, Doc: "Flows per second."},
		},
		Check: func(o experiment.Options) error {
			if most := map[string]int{"ports": 64_512, "hosts": 100_000}[o["new"]]; o.Int("count") > most ||
				o.Float("rate") > 1e6 {
				return fmt.Errorf("count is up to %d flows with new %s, and rate up to a million flows/s", most,
					o["new"])
			}
			return nil
		},
		Estimate: func(o experiment.Options, _ experiment.Lab) time.Duration {
			return time.Duration(o.Float("count")/o.Float("rate")*1e9) + 500*time.Millisecond
		},
		Metrics: []experiment.Metric{between("flow_setup", "s"), between("first_delay", "s"),
			between("following_delay", "s"),
			between("first_loss", "1"), between("following_loss", "1"), between("flows_rate", "flows/s")},
	}, order: 60, chief: []string{"flow_setup", "first_delay", "first_loss"}, run: flowSetup})
}

// flowSetup opens new flows at a rate, and measures how much longer the first packet of each took
// (flow_setup), and whether it came.
func flowSetup(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	from, to := b.options.Text("from"), b.options.Text("to")
	address, err := b.destination()
	if err != nil {
		return o, err
	}
	f := packets.Flows{To: netip.AddrPortFrom(address, 0), Stream: uint16(rand.Uint32()), New: b.options.Text("new"),
		Taken: b.addresses(),
		Count: b.options.Int("count"), Rate: b.options.Float("rate"), Following: followers}
	sent, got, err := packets.MeasureFlows(ctx, b.instrument(from), b.instrument(to), f, b.quiet())
	if sent == nil || got == nil || got.Record == nil {
		return o, err
	}
	setups, firstLost, othersLost, wrong := f.Setups(got.Record)
	x := exchange{labels: b.labels(), sent: sent, got: got, began: b.began}
	o.Measurements = x.setups(&f, setups, firstLost, othersLost)
	o.Drops = x.drops(to)
	if sent.Lag.P99 > 0.1/f.Rate+0.01 {
		o.Reasons = []environment.Reason{{Level: environment.Doubtful, Code: result.Behind,
			Text: fmt.Sprintf("the sender in %s was late by up to %.3g s", from, sent.Lag.Max)}}
	}
	o.Details, _ = json.Marshal(map[string]any{"sender": sent, "dropped_by_receiver": got.Dropped,
		"foreign": got.Foreign})
	if err == nil && len(b.cell.Schedule) == 0 {
		err = wrong
	}
	return o, err
}

// addresses are all that nodes have.
func (b *bed) addresses() (out []netip.Addr) {
	for _, l := range b.topology.Links {
		for _, e := range l.Ends {
			for _, a := range e.Addresses {
				out = append(out, a.Addr())
			}
		}
	}
	for _, n := range b.topology.Nodes {
		for _, a := range n.Loopback {
			out = append(out, a.Addr())
		}
	}
	return out
}

func (x *exchange) setups(f *packets.Flows, setups []packets.Setup, firstLost, othersLost int) []result.Measurement {
	var longer, first, following []packets.Point
	for _, s := range setups {
		longer = append(longer, packets.Point{At: s.At, Value: s.First - s.Following})
		first = append(first, packets.Point{At: s.At, Value: s.First})
		following = append(following, packets.Point{At: s.At, Value: s.Following})
	}
	out := []result.Measurement{x.share("first_loss", firstLost, f.Count),
		x.share("following_loss", othersLost, f.Count*f.Following)}
	if len(setups) > 0 {
		out = append(out, x.over("flow_setup", "s", longer), x.over("first_delay", "s", first),
			x.over("following_delay", "s", following))
	}
	if rate := x.opened(f); rate > 0 {
		out = append(out, x.one("flows_rate", "flows/s", rate))
	}
	return out
}

// opened is how many flows a second had their first packet through: from when the first of them
// came to the last.
func (x *exchange) opened(f *packets.Flows) float64 {
	var n int
	var first, last int64
	for i := 0; i < len(x.got.Record.Sent); i += f.Following + 1 {
		if sent := x.got.Record.Sent[i]; sent != 0 {
			came := sent + x.got.Record.Delay[i]
			if n++; n == 1 {
				first, last = came, came
			}
			first, last = min(first, came), max(last, came)
		}
	}
	if n < 2 || last == first {
		return 0
	}
	return float64(n-1) / (float64(last-first) / 1e9)
}
