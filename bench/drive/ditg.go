package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/ditg"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// leastDITG is the least payload that D-ITG sends: with less it sends this.
const leastDITG = 20

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "ditg", Doc: "Bitrate, loss, delay and jitter by D-ITG.",
		Options: []experiment.Option{
			fromNode, toNode, by(protocol, "udp"), sendTime, packetRate, atLeast(by(payload, "64"), leastDITG), useIPv6,
			{Name: "flows", Type: experiment.Whole, Default: "1", Least: 1,
				Doc: "Flows at the same time, each of that rate."},
		},
		Check: func(o experiment.Options) error {
			if o.Int("flows") > 1000 {
				return errors.New("flows: at most 1000: D-ITG has a thread for each")
			}
			return nil
		},
		Estimate: sending(aroundStream),
		Metrics:  flowMetrics(),
	}, order: 30, chief: []string{"throughput", "received_rate", "loss", "delay_mean", "delay_difference"},
		tools: []string{"ITGSend"}, run: dITG})
}

// flowMetrics are those of a stream, but for some, and of each flow as well.
func flowMetrics() []experiment.Metric {
	out := []experiment.Metric{between("under_way", "packets", "flow")}
	for _, m := range streamed {
		if !slices.Contains([]string{"reordered", "duplicates", "delay", "jitter"}, m.Name) {
			out = append(out, between(m.Name, m.Unit, "flow"))
		}
	}
	return out
}

// ditgPorts gives each receiver ports of its own: one for signals, one for each flow.
var ditgPorts atomic.Int32

// dITG measures with D-ITG: ITGSend in one node, ITGRecv in another, and what ITGDec reads in the
// log that the receiver keeps. What was sent it reads in the sender's: ITGDec does not see that the
// last packets of a flow are missing.
func dITG(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	from, to := b.options.Text("from"), b.options.Text("to")
	address, err := b.destination()
	if err != nil {
		return o, err
	}
	dir, err := b.scratch()
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(dir)
	t := ditgTest{bed: b, from: from, to: to, flows: b.options.Int("flows"), dir: dir}
	ports := int32(t.flows) + 1
	t.port = 20_000 + int(ditgPorts.Add(ports)-ports)%20_000
	if err := t.prepare(ctx, ditgScript(b.options, address, t.port)); err != nil {
		return o, err
	}
	defer t.clear()
	if err := t.run(ctx); err != nil {
		return o, err
	}
	return t.outcome(ctx)
}

// ditgTest is one run of D-ITG.
type ditgTest struct {
	*bed
	from, to    string
	flows, port int
	dir         string // here; see scratchAt
}

// prepare makes the directories in which the programs run, with what the sender is to send.
func (t *ditgTest) prepare(ctx context.Context, script string) error {
	const command = `mkdir -p "$0" && cat >"$0/$1"`
	for _, node := range []string{t.to, t.from} {
		var said bytes.Buffer
		argv := []string{"/bin/sh", "-c", command, t.scratchAt(node, t.dir), ditgFlows}
		if err := t.nodes.run(ctx, node, argv, strings.NewReader(script), io.Discard, &said); err != nil {
			return explain(node, "sh", err, said.String())
		}
	}
	return nil
}

// clear removes the directories at other machines; those that cannot be reached go with the lab.
func (t *ditgTest) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), clearing)
	defer cancel()
	for _, node := range []string{t.to, t.from} {
		if dir := t.scratchAt(node, t.dir); dir != t.dir {
			_ = t.nodes.run(ctx, node, []string{"rm", "-r", dir}, nil, io.Discard, io.Discard)
		}
	}
}

// clearing is the most that it takes to remove a directory at another machine.
const clearing = 5 * time.Second

// Files in a test's directory, in which all programs of D-ITG run: they have little room for names.
const ditgFlows, ditgSent, ditgReceived, ditgRates = "flows", "sent", "received", "rates"

// in runs one of D-ITG's programs.
func (t *ditgTest) in(ctx context.Context, node string, out, errOut io.Writer, argv ...string) error {
	argv = append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, t.scratchAt(node, t.dir)}, argv...)
	return t.nodes.run(ctx, node, argv, nil, out, errOut)
}

