package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// costBusy are the shares of all processors' time beyond which what a packet costs is doubtful, and
// bad: where packets wait for processors they are taken in more at a time, and by the greatest rate
// that a machine can do, its costs are no longer those of the rate that was asked for.
var costBusy = [2]float64{0.6, 0.9}

// costStep is the share of what was counted that the steps of the kernel's counters may be.
const costStep = 0.05

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name:     "cost",
		Doc:      "Processor time of the whole machine for each packet that arrives, at an exact packet rate that leaves it time.",
		Options:  streamOptions(),
		Check:    checkRate,
		Estimate: sending(1500 * time.Millisecond),
		Metrics: []experiment.Metric{between("cost", "s"), between("busy", "1"), between("sent", "packets"),
			between("received", "packets"), between("loss", "1"), between("sent_rate", "packets/s")},
	}, order: 45, chief: []string{"cost", "busy", "loss"}, here: true, run: costs})
}

// costs measures what a packet costs this machine: processor time of all its processors, whoever
// they worked for, from when the stream began until all was sent, by the packets that arrived.
func costs(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	from := b.options.Text("from")
	s := streamOf(b)
	var meter *environment.Meter
	var spent environment.Spent
	var unread error
	s.Began = func() { meter, unread = environment.StartMeter() }
	s.Ended = func() {
		if unread == nil && meter != nil {
			spent, unread = meter.Spent()
		}
	}
	x, err := b.stream(ctx, s, packets.Receive{Sample: 1})
	sent, got := x.sent, x.got
	if err = errors.Join(err, unread); sent == nil || got == nil {
		return o, err
	}
	o.Measurements = []result.Measurement{
		x.one("sent", "packets", float64(sent.Sent)), x.one("received", "packets", float64(got.Received)),
		x.share("loss", x.lost(), sent.Sent), x.one("sent_rate", "packets/s", sent.Rate())}
	o.Drops = x.drops(b.options.Text("to"))
	o.Details, _ = json.Marshal(map[string]any{"sender": sent, "processors": spent, "dropped_by_receiver": got.Dropped})
	o.Reasons = slices.Concat(slow(from, s.Rate, sent.Rate()), b.gaps(x))
	switch {
	case err != nil:
		return o, err
	case got.Received == 0:
		return o, fmt.Errorf("none of %d packets arrived", sent.Sent)
	}
	o.Measurements = append(o.Measurements, x.one("cost", "s", spent.Busy/float64(got.Received)),
		x.one("busy", "1", spent.Share()))
	o.Reasons = append(o.Reasons, dear(spent, b.alone)...)
	return o, nil
}

// dear says what speaks against a cost.
func dear(s environment.Spent, alone bool) (out []environment.Reason) {
	add := func(level environment.Level, format string, args ...any) {
		out = append(out, environment.Reason{Level: level, Code: "cost", Text: fmt.Sprintf(format, args...)})
	}
	level := environment.Doubtful
	if s.Share() > costBusy[1] {
		level = environment.Bad
	}
	if s.Share() > costBusy[0] {
		add(level, "the machine was %.3g %% busy: what a packet costs is told while it has time, at most %.0f %% "+
			"(give a lower rate, and let nothing else run)", 100*s.Share(), 100*costBusy[0])
	}
	if !alone {
		add(environment.Bad, "other probes ran, or something happened, at the same time: "+
			"what that cost is in the cost of packets")
	}
	if s.Stolen > costStep*s.Busy {
		add(environment.Doubtful,
			"the host of this virtual machine took %.3g s, of which the kernel may count a part as idle, too, "+
				"against %.3g s that were used", s.Stolen, s.Busy)
	}
	if step := 2 * environment.MeterStep; step > costStep*s.Busy {
		add(environment.Doubtful, "the kernel tells processor time in steps of 10 ms, and there were %.3g s of it: "+
			"send for longer, or more", s.Busy)
	}
	return out
}
