// Package drive carries experiments out on labs: it brings up what a cell asks for, runs the probes
// in it, makes happen what the schedule says, and takes it down. The runner of bench/experiment
// knows it as a Driver.
package drive

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// bed is what a probe has at hand.
type bed struct {
	lab      *lab.Client        // of the lab that is up; nil where another than Trivet made it, see nodes
	topology *topology.Topology // resolved: what was asked for
	cell     *experiment.Cell
	options  experiment.Options // the probe's, checked

	name     string // of the lab
	dir      string // of the experiment, from the root
	nodes    nodes
	began    time.Time // from which the times of the schedule count
	looking  func()    // to be called, by kinds that look at the others of their group, once they do
	alone    bool      // no other probe runs at the same time, and nothing happens meanwhile
	fresh    func(context.Context) (up, down time.Duration, err error)
	captures string                      // the directory for recorded packets; "": there is none
	south    func() (*southbound, error) // listens to connections to controllers; see instance.listen

	// drops counts what was dropped in the lab so far.
	drops func() ([]environment.DropCounter, error)
}

// nodes is what a probe needs of the nodes of a lab, whoever brought them up.
type nodes interface {
	// run runs a program of this machine in a node until it ends, or until ctx does, which kills it
	// with all that it has started. It reads from in, which may be nil. One that ends with another
	// code than 0 is an *exitError. command does the same with a shell command of the experiment's:
	// where the node has programs of its own, with these.
	run(ctx context.Context, node string, argv []string, in io.Reader, out, errOut io.Writer) error
	command(ctx context.Context, node, script string, out, errOut io.Writer) error
	ping(ctx context.Context, r lab.PingRequest) (lab.PingResult, error)
	// ports counts what devices, their queues and the kernel have sent and dropped so far: see
	// counters.Device, Queue and Kernel.
	ports() map[string]counters.Port
}

// kind is a way of measuring: all that is known of a probe. It registers itself in the file that it
// has for its own.
type kind struct {
	experiment.ProbeKind
	order int // in lists: the lowest first

	// run measures until it is done or ctx ends, and returns what it has measured also with an
	// error.
	run func(ctx context.Context, b *bed) (experiment.Measured, error)

	// fits says what of a topology the options do not fit, beside names of nodes; may be nil.
	fits func(*topology.Topology, experiment.Options) error

	chief   []string // the metrics that are shown of a probe that has many; nil: all
	tools   []string // programs of others that it runs
	fills   bool     // it sends more than a network carries: that packets are dropped then is what it looks for
	own     bool     // it asks Trivet's own lab, bed.lab; the others need no more than its nodes
	listens bool     // to the connections of controllers, bed.south
	here    bool     // it counts what this machine does, which is all of it only where the whole lab is here
}

// kinds are all ways of measuring, by their names.
var kinds = map[string]*kind{}

func register(k kind) {
	if kinds[k.Name] != nil {
		panic("two probes are called " + k.Name)
	}
	kinds[k.Name] = &k
}

// Vocabulary is what experiments may speak of: these probes, and Trivet's labs.
func Vocabulary() experiment.Vocabulary {
	var probes []experiment.ProbeKind
	for _, k := range slices.SortedFunc(maps.Values(kinds),
		func(a, b *kind) int { return cmp.Compare(a.order, b.order) }) {
		probes = append(probes, k.ProbeKind)
	}
	return experiment.Standard(probes)
}

// Shows says whether a metric is shown where there is no room for all that a probe has.
func Shows(probe, metric string) bool {
	k := kinds[probe]
	return k == nil || k.chief == nil || slices.Contains(k.chief, metric)
}

// Options that several probes have.
var (
	fromNode = experiment.Option{Name: "from", Type: experiment.Node, Required: true, Doc: "The node that sends."}
	toNode   = experiment.Option{Name: "to", Type: experiment.Node, Required: true, Doc: "The node that receives."}
	protocol = experiment.Option{Name: "protocol", Type: experiment.Word, Words: []string{"tcp", "udp"},
		Default: "tcp", Doc: "What carries the data."}
	sendTime = experiment.Option{Name: "time", Type: experiment.Time, Default: "10s", Doc: "For how long."}
	payload  = experiment.Option{Name: "size", Type: experiment.Whole, Most: mostPayload,
		Doc: "Payload of a packet in bytes."}
	useIPv6 = experiment.Option{Name: "ipv6", Type: experiment.Truth,
		Doc: "Over IPv6, which the lab must have (lab: {ipv6: assigned})."}
	packetRate = experiment.Option{Name: "rate", Type: experiment.Number, Required: true, Example: "1000", Least: 0.001,
		Doc: "Packets per second."}
)

// mostPayload is that of an IPv4 packet behind headers of UDP or ICMP: 65,535 less 20 and 8 byte.
const mostPayload = 65_507

func optional(o experiment.Option) experiment.Option { o.Required = false; return o }

func atLeast(o experiment.Option, least float64) experiment.Option { o.Least = least; return o }

func by(o experiment.Option, value string) experiment.Option { o.Default = value; return o }

// aroundStream is how long a stream of packets takes besides the time that it is sent for.
const aroundStream = 1200 * time.Millisecond

// sending is for probes that send for a time, and need some around it.
func sending(around time.Duration) func(experiment.Options, experiment.Lab) time.Duration {
	return func(o experiment.Options, _ experiment.Lab) time.Duration { return o.Time("time") + around }
}

func metric(name, unit string, labels ...string) experiment.Metric {
	return experiment.Metric{Name: name, Unit: unit, Labels: labels}
}

// between is a metric of what one node sends to another.
func between(name, unit string, more ...string) experiment.Metric {
	return metric(name, unit, append([]string{"from", "to"}, more...)...)
}