// ditgScript is ITGSend's, a line a flow.
func ditgScript(o experiment.Options, address netip.Addr, port int) string {
	var out strings.Builder
	for i := range o.Int("flows") {
		fmt.Fprintf(&out, "-a %s -Sdp %d -rp %d -T %s -C %s -c %d -t %d\n", address, port, port+1+i,
			strings.ToUpper(o.Text("protocol")),
			strconv.FormatFloat(o.Float("rate"), 'f', -1, 64), o.Int("size"), o.Time("time").Milliseconds())
	}
	return out.String()
}

// run sends all flows. The receiver is ended when it has closed the log of the last of them; where
// it ends before, so does all.
func (t *ditgTest) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	said, ended := &listener{word: []byte("Press Ctrl-C"), heard: make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(ended)
		err := t.in(ctx, t.to, said, said, "ITGRecv", "-Sp", strconv.Itoa(t.port))
		if err == nil {
			err = errors.New("it ended before all flows had")
		}
		stop(explain(t.to, "ITGRecv", err, said.text())) // the first cause stays
	}()
	defer func() { stop(context.Canceled); <-ended }()
	select {
	case <-said.heard:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.send(ctx); err != nil {
		select { // a sender whose receiver has died may be told before we are, and says little
		case <-ended:
		case <-time.After(time.Second):
		}
		return errors.Join(context.Cause(ctx), err)
	}
	for strings.Count(said.text(), "Finish on") < t.flows {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("ITGRecv in %s did not see the end of all flows: %w", t.to, context.Cause(ctx))
		}
	}
	return nil
}

// send runs ITGSend, again where the receiver did not listen yet: it says that it does a little
// before.
func (t *ditgTest) send(ctx context.Context) error {
	for began := time.Now(); ; {
		var said bytes.Buffer
		err := t.in(ctx, t.from, &said, &said, "ITGSend", ditgFlows, "-l", ditgSent, "-x", ditgReceived)
		switch {
		case err == nil && strings.Count(said.String(), "Finished sending") >= t.flows:
			return nil
		case err == nil:
			err = errors.New("not all flows were sent")
		case strings.Contains(said.String(), "refused") && time.Since(began) < 5*time.Second && ctx.Err() == nil:
			time.Sleep(50 * time.Millisecond)
			continue
		}
		return explain(t.from, "ITGSend", err, said.String())
	}
}

// decode reads a log by ITGDec.
func (t *ditgTest) decode(ctx context.Context, node, log string) (total ditg.Summary, flows []ditg.Summary, err error) {
	var out, errOut bytes.Buffer
	if err := t.in(ctx, node, &out, &errOut, "ITGDec", log); err != nil {
		return total, nil, explain(node, "ITGDec", err, errOut.String())
	}
	return ditg.Decode(&out)
}

func (t *ditgTest) outcome(ctx context.Context) (o experiment.Measured, err error) {
	sent, sentFlows, err := t.decode(ctx, t.from, ditgSent)
	if err != nil {
		return o, fmt.Errorf("what was sent: %w", err)
	}
	got, gotFlows, err := t.decode(ctx, t.to, ditgReceived)
	if err != nil && !errors.Is(err, ditg.ErrNothing) {
		return o, fmt.Errorf("what was received: %w", err)
	}
	o.Details, _ = json.Marshal(map[string]any{"sent": sent, "received": got})
	if t.options["protocol"] == "udp" {
		o.Reasons = slow(t.from, t.options.Float("rate")*float64(t.flows), sent.Rate)
	}
	o.Links = append(t.checkFlows(sent, got, t.underWay(sentFlows, gotFlows)),
		t.tooMuch(t.from, t.to, got.Bitrate*t.overhead())...)
	interval := time.Duration(float64(time.Second) / t.options.Float("rate") / float64(t.flows))
	if least := t.leastStill(interval); least > 0 && got.Packets > 0 {
		came, err := t.received(ctx)
		if err != nil {
			return o, err
		}
		o.Reasons = append(o.Reasons, stalls(stood(came, least), got.Seconds)...)
	}
	labels := t.labels()
	o.Measurements = t.measurements(labels, sent, got, t.underWay(sentFlows, gotFlows))
	if t.flows > 1 {
		for _, s := range sentFlows {
			one := map[string]string{"flow": strconv.Itoa(s.Flow)}
			for k, v := range labels {
				one[k] = v
			}
			r := flowOf(gotFlows, s.Flow)
			o.Measurements = append(o.Measurements, t.measurements(one, s, r, t.stillComing(s, r))...)
		}
	}
	if err != nil && len(t.cell.Schedule) > 0 {
		err = nil
	}
	return o, err
}

