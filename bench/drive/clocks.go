package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"trivet.dev/trivet/bench/probe/clock"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// ownClock compares the clock of a guest with that of the machine at which it runs; other nodes go
// by that one.
func (b *bed) ownClock(ctx context.Context, node string) (its clock.Reading, err error) {
	n := b.topology.Node(node)
	if b.lab == nil || n == nil || !n.Made().Guest {
		return its, nil
	}
	its, err = clock.Ask(ctx, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return b.nodes.run(ctx, node, []string{lab.ThisProgram, clock.Command}, in, out, io.Discard)
	})
	if err != nil {
		return its, fmt.Errorf("read the clock of %s: %w", node, err)
	}
	if n.Sited() == topology.Head {
		return its, nil
	}
	sites, err := b.lab.Sites(ctx)
	if err != nil {
		return its, err
	}
	c, known := sites.ClocksApart(topology.Head, n.Sited())
	if !known {
		return its, fmt.Errorf("how far the clock of %s is ahead of that of %s is not known", node, n.Sited())
	}
	return clock.Reading{Ahead: its.Ahead - int64(c.Offset*1e6), Within: its.Within + c.Within/1e3}, nil
}

// ownClocks are those of the nodes that a probe sends from and to.
func (b *bed) ownClocks(ctx context.Context) (from, to clock.Reading, err error) {
	from, err1 := b.ownClock(ctx, b.options.Text("from"))
	to, err2 := b.ownClock(ctx, b.options.Text("to"))
	return from, to, errors.Join(err1, err2)
}

// inTime puts what was noted of a stream into the machine's time, by what clocks were before it and
// are after it.
func (x *exchange) inTime(from, to [2]clock.Reading) {
	sender, receiver := from[0].And(from[1]), to[0].And(to[1])
	packets.InTimeOf(x.sent, x.got, sender.Ahead, receiver.Ahead)
	x.within = sender.Within + receiver.Within
}

// vague says that delays may be off by more than what is doubtful.
func (x *exchange) vague(delay time.Duration) bool {
	l := environment.DefaultLimits
	return x.within > max(l.DelayFloor, l.Delay[0]*delay.Seconds())
}

// clocksTell says how far off delays may be, if that is much. Doubtful at worst: the probe's other
// figures do not depend on clocks.
func (x *exchange) clocksTell() []environment.Reason {
	if len(x.got.Delays) == 0 {
		return nil
	}
	values := make([]float64, len(x.got.Delays))
	for i, p := range x.got.Delays {
		values[i] = p.Value
	}
	median := stats.Quantile(values, 0.5)
	if !x.vague(time.Duration(median * 1e9)) {
		return nil
	}
	return []environment.Reason{{Level: environment.Doubtful, Code: "clocks", Text: fmt.Sprintf(
		"one-way delays from %s to %s are by two clocks, whose distance is known to ± %.2g ms, beside a delay of %.3g ms",
		x.labels["from"], x.labels["to"], 1e3*x.within, 1e3*median)}}
}
