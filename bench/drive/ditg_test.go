package drive

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/ditg"
)

// TestDITGReceiver proves that the probe ends, and says why, as soon as D-ITG's receiver has died:
// the flow would take ten minutes.
func TestDITGReceiver(t *testing.T) {
	t.Parallel()
	needs(t, "ITGSend")
	for _, protocol := range []string{"udp", "tcp"} {
		i, probes := bring(t, `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes: [ditg: {from: h1, to: h2, time: 10min, rate: 100, protocol: `+protocol+`}]
`)
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			_, err := i.Run(ctx, probes["ditg"], time.Now(), func() {})
			failed <- err
		}()
		own := i.(*instance).lab.(*ownLab)
		var receiver []int
		for len(receiver) == 0 || len(running(own, "h1", "ITGSend")) == 0 { // the sender runs as well
			select {
			case err := <-failed:
				t.Fatalf("%s: %v", protocol, err)
			case <-time.After(10 * time.Millisecond):
				receiver = running(own, "h2", "ITGRecv") // not what starts it
			}
		}
		for _, pid := range receiver {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := <-failed; err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "ITGRecv in h2: exit 137") {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

// TestStillComing proves that packets which were on their way, or not read yet, when D-ITG ended
// are not counted as lost, and that those are which are missing between others, or sent long before
// the end.
func TestStillComing(t *testing.T) {
	for _, c := range []struct {
		name                    string
		protocol                string
		sent, received, dropped int
		longest                 float64
		coming                  int
	}{
		{"all came", "udp", 1000, 1000, 0, 0.01, 0},
		{"lost on the way", "udp", 1000, 900, 100, 0.1, 0},
		{"the last of them", "udp", 1000, 990, 0, 0.05, 10},
		{"the way broke before the end", "udp", 1000, 600, 0, 0.05, 50},
		{"some lost, some coming", "udp", 1000, 970, 20, 0.05, 10},
		{"TCP that was not read", "tcp", 1000, 400, 0, 0.01, 600},
		{"none came", "udp", 1000, 0, 0, 0, 0},
		{"none came over TCP", "tcp", 1000, 0, 0, 0, 0},
	} {
		d := &ditgTest{bed: &bed{options: experiment.Options{"protocol": c.protocol}}}
		sent, got := ditg.Summary{Flow: 1, Packets: c.sent, Rate: 1000}, ditg.Summary{Flow: 1, Packets: c.received, Dropped: c.dropped, DelayMax: c.longest}
		if n := d.stillComing(sent, got); n != c.coming {
			t.Errorf("%s: %d are coming", c.name, n)
		}
		for _, m := range d.measurements(nil, sent, got, c.coming) {
			if m.Metric == "loss" && (m.Count != c.sent-c.received-c.coming || m.Of != c.sent-c.coming) {
				t.Errorf("%s: %+v", c.name, m)
			}
		}
	}
}
