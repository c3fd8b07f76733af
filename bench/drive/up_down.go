package drive

import (
	"context"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "up_down", Doc: "How long it takes to bring the lab up and down.",
		Estimate: func(_ experiment.Options, l experiment.Lab) time.Duration { return experiment.UpDown(l) },
		Metrics:  []experiment.Metric{metric("up", "s"), metric("down", "s")},
		OwnLab:   true,
	}, order: 90, run: upDown})
}

// upDown brings another lab of the same cell up and down, and times it.
func upDown(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	up, down, err := b.fresh(ctx)
	if up > 0 {
		o.Measurements = append(o.Measurements,
			result.Measurement{Metric: "up", Unit: "s", Values: []float64{up.Seconds()}})
	}
	if down > 0 && err == nil {
		o.Measurements = append(o.Measurements,
			result.Measurement{Metric: "down", Unit: "s", Values: []float64{down.Seconds()}})
	}
	return o, err
}
