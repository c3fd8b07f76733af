package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/clock"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
)

// keptDelays is about how many one-way delays of a stream go into the result; of a longer stream
// they are drawn evenly.
const keptDelays = 20_000

// leastStamped is the least payload that holds a number and a time stamp: a frame of 64 bytes.
const leastStamped = 18

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "packets", Doc: "Loss, one-way delay and jitter at an exact packet rate, by Trivet's own generator.",
		Options:  streamOptions(),
		Check:    checkRate,
		Estimate: sending(800 * time.Millisecond),
		Metrics:  streamed,
	}, order: 40, chief: []string{"throughput", "received_rate", "loss", "delay", "jitter"}, run: exactRate})
}

// streamed are the metrics of a stream of packets: see exchange.measurements.
var streamed = []experiment.Metric{
	between("sent", "packets"), between("received", "packets"), between("loss", "1"), between("reordered", "1"),
	between("duplicates", "packets"), between("sent_rate", "packets/s"), between("received_rate", "packets/s"),
	between("throughput", "bit/s"), between("delay", "s"), between("delay_mean", "s"), between("delay_min", "s"),
	between("delay_max", "s"), between("delay_deviation", "s"), between("delay_difference", "s"),
	between("jitter", "s"),
}

// exactRate measures loss, one-way delay and jitter of a stream of an exact packet rate.
func exactRate(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	from := b.options.Text("from")
	s := streamOf(b)
	x, err := b.stream(ctx, s, packets.Receive{Sample: keptDelays})
	sent, got := x.sent, x.got
	if sent == nil || got == nil {
		return o, err
	}
	o.Measurements = x.measurements()
	o.Drops = x.drops(b.options.Text("to"))
	o.Links = append(b.checkStream(x), b.tooMuch(from, b.options.Text("to"), x.frameRate(b.frame(s.Size)))...)
	o.Reasons = slices.Concat(slow(from, s.Rate, sent.Rate()), b.gaps(x), x.clocksTell())
	o.Details, _ = json.Marshal(map[string]any{"sender": sent, "delays_kept": len(got.Delays),
		"dropped_by_receiver": got.Dropped, "foreign": got.Foreign, "late": got.Late, "ttl": got.TTL})
	if err == nil && got.Received == 0 && len(b.cell.Schedule) == 0 {
		err = fmt.Errorf("none of %d packets arrived", sent.Sent)
	}
	return o, err
}

// streamOptions are those of a stream of an exact packet rate.
func streamOptions() []experiment.Option {
	size := atLeast(by(payload, "64"), leastStamped)
	return []experiment.Option{fromNode, toNode, sendTime, packetRate, size, useIPv6}
}

// checkRate refuses streams that no machine could send, or count.
func checkRate(o experiment.Options) error {
	if n := o.Float("rate") * o.Time("time").Seconds(); o.Float("rate") > 10e6 || n > 1<<30 {
		return errors.New("rate is up to 10 million packets/s, and rate × time up to a thousand million packets")
	}
	return nil
}

// streamOf is the stream that a probe's options ask for.
func streamOf(b *bed) packets.Send {
	s := packets.Send{Size: b.options.Int("size"), Rate: b.options.Float("rate")}
	s.Count = max(1, int(s.Rate*b.options.Time("time").Seconds()+0.5))
	return s
}

// stream sends a stream from the probe's node from to its node to. Its times are the machine's,
// also where nodes have clocks of their own.
func (b *bed) stream(ctx context.Context, s packets.Send, r packets.Receive) (x exchange, err error) {
	x = exchange{labels: b.labels(), asked: s, began: b.began}
	from, to := b.options.Text("from"), b.options.Text("to")
	address, err := b.destination()
	if err != nil {
		return x, err
	}
	s.To, s.Stream = netip.AddrPortFrom(address, 0), uint16(rand.Uint32())
	fromBefore, toBefore, err := b.ownClocks(ctx)
	if err != nil {
		return x, err
	}
	x.sent, x.got, err = packets.Measure(ctx, b.instrument(from), b.instrument(to), s, r, b.quiet())
	if x.got == nil {
		return x, err
	}
	fromAfter, toAfter, unread := b.ownClocks(ctx)
	if unread != nil {
		x.got = nil
		return x, errors.Join(err, unread)
	}
	x.inTime([2]clock.Reading{fromBefore, fromAfter}, [2]clock.Reading{toBefore, toAfter})
	return x, err
}

// instrument runs this program as an instrument in a node.
func (b *bed) instrument(node string) packets.Node {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		program := lab.ThisProgram
		if b.lab == nil {
			own, err := os.Executable()
			if err != nil {
				return err
			}
			program = own
		}
		var said strings.Builder
		err := b.nodes.run(ctx, node, []string{program, packets.Command}, in, out, &said)
		return explain(node, program, err, said.String())
	}
}

// quiet is how long nothing must come for nothing to be under way any more: more than all delays of
// the lab together.
func (b *bed) quiet() time.Duration {
	var sum time.Duration
	for _, l := range b.topology.Links {
		for i := range 2 {
			e := l.Egress(i)
			sum += time.Duration(e.Delay + 4*e.Jitter)
		}
	}
	return time.Second + min(sum, time.Minute)
}

func (b *bed) labels() map[string]string {
	return map[string]string{"from": b.options.Text("from"), "to": b.options.Text("to")}
}

// exchange is a stream that was sent and received.
type exchange struct {
	labels map[string]string
	asked  packets.Send
	sent   *packets.Sent
	got    *packets.Received
	began  time.Time // of the group
	within float64   // seconds that delays may be off, as the clocks of nodes differ
}

