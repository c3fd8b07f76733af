package pipeline

import (
	"fmt"

	"trivet.dev/trivet/openflow"
)

// A Refusal is the reason why a switch refuses a request, with the code of the ERROR to answer.
type Refusal struct {
	Code openflow.ErrorCode
	Why  string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s (%v)", r.Why, r.Code) }

func refuse(code openflow.ErrorCode, format string, args ...any) error {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}
