package topology

import (
	"testing"
	"time"
)

// TestQueueLimit proves which of the terms decides, and that the limit never falls below 2 ×
// bandwidth × delay (without a bandwidth: 10 Gbit/s), except where it is capped to bound memory.
func TestQueueLimit(t *testing.T) {
	ms := Duration(time.Millisecond)
	for _, c := range []struct {
		name string
		Impairment
		want int
	}{
		{"given", Impairment{Bandwidth: 1e9, Delay: 100 * ms, Queue: Queue{Limit: 7}}, 7},
		{"slow", Impairment{Bandwidth: 1e6, Delay: 10 * ms}, 100},
		{"burst", Impairment{Bandwidth: 1e9}, 4129},                        // 50 ms: 6.25 MB
		{"path", Impairment{Bandwidth: 1e9, Delay: 100 * ms}, 16513},       // 200 ms: 25 MB
		{"jitter", Impairment{Bandwidth: 1e9, Jitter: 50 * ms}, 16513},     // 2 × 2 × 50 ms
		{"no bandwidth", Impairment{Delay: 20 * ms}, 41282 * 4 / 5},        // 40 ms of 10 Gbit/s are 33026, 50 ms 41282
		{"memory", Impairment{Delay: Duration(10 * time.Second)}, 1000000}, // 20 s of 10 Gbit/s do not fit
	} {
		got := c.QueueLimit()
		if c.name == "no bandwidth" {
			if got < c.want {
				t.Errorf("%s: %d packets, want at least %d", c.name, got, c.want)
			}
		} else if got != c.want {
			t.Errorf("%s: %d packets, want %d", c.name, got, c.want)
		}
	}
}
