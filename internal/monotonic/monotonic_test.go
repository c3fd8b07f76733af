package monotonic

import (
	"testing"
	"time"
)

// TestZero proves that the clocks are related correctly even if the thread loses its processor
// between reading them, however often.
func TestZero(t *testing.T) {
	for _, stalls := range []int{0, 1, 7, tries - 1} {
		for _, first := range []bool{true, false} { // before the other clock is read, and after it
			start := time.Now()
			now, reads := 10*time.Second, 0
			stall := func(is bool) {
				if is && reads < stalls {
					now += 4 * time.Millisecond
				}
			}
			wall := func() time.Time { now += 100; return start.Add(now) }
			clock := func() time.Duration {
				stall(first)
				is := now
				stall(!first)
				reads++
				return is
			}
			if off := zero(wall, clock).Sub(start); off.Abs() > time.Microsecond {
				t.Errorf("%d stalls: off by %v", stalls, off)
			}
		}
	}
	if off := time.Since(zero(time.Now, func() time.Duration { time.Sleep(time.Millisecond / 10); return Now() })) - Now(); off.Abs() > 100*time.Millisecond {
		t.Errorf("clocks that are never read together: off by %v", off)
	}
}
