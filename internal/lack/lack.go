// Package lack is the error for something needed that a machine does not have: a program, a
// processor.
package lack

// Error says why something is not possible on this machine, and what to do about it, which may be
// "".
type Error struct{ Why, Hint, between string }

// New makes an Error whose text has between, such as ": ", between why and hint.
func New(why, between, hint string) error { return &Error{why, hint, between} }

func (e *Error) Error() string { return e.Why + e.between + e.Hint }
