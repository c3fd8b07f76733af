// Package drive carries experiments out on labs: it brings up what a cell asks for, runs the probes in it, makes
// happen what the schedule says, and takes it down. The runner of bench/experiment knows it as a Driver.
package drive

import (
	"context"
	"io"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// bed is what a probe has at hand.
type bed struct {
	lab      *lab.Client        // of the lab that is up; nil where another than Trivet made it, see place
	topology *topology.Topology // resolved: what was asked for
	cell     *experiment.Cell
	options  experiment.Options // the probe's, checked

	name  string // of the lab
	place place
	alone bool // no other probe runs at the same time, and nothing happens meanwhile
	fresh func(context.Context) (up, down time.Duration, err error)
	south func() (*southbound, error) // listens to connections to controllers; see instance.listen
}

// place is where the nodes of a lab are: what a probe needs of them, whoever brought them up.
type place interface {
	// run runs a program in a node until it ends, or until ctx does, which kills it with all that it has started. It
	// reads from in, which may be nil. One that ends with another code than 0 is an *exitError.
	run(ctx context.Context, node string, argv []string, in io.Reader, out, errOut io.Writer) error
	ping(ctx context.Context, r lab.PingRequest) (lab.PingResult, error)
	// ports counts what devices, their queues and the kernel have sent and dropped so far: see deviceOf, queueOf and kernelOf.
	ports() map[string]port
}

// kind is a way of measuring: it runs until it is done or ctx ends, and returns what it has measured also with an
// error. Its name and options are in experiment.Standard.
type kind func(ctx context.Context, b *bed) (experiment.Outcome, error)

// kinds are all ways of measuring, by their names in experiment.Standard.
var kinds = map[string]kind{
	"ping":       ping,
	"iperf3":     iperf3,
	"traceroute": traceroute,
	"up_down":    upDown,
	"command":    command,

	"ditg":            dITG,
	"packets":         exactRate,
	"flow_setup":      flowSetup,
	"controller_load": controllerLoad,
	"convergence":     convergence,

	"controller_packets": controllerPackets,
}

// everywhere are the kinds that need a place only; the others need a lab of Trivet's.
var everywhere = map[string]bool{"ping": true, "iperf3": true, "traceroute": true, "up_down": true, "command": true,
	"ditg": true, "packets": true, "flow_setup": true, "convergence": true, "controller_packets": true}
