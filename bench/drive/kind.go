// Package drive carries experiments out on labs: it brings up what a cell asks for, runs the probes in it, makes
// happen what the schedule says, and takes it down. The runner of bench/experiment knows it as a Driver.
package drive

import (
	"context"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// bed is what a probe has at hand.
type bed struct {
	lab      *lab.Client        // of the lab that is up
	topology *topology.Topology // resolved: what was asked for
	cell     *experiment.Cell
	options  experiment.Options // the probe's, checked
}

// kind is a way of measuring: it runs until it is done or ctx ends, and returns what it has measured also with an
// error. Its name and options are in experiment.Standard.
type kind func(ctx context.Context, b *bed) (experiment.Outcome, error)

// kinds are all ways of measuring, by their names in experiment.Standard.
var kinds = map[string]kind{}
