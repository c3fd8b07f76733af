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

// noLab is the lab of a cell whose probes bring up labs of their own: beside another that is
// up, they would be slower.
type noLab struct{}

var errNoLab = errors.New("no lab is up: all probes of this cell bring up their own")

func (noLab) run(context.Context, string, []string, io.Reader, io.Writer, io.Writer) error {
	return errNoLab
}

func (noLab) command(context.Context, string, string, io.Writer, io.Writer) error {
	return errNoLab
}
func (noLab) ping(context.Context, lab.PingRequest) (lab.PingResult, error) {
	return lab.PingResult{}, errNoLab
}
func (noLab) ports() map[string]counters.Port            { return nil }
func (noLab) watch() environment.WatchOptions            { return environment.WatchOptions{} }
func (noLab) do(context.Context, experiment.Event) error { return errNoLab }
func (noLab) down(context.Context) error                 { return nil }
