package environment

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Clock compares the wall clock (CLOCK_REALTIME) with the machine's raw oscillator
// (CLOCK_MONOTONIC_RAW). Delays between two machines, or from kernel timestamps, are wrong by any
// jump of the wall clock.
type Clock struct {
	Jumps   []Jump  `json:"jumps,omitempty"`
	Largest float64 `json:"largest"` // absolute value of the largest jump, in seconds
	Rate    float64 `json:"rate"`    // seconds gained by the wall clock per second on average, including jumps
}

// Jump is a step of the wall clock that slewing does not explain.
type Jump struct {
	At float64 `json:"at"` // seconds since the watch began
	By float64 `json:"by"` // seconds
}

// Slewing changes the clock's rate by at most 500 ppm (adjtimex(2)). Up to twice that, plus the
// time that a reading takes, does not count as a jump.
const (
	slewing = 1000e-6
	looking = 100e-6 // seconds
)

// clockReading is a reading of both clocks, in seconds.
type clockReading struct {
	raw, offset float64 // offset: wall clock minus raw
	doubt       float64 // duration of the reading
}

// readClocks reads the wall clock between two readings of the raw one, several times, and returns
// the quickest reading.
func readClocks() clockReading {
	best := clockReading{doubt: math.Inf(1)}
	for range 5 {
		var before, wall, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &after) != nil {
			return best
		}
		width := time.Duration(after.Nano() - before.Nano())
		if doubt := width.Seconds(); doubt < best.doubt {
			middle := before.Nano() + int64(width/2)
			best = clockReading{float64(middle) / 1e9, time.Duration(wall.Nano() - middle).Seconds(), doubt}
		}
	}
	return best
}

// clockWatch collects readings.
type clockWatch struct {
	first, last clockReading
	seen        bool
	out         Clock
}

func (w *clockWatch) observe(r clockReading) {
	if math.IsInf(r.doubt, 0) {
		return
	}
	if !w.seen {
		w.first, w.last, w.seen = r, r, true
		return
	}
	by, passed := r.offset-w.last.offset, r.raw-w.last.raw
	if math.Abs(by) > slewing*passed+looking+r.doubt+w.last.doubt {
		w.out.Jumps = append(w.out.Jumps, Jump{r.raw - w.first.raw, by})
		w.out.Largest = max(w.out.Largest, math.Abs(by))
	}
	w.last = r
	if all := r.raw - w.first.raw; all > 0 {
		w.out.Rate = (r.offset - w.first.offset) / all
	}
}
