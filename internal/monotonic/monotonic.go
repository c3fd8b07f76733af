// Package monotonic relates Go's clock to the kernel's CLOCK_MONOTONIC, by which its timers and
// eBPF programs go.
package monotonic

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock is there, and so is the memory
	return time.Duration(ts.Nano())
}

// Zero is when CLOCK_MONOTONIC was 0: time.Since(Zero()) is what it shows, and costs no system
// call.
func Zero() time.Time { return zero(time.Now, Now) }

// The clocks can only be read one after the other. A thread that loses its processor in between,
// which is as likely as the machine is busy, would be off by that, for milliseconds and for good.
const (
	near  = 5 * time.Microsecond // between two readings, where nothing came between
	tries = 1000
)

// zero reads one clock between two readings of the other, until these are near each other; if they
// never are, it takes the nearest.
func zero(wall func() time.Time, clock func() time.Duration) (at time.Time) {
	for best, try := time.Duration(-1), 0; try < tries && (best < 0 || best > near); try++ {
		before := wall()
		now := clock()
		if width := wall().Sub(before); best < 0 || width < best {
			best, at = width, before.Add(width/2-now)
		}
	}
	return at
}
