package container

import (
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// TestRestarts proves that the waits before a container is begun again double up to a minute, and
// begin anew once one has run for 10 s; and that how often it was so counts over all of that.
func TestRestarts(t *testing.T) {
	var r restarts
	for i, c := range []struct{ ran, want time.Duration }{
		{0, 100 * time.Millisecond}, {9 * time.Second, 200 * time.Millisecond}, {0, 400 * time.Millisecond}, {10 * time.Second, 100 * time.Millisecond},
		{0, 200 * time.Millisecond}, {0, 400 * time.Millisecond}, {0, 800 * time.Millisecond}, {0, 1600 * time.Millisecond}, {0, 3200 * time.Millisecond},
		{0, 6400 * time.Millisecond}, {0, 12800 * time.Millisecond}, {0, 25600 * time.Millisecond}, {0, 51200 * time.Millisecond}, {0, time.Minute}, {0, time.Minute},
	} {
		if wait, again := r.next(topology.Always, 0, c.ran); wait != c.want || !again {
			t.Errorf("%d: after %v, %v, want %v", i, wait, again, c.want)
		}
	}
	r = restarts{}
	for i, want := range []bool{true, true, false} {
		if _, again := r.next("on-failure:2", 1, time.Hour); again != want {
			t.Errorf("failure %d: %v", i+1, again)
		}
	}
}
