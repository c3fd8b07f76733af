package e2e

import (
	"testing"
	"time"
)

// TestSizes proves that big labs come up, work at the corners, and go without a trace. The times
// are told, not judged.
func TestSizes(t *testing.T) {
	if testing.Short() {
		t.Skip("big, and -short")
	}
	for _, c := range []struct{ name, what, last string }{
		{"1,000 hosts at a switch", "single,1000", "h1000"},
		{"500 switches in a line, 500 hosts", "linear,500", "h500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sharedMachine(t)
			before := m.snapshot()
			begin := time.Now()
			m.up(c.what, "--datapath", "bridge")
			up := time.Since(begin)
			m.ok("ping", "h1", c.last, "-c", "3", "-i", "100ms", "--timeout", "30s")
			m.ok("ping", c.last, "h2", "-c", "3", "-i", "100ms", "--timeout", "30s")
			begin = time.Now()
			m.ok("down")
			t.Logf("%s: up in %.2f s, down in %.2f s", c.name, up.Seconds(), time.Since(begin).Seconds())
			m.unchanged(before)
		})
	}
}
