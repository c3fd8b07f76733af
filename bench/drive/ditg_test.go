package drive

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDITGReceiver proves that the probe ends, and says why, as soon as D-ITG's receiver has died: the flow would take ten minutes.
func TestDITGReceiver(t *testing.T) {
	t.Parallel()
	needs(t, "ITGSend")
	for _, protocol := range []string{"udp", "tcp"} {
		i, probes := bring(t, `
topology: linear,2
lab: {datapath: bridge, controller: none}
probes: [ditg: {from: h1, to: h2, time: 10min, rate: 100, protocol: `+protocol+`}]
`)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			_, err := i.Run(ctx, probes["ditg"])
			failed <- err
		}()
		own := i.(*instance).place.(*ownLab)
		var receiver []int
		for len(receiver) == 0 || len(own.cgroups.Processes(own.state.Name, "h1")) == 0 { // the sender runs as well
			select {
			case err := <-failed:
				t.Fatalf("%s: %v", protocol, err)
			case <-time.After(10 * time.Millisecond):
				receiver = own.cgroups.Processes(own.state.Name, "h2")
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
