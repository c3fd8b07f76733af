package lab

import (
	"sync/atomic"
)

// shown is the part of a lab that can be read at any time, even while a change is taking seconds.
// What it points to is immutable: a change replaces it.
type shown struct {
	state  atomic.Pointer[State]
	target atomic.Pointer[Target] // nil before the lab begins to come up
}

// state is a copy of the lab's state, as it was after the last change.
func (d *daemon) state() State { return *d.shown.state.Load() }

// setState changes the lab's state for all to see. The caller has locked changing, unless the lab
// has not begun to come up.
func (d *daemon) setState(change func(*State)) {
	s := d.state()
	change(&s)
	d.shown.state.Store(&s)
}

// target makes the lab; nil before it begins to come up. The caller has locked changing, except for
// methods documented as callable at any time.
func (d *daemon) target() Target {
	if t := d.shown.target.Load(); t != nil {
		return *t
	}
	return nil
}