// lost is how many packets the network lost; what the receiver's socket could not hold had crossed
// it.
func (x *exchange) lost() int { return max(0, x.sent.Sent-x.got.Received-x.got.Dropped) }

func (x *exchange) one(metric, unit string, values ...float64) result.Measurement {
	return result.Measurement{Metric: metric, Unit: unit, Values: values, Labels: x.labels}
}

func (x *exchange) share(metric string, count, of int) result.Measurement {
	m := result.Share(metric, min(count, of), of)
	m.Labels = x.labels
	return m
}

// over is a metric over time.
func (x *exchange) over(metric, unit string, points []packets.Point) result.Measurement {
	m := result.Measurement{Metric: metric, Unit: unit, Labels: x.labels, Values: make([]float64, len(points)),
		At: make([]float64, len(points))}
	for i, p := range points {
		m.Values[i], m.At[i] = p.Value, x.at(p.At)
	}
	return m
}

// at makes seconds since the group of probes began of a time.
func (x *exchange) at(nanoseconds int64) float64 {
	return float64(nanoseconds-x.began.UnixNano()) / 1e9
}

func (x *exchange) measurements() []result.Measurement {
	g := x.got
	out := []result.Measurement{
		x.one("sent", "packets", float64(x.sent.Sent)),
		x.one("received", "packets", float64(g.Received)),
		x.share("loss", x.lost(), x.sent.Sent),
		x.share("reordered", g.Reordered, g.Received),
		x.one("duplicates", "packets", float64(g.Duplicates)),
		x.one("sent_rate", "packets/s", x.sent.Rate()),
	}
	if g.Received > 1 && g.Last > g.First {
		seconds := float64(g.Last-g.First) / 1e9
		out = append(out, x.one("received_rate", "packets/s", float64(g.Received-1)/seconds),
			x.one("throughput", "bit/s", 8*float64(g.Bytes)/float64(g.Received)*float64(g.Received-1)/seconds))
	}
	if g.Received > 0 {
		out = append(out, x.over("delay", "s", g.Delays), x.one("delay_mean", "s", g.Delay.Mean),
			x.one("delay_min", "s", g.Delay.Min), x.one("delay_max", "s", g.Delay.Max))
	}
	if g.Received > 1 {
		out = append(out, x.one("delay_deviation", "s", g.Delay.SD), x.one("delay_difference", "s", g.Difference),
			x.over("jitter", "s", g.Jitter))
	}
	return out
}

// leastRated is the shortest time of which a rate says something about a link, which may pass a
// burst at once.
const leastRated = 500 * time.Millisecond

// frameRate is how many bits of frames came a second; 0 where they came in too short a time.
func (x *exchange) frameRate(frame int) float64 {
	seconds := float64(x.got.Last-x.got.First) / 1e9
	if seconds < leastRated.Seconds() {
		return 0
	}
	return 8 * float64(frame) * float64(x.got.Received-1) / seconds
}

// gaps says for how long nothing arrived, by the kernel's stamps: what the receiver itself does not
// look at is none.
func (b *bed) gaps(x exchange) []environment.Reason {
	least := b.leastStill(time.Duration(float64(time.Second) / x.asked.Rate))
	if least == 0 {
		return nil
	}
	sum := 0.0
	for _, g := range x.got.Gaps {
		if g.Value >= least.Seconds() {
			sum += g.Value
		}
	}
	return stalls(sum, float64(x.got.Last-x.got.First)/1e9)
}

// drops are packets that the receiver itself lost.
func (x *exchange) drops(node string) []environment.Drops {
	if x.got.Dropped == 0 {
		return nil
	}
	return []environment.Drops{{Where: "the socket of the receiver in " + node, Packets: uint64(x.got.Dropped),
		Of: uint64(x.sent.Sent)}}
}

// slow judges a sender that could not hold its rate, in packets/s.
func slow(node string, asked, given float64) []environment.Reason {
	r := environment.Reason{Level: environment.Doubtful, Code: result.Behind,
		Text: fmt.Sprintf("the sender in %s sent %.0f packets/s, not %.0f", node, given, asked)}
	switch {
	case given >= 0.99*asked:
		return nil
	case given < 0.9*asked:
		r.Level = environment.Bad
	}
	return []environment.Reason{r}
}

// checkStream holds what the links were asked to do against what the stream saw, where there is but
// one way and nothing happens: copies and order; and loss and delay where the stream was alone and
// does not fill a link.
func (b *bed) checkStream(x exchange) []environment.LinkCheck {
	way := wayBetween(b.topology, b.options.Text("from"), b.options.Text("to"))
	if way == nil || len(b.cell.Schedule) > 0 || x.got.Received == 0 {
		return nil
	}
	c := environment.LinkCheck{Link: nameOf(way), Came: x.got.Received, Twice: x.got.Duplicates,
		Overtaken: x.got.Reordered}
	once := 1.0
	for _, h := range way {
		i := h.impairment()
		once *= 1 - float64(i.Duplicate)
		if i.Reorder > 0 {
			c.Overtaken = 0
		}
	}
	c.AskedTwice = 1 - once
	if !b.alone || overloads(way, x.asked.Rate*8*float64(b.frame(x.asked.Size)), false) {
		return []environment.LinkCheck{c}
	}
	asksLoss(&c, way, x.lost(), x.sent.Sent)
	ms := make([]float64, len(x.got.Delays))
	for i, p := range x.got.Delays {
		ms[i] = 1e3 * p.Value
	}
	c.Late, c.Timed = b.late(way, ms)
	if c.AskedDelay, c.GivenDelay = delays(way, b.frame(x.asked.Size), ms); c.AskedDelay == 0 || x.vague(c.AskedDelay) {
		c.GivenDelay = 0
	}
	return []environment.LinkCheck{c}
}
