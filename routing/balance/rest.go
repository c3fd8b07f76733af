package balance

import (
	"maps"
	"time"
)

// Rests hold back destinations that have moved repeatedly: traffic that moves back and forth,
// because it fluctuates or reacts to the moves themselves, is moved less and less often. This is
// the back-off of route flap damping (RFC 2439), without its threshold, and for moves only, not for
// failed links. The zero value is ready to use.
type Rests[K comparable] struct{ of map[K]rest }

type rest struct {
	moves int // consecutive ones
	last  time.Time
	takes time.Duration
}

const (
	// longestRest is the longest rest, in periods.
	longestRest = 64
	// forgetAfter is for how many times its last rest, and at least a period, a destination must
	// not have moved to start afresh.
	forgetAfter = 8
)

// Resting reports whether a destination must not be moved.
func (r *Rests[K]) Resting(to K, now time.Time) bool {
	return now.Sub(r.of[to].last) < r.of[to].takes
}

// Moved records a move. After the second consecutive move a destination rests for a period, after
// each further one for twice as long as before.
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

// Tidy removes destinations that would start afresh: they may be flows, of which there are always
// new ones.
func (r *Rests[K]) Tidy(now time.Time, period time.Duration) {
	maps.DeleteFunc(r.of, func(_ K, x rest) bool { return now.Sub(x.last) > forgetAfter*max(x.takes, period) })
}

// Forget makes a destination start afresh.
func (r *Rests[K]) Forget(to K) { delete(r.of, to) }
