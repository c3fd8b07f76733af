// Package lack is how errors say that a machine does not have what is needed: a program, a
// processor.
package lack

// Error says why something cannot be on this machine, and what to do about it, which may be "".
type Error struct{ Why, Hint, between string }

// New makes an Error, whose text has something between the two: ": ".
func New(why, between, hint string) error { return &Error{why, hint, between} }

func (e *Error) Error() string { return e.Why + e.between + e.Hint }
