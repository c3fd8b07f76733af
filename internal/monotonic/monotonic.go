// Package monotonic relates Go's clock to the kernel's CLOCK_MONOTONIC, which its timers and eBPF
// programs use.
package monotonic

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock exists, and so does the memory
	return time.Duration(ts.Nano())
}

// Zero is when CLOCK_MONOTONIC was 0: time.Since(Zero()) is its present value, without a system
// call.
func Zero() time.Time { return zero(time.Now, Now) }

// The clocks can only be read one after another. A thread that loses its processor in between,
// which is the more likely the busier the machine is, would relate them wrongly, by milliseconds
// and for good.
const (
	near  = 5 * time.Microsecond // between two readings, if the thread was not interrupted
	tries = 1000
)

// zero reads one clock between two readings of the other, until these are close to each other; if
// they never are, it uses the closest.
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