// checkFlows holds what the links were asked to do against what all flows of UDP saw together,
// where they were alone, there is but one way, and they do not fill a link.
func (t *ditgTest) checkFlows(sent, got ditg.Summary, coming int) []environment.LinkCheck {
	way := wayBetween(t.topology, t.from, t.to)
	if t.options["protocol"] != "udp" || way == nil || !t.alone || got.Packets == 0 ||
		overloads(way, t.options.Float("rate")*float64(t.flows)*8*float64(t.frame(t.options.Int("size"))), true) {
		return nil
	}
	c := environment.LinkCheck{Link: nameOf(way)}
	asksLoss(&c, way, sent.Packets-got.Packets-coming, sent.Packets-coming)
	if t.steady(way) {
		c.Spread = time.Duration((got.Delay - got.DelayMin) * float64(time.Second))
	}
	return []environment.LinkCheck{c}
}

// flowOf is the one of a number; empty where there is none.
func flowOf(flows []ditg.Summary, number int) ditg.Summary {
	for _, f := range flows {
		if f.Flow == number {
			return f
		}
	}
	return ditg.Summary{}
}

// stillComing is how many of a flow's last packets may have been under way, or not read yet, when
// D-ITG ended it: those behind the last that came, as far as they were sent no earlier before the
// end than the longest delay that was seen. Over TCP nothing else is missing.
func (t *ditgTest) stillComing(sent, got ditg.Summary) int {
	missing := max(0, sent.Packets-got.Packets)
	if got.Packets == 0 {
		return 0
	}
	if t.options["protocol"] == "tcp" {
		return missing
	}
	behind := max(0, missing-got.Dropped) // D-ITG counts as dropped what is missing between packets that came
	return min(behind, int(math.Ceil(sent.Rate*got.DelayMax)))
}

func (t *ditgTest) underWay(sent, got []ditg.Summary) (sum int) {
	for _, s := range sent {
		sum += t.stillComing(s, flowOf(got, s.Flow))
	}
	return sum
}

// overhead is by how much more a link carries, by frames, than the payload. TCP's packets are not
// D-ITG's: of those the least is taken.
func (t *ditgTest) overhead() float64 {
	if t.options["protocol"] == "tcp" {
		return 1
	}
	size := t.options.Int("size")
	return float64(t.frame(size)) / float64(size)
}

// received is when something came, from the receiver's log.
func (t *ditgTest) received(ctx context.Context) ([]stretch, error) {
	var errOut bytes.Buffer
	every := strconv.FormatInt(lookEvery.Milliseconds(), 10)
	if err := t.in(ctx, t.to, io.Discard, &errOut, "ITGDec", ditgReceived, "-b", every, ditgRates); err != nil {
		return nil, explain(t.to, "ITGDec", err, errOut.String())
	}
	text, err := t.output(ctx, t.to, "cat", filepath.Join(t.scratchAt(t.to, t.dir), ditgRates))
	if err != nil {
		return nil, err
	}
	rates, err := ditg.Rates(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var came []stretch
	for _, r := range rates {
		came = append(came, stretch{r.At, r.At + lookEvery.Seconds(), r.Value > 0})
	}
	return came, nil
}

// measurements are of a flow, or of all of them. What was still coming is neither lost nor
// received.
func (t *ditgTest) measurements(labels map[string]string, sent, got ditg.Summary, coming int) []result.Measurement {
	x := exchange{labels: labels}
	out := []result.Measurement{
		x.one("sent", "packets", float64(sent.Packets)), x.one("received", "packets", float64(got.Packets)),
		x.one("under_way", "packets", float64(coming)),
		x.share("loss", max(0, sent.Packets-got.Packets-coming), sent.Packets-coming),
		x.one("sent_rate", "packets/s", sent.Rate), x.one("throughput", "bit/s", got.Bitrate),
	}
	if got.Packets == 0 {
		return out
	}
	out = append(out, x.one("received_rate", "packets/s", got.Rate), x.one("delay_mean", "s", got.Delay),
		x.one("delay_min", "s", got.DelayMin),
		x.one("delay_max", "s", got.DelayMax))
	if got.Packets > 1 {
		out = append(out, x.one("delay_deviation", "s", got.Deviation), x.one("delay_difference", "s", got.Jitter))
	}
	return out
}
