package balance

import (
	"maps"
	"time"
)

// Rests are how long destinations stay where they are that have moved again and again: what moves
// back and forth because traffic is restless, or because it answers to moves itself, does so ever
// more seldom. It is the back-off of route flap damping (RFC 2439), which has no threshold here,
// and holds for moves only: a link that fails is another matter. The zero value is ready to use.
type Rests[K comparable] struct{ of map[K]rest }

type rest struct {
	moves int // in a row
	last  time.Time
	takes time.Duration
}

const (
	// longestRest is the longest rest, in periods.
	longestRest = 64
	// forgetAfter is how many times its last rest, and a period at least, a destination must have
	// stayed to begin anew.
	forgetAfter = 8
)

// Resting says whether a destination is to stay where it is.
func (r *Rests[K]) Resting(to K, now time.Time) bool {
	return now.Sub(r.of[to].last) < r.of[to].takes
}

// Moved notes that a destination has moved. After the second move in a row it rests for a period,
// after each further one for twice as long.
func (r *Rests[K]) Moved(to K, now time.Time, period time.Duration) {
	if r.of == nil {
		r.of = map[K]rest{}
	}
	old := r.of[to]
	if old.moves == 0 || now.Sub(old.last) > forgetAfter*max(old.takes, period) {
		r.of[to] = rest{moves: 1, last: now}
		return
	}
	takes := min(period<<min(old.moves-1, 16), longestRest*period)
	r.of[to] = rest{moves: old.moves + 1, last: now, takes: takes}
}

// Tidy forgets all destinations that would begin anew: what moves may be flows, of which there are
// ever others.
func (r *Rests[K]) Tidy(now time.Time, period time.Duration) {
	maps.DeleteFunc(r.of, func(_ K, x rest) bool { return now.Sub(x.last) > forgetAfter*max(x.takes, period) })
}

// Forget makes a destination begin anew.
func (r *Rests[K]) Forget(to K) { delete(r.of, to) }
