package drive

import (
	"context"
	"errors"
	"io"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
)

// nowhere is the lab of a cell whose probes bring up labs of their own: beside another that is
// up, they would be slower.
type nowhere struct{}

var errNowhere = errors.New("no lab is up: all probes of this cell bring up their own")

func (nowhere) run(context.Context, string, []string, io.Reader, io.Writer, io.Writer) error {
	return errNowhere
}

func (nowhere) command(context.Context, string, string, io.Writer, io.Writer) error {
	return errNowhere
}
func (nowhere) ping(context.Context, lab.PingRequest) (lab.PingResult, error) {
	return lab.PingResult{}, errNowhere
}
func (nowhere) ports() map[string]counters.Port            { return nil }
func (nowhere) watch() environment.WatchOptions            { return environment.WatchOptions{} }
func (nowhere) do(context.Context, experiment.Event) error { return errNowhere }
func (nowhere) down(context.Context) error                 { return nil }
