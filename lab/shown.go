package lab

import (
	"sync/atomic"
)

// shown is what of a lab can be read at any time, also while a change goes on for seconds. What it
// points to does not change: who changes the lab puts another in its place.
type shown struct {
	state  atomic.Pointer[State]
	target atomic.Pointer[target] // nil before the lab begins to come up
}

// state is a copy of the lab's state, as it was after the last change.
func (d *daemon) state() State { return *d.shown.state.Load() }

// setState changes the lab's state, for all to see. The caller has locked changing, but for before
// the lab comes up.
func (d *daemon) setState(change func(*State)) {
	s := d.state()
	change(&s)
	d.shown.state.Store(&s)
}

// target is what has made the lab; nil before it begins to come up. The caller has locked changing,
// but for methods that say that they may be called at any time.
func (d *daemon) target() target {
	if t := d.shown.target.Load(); t != nil {
		return *t
	}
	return nil
}
