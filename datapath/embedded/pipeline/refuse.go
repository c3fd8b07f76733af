package pipeline

import (
	"fmt"

	"trivet.dev/trivet/openflow"
)

// A Refusal is why a switch does not do what it is asked for, and the code of the ERROR to answer.
type Refusal struct {
	Code openflow.ErrorCode
	Why  string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s (%v)", r.Why, r.Code) }

func refuse(code openflow.ErrorCode, format string, args ...any) error {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}
