package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/flowload"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "controller_load", Doc: "Flow set-ups that the controller answers, measured by the OpenFlow generator.",
		Options: []experiment.Option{
			{Name: "mode", Type: experiment.Word, Words: []string{"throughput", "latency"}, Default: "throughput",
				Doc: "Requests: as many as the controller takes, or one at a time."},
			{Name: "switches", Type: experiment.Whole, Default: "16", Least: 1, Doc: "Switches to emulate."},
			{Name: "hosts", Type: experiment.Whole, Default: "100", Least: 10, Doc: "Hosts behind each switch."},
			sendTime,
		},
		Estimate: sending(1800 * time.Millisecond),
		Metrics: []experiment.Metric{metric("answers_rate", "answers/s"), metric("answers_per_cpu", "answers/s"),
			metric("answer_time", "s", "quantile"),
			metric("wrong", "1"), metric("lost", "1"), metric("controller_cpu", "1"), metric("controller_pss", "B")},
		Controller: true,
	}, order: 70, own: true, run: controllerLoad})
}

// controllerLoad asks the lab's controller for decisions, as `trivet bench controller` does, in a
// process of its own, beside the switches that the lab has.
func controllerLoad(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	c, err := b.controller(ctx)
	if err != nil {
		return o, err
	}
	program, err := os.Executable()
	if err != nil {
		return o, err
	}
	hosts := b.options.Int("hosts")
	argv := []string{program, "bench", "controller", "--json", "--connect", c.address, "--mode", b.options.Text("mode"),
		"--switches", b.options.Text("switches"),
		"--hosts", strconv.Itoa(hosts), "--duration", b.options.Time("time").String(), "--pid", strconv.Itoa(c.pid),
		"--first-dpid", strconv.FormatUint(b.freeDPIDs(), 10)}
	if b.options["mode"] == string(flowload.Throughput) { // a packet from every host that asks, at most
		argv = append(argv, "--window", strconv.Itoa(min(64, hosts-max(2, hosts/5))))
	}
	text, err := b.generate(ctx, c, argv)
	if err != nil && strings.Contains(err.Error(), "you speak 1.0") {
		text, err = b.generate(ctx, c, append(argv, "--openflow", "1.0"))
	}
	if err != nil {
		return o, err
	}
	var r flowload.Result
	if err := json.Unmarshal(text, &r); err != nil {
		return o, fmt.Errorf("the generator printed no result: %w: %s", err, clip(text))
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, text)
	o.Details, o.Measurements = compact.Bytes(), loadMeasurements(&r)
	if r.Limited {
		o.Reasons = []environment.Reason{{Level: environment.Bad, Code: "generator",
			Text: "the generator was the limit: these are not the controller's figures"}}
	}
	if r.Answers == 0 {
		err = errors.New("the controller answered nothing")
	}
	return o, err
}

// generate runs the generator where the controller can be reached.
func (b *bed) generate(ctx context.Context, c decider, argv []string) ([]byte, error) {
	if c.inside != "" {
		return b.output(ctx, c.inside, argv...)
	}
	return onMachine(ctx, "exec "+words.Shell(argv...), b.name)
}

// freeDPIDs is a datapath id from which on the lab's switches have none.
func (b *bed) freeDPIDs() uint64 {
	first := uint64(1)
	for _, n := range b.topology.Nodes {
		if id := uint64(n.DPID); id < 1<<63 {
			first = max(first, id+1)
		}
	}
	return first
}

// decider is a lab's controller.
type decider struct {
	address string // as the generator takes it
	pid     int    // 0: not known
	inside  string // a switch from whose namespace it is reached; "": the machine's
}

// controller finds the controller of the lab's first switch that has one.
func (b *bed) controller(ctx context.Context) (decider, error) {
	i := slices.IndexFunc(b.topology.Nodes, func(n *topology.Node) bool {
		return n.IsDatapath() && len(n.Controllers) > 0 && n.Controllers[0] != topology.ControllerNone
	})
	if i < 0 {
		return decider{}, errors.New("no switch of the lab has a controller; write lab: {controller: trivet}")
	}
	n := b.topology.Nodes[i]
	state, err := lab.Load(b.name)
	if err != nil {
		return decider{}, err
	}
	name := n.Controllers[0]
	switch {
	case name == topology.ControllerTrivet:
		return decider{address: "unix:" + filepath.Join(lab.Dir(b.name), "ovs", "controller.sock"), pid: state.PID}, nil
	case strings.Contains(name, ":"):
		return decider{address: name}, nil
	}
	switches, err := b.lab.Controllers(ctx)
	if err != nil {
		return decider{}, err
	}
	for _, s := range switches {
		for _, c := range s.Controllers {
			if s.Switch == n.Name && strings.HasPrefix(c.Address, "tcp:") {
				return decider{address: c.Address, pid: b.controllerPID(name), inside: n.Name}, nil
			}
		}
	}
	return decider{}, fmt.Errorf("%s: it is not known where it listens", name)
}

// controllerPID is the first process of a controller of others that the lab runs; 0 where that is
// not known.
func (b *bed) controllerPID(name string) int {
	own, ok := b.nodes.(*ownLab)
	if !ok {
		return 0
	}
	if pids := own.cgroups.Processes(b.name, ".controller-"+name); len(pids) > 0 {
		return pids[0]
	}
	return 0
}

func loadMeasurements(r *flowload.Result) []result.Measurement {
	one := func(metric, unit string, value float64) result.Measurement {
		return result.Measurement{Metric: metric, Unit: unit, Values: []float64{value}}
	}
	out := []result.Measurement{one("answers_rate", "answers/s", r.PerSecond),
		result.Share("wrong", int(min(r.Wrong, r.Answers)), int(r.Answers)),
		result.Share("lost", int(r.Lost), int(r.Lost+r.Answers))}
	if t := r.Times; t != nil {
		for _, q := range []struct {
			name  string
			value float64
		}{{"0.5", t.P50}, {"0.9", t.P90}, {"0.99", t.P99}, {"1", t.Max}} {
			m := one("answer_time", "s", q.value/1e6)
			m.Labels = map[string]string{"quantile": q.name}
			out = append(out, m)
		}
	}
	if c := r.Controller; c != nil {
		out = append(out, one("controller_cpu", "1", c.CPUShare), one("controller_pss", "B", float64(c.PSS)))
		if r.PerCPU > 0 {
			out = append(out, one("answers_per_cpu", "answers/s", r.PerCPU))
		}
	}
	return out
}
