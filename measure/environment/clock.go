package environment

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Clock says how the wall clock went against the machine's raw oscillator
// (CLOCK_REALTIME against CLOCK_MONOTONIC_RAW). Delays measured between two
// machines, or by kernel timestamps, are wrong by what it jumps.
type Clock struct {
	Jumps   []Jump  `json:"jumps,omitempty"`
	Largest float64 `json:"largest"` // jump, in seconds, without its sign
	Rate    float64 `json:"rate"`    // what the wall clock gained per second on average, jumps counted
}

// Jump is a step of the wall clock beyond what slewing does.
type Jump struct {
	At float64 `json:"at"` // seconds since the watch began
	By float64 `json:"by"` // seconds
}

// Slewing changes the clock's rate by at most 500 ppm (adjtimex(2)); twice that, and the time it
// takes to look, is no jump.
const (
	slewing = 1000e-6
	looking = 100e-6 // seconds
)

// clockReading is both clocks at one time, in seconds.
type clockReading struct {
	raw, offset float64 // offset: wall clock less raw
	doubt       float64 // how far apart they were read
}

// readClocks reads the wall clock between two readings of the raw one, and takes the quickest of a
// few.
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
