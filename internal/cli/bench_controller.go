package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/flowload"
	"trivet.dev/trivet/internal/words"
)

// controllerBench holds the flags of `trivet bench controller`.
type controllerBench struct {
	flowload.Config
	version string
	mode    string
	apps    []string
	pin     bool
	profile string // file for a CPU profile of Trivet's own controller
}

func (a *app) benchController() *cobra.Command {
	b := controllerBench{Config: flowload.New(flowload.Throughput)}
	line := flowload.New(flowload.Line)
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Measure an OpenFlow controller with emulated switches",
		Long: "Measure an OpenFlow controller: emulated switches ask it where to send packets, and check its answers.\n\n" +
			"throughput   every switch keeps --window packets waiting for an answer\n" +
			"latency      every switch keeps one\n" +
			"line         switches in a line, which ask nothing: how soon the controller knows all links, and what\n" +
			"             watching them costs it\n\n" +
			"Without --connect, Trivet's own controller is started and measured, on a processor of its own\n" +
			"if there are two. Start any other controller yourself; give its process (--pid) to have its CPU and memory measured,\n" +
			"and pin it and this program to processors (taskset) when you compare controllers.",
		Example: "  trivet bench controller\n  trivet bench controller --switches 16 --hosts 100\n  trivet bench controller --mode line --switches 1000\n" +
			"  taskset -c 1 trivet bench controller --connect tcp:127.0.0.1:6653 --pid 4711 --openflow 1.0",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.Mode = flowload.Mode(b.mode)
			if b.Mode == flowload.Line { // its own defaults, unless others were given
				if !cmd.Flags().Changed("ports") {
					b.Ports = line.Ports
				}
				if !cmd.Flags().Changed("duration") {
					b.Duration = line.Duration
				}
			}
			return a.runBenchController(cmd.Context(), b, !cmd.Flags().Changed("connect"))
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.Connect, "connect", "",
		"the controller's address: tcp:ADDRESS:PORT or unix:PATH (default: Trivet's own is started)")
	f.IntVar(&b.PID, "pid", 0, "process ID of the controller, to measure its CPU time and memory")
	f.StringVar(&b.version, "openflow", "1.3", "OpenFlow version: 1.3 or 1.0")
	f.StringVar(&b.mode, "mode", string(b.Mode), "throughput, latency or line")
	f.IntVar(&b.Switches, "switches", b.Switches, "how many switches")
	f.Uint64Var(&b.FirstDPID, "first-dpid", b.FirstDPID,
		"datapath id of the first switch; those of the others follow it")
	f.IntVar(&b.Ports, "ports", b.Ports, "ports of each switch (in a line: 6)")
	f.IntVar(&b.Hosts, "hosts", b.Hosts, "hosts of each switch")
	f.IntVar(&b.Window, "window", b.Window, "packets of a switch that may wait for an answer, in throughput mode")
	f.DurationVar(&b.Duration, "duration", b.Duration, "how long to measure; for a line, the whole run (30s)")
	f.DurationVar(&b.Warmup, "warmup", b.Warmup, "how long to run before measuring")
	f.DurationVar(&b.Timeout, "timeout", b.Timeout, "when a packet without an answer counts as lost")
	f.DurationVar(&b.Settle, "settle", b.Settle,
		"how long to wait for connections, and for the controller's first flow entries")
	f.BoolVar(&b.Fresh, "fresh", false, "send every packet from a new host")
	f.Uint16Var(&b.VLAN, "vlan", 0, "VLAN tag of the packets")
	f.BoolVar(&b.NoBuffers, "no-buffers", false, "switches do not buffer packets: answers carry the frames")
	f.StringSliceVar(&b.apps, "apps", []string{"learning"}, "apps of Trivet's own controller")
	f.BoolVar(&b.pin, "pin", true, "pin Trivet's own controller and this program to a processor each")
	f.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile of Trivet's own controller to this file")
	return cmd
}

func (a *app) runBenchController(ctx context.Context, b controllerBench, own bool) error {
	var ok bool
	if b.Version, ok = flowload.Versions[b.version]; !ok {
		return fmt.Errorf("--openflow %s: write 1.3 or 1.0", b.version)
	}
	what := "the controller at " + b.Connect
	if own {
		b.Connect = "tcp:127.0.0.1:0" // until it is known
	}
	if err := b.Check(); err != nil {
		return err
	}
	if own {
		if b.Version != flowload.Versions["1.3"] {
			return errors.New("--openflow 1.0: Trivet's own controller speaks 1.3")
		}
		child, err := a.startOwn(ctx, b)
		if err != nil {
			return err
		}
		defer child.end()
		b.Connect, b.PID, what = child.address, child.pid(), child.what
	}
	if isTerminal(a.err) {
		b.Progress = func(what string) { fmt.Fprintf(a.err, "\r\033[K%s", what) }
		defer fmt.Fprint(a.err, "\r\033[K")
	}
	r, err := flowload.Run(ctx, b.Config)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before there was anything to show")
	}
	if err != nil {
		return err
	}
	if b.Progress != nil {
		fmt.Fprint(a.err, "\r\033[K")
	}
	if a.json {
		return a.printJSON(r)
	}
	a.showFlowload(what, r)
	return nil
}

// showFlowload prints a result for the user.
func (a *app) showFlowload(what string, r *flowload.Result) {
	fmt.Fprintf(a.out, "%s\n%s, OpenFlow %s, %s", what, r.Mode, r.OpenFlow, words.Plural(r.Switches, "switch"))
	var rows [][]string
	if r.Line != nil {
		fmt.Fprintf(a.out, ", %.1f s\n\n", r.Seconds)
		rows = lineRows(r)
	} else {
		fmt.Fprintf(a.out, " with %d hosts each, %s waiting, %.1f s\n\n", r.Hosts, words.Plural(r.Window, "packet"),
			r.Seconds)
		rows = answerRows(r)
	}
	if c := r.Controller; c != nil {
		rows = append(rows,
			[]string{"controller",
				fmt.Sprintf("%s of a processor, RSS %s, PSS %s", percent(c.CPUShare), megabytes(c.RSS),
					megabytes(c.PSS))})
	}
	generator := fmt.Sprintf("%s of a processor, waited for one %s of the time", percent(r.Generator.CPUShare),
		percent(r.Generator.Waited))
	if r.Limited {
		generator += ": IT WAS THE LIMIT, these are not the controller's figures"
	}
	a.table(append(rows, []string{"generator", generator}))
	for _, n := range r.Notes {
		fmt.Fprintln(a.out, "note:", n)
	}
}

func answerRows(r *flowload.Result) [][]string {
	rows := [][]string{{"answers/s", count(r.PerSecond)}}
	if r.PerCPU > 0 {
		rows = append(rows, []string{"answers per CPU-second", count(r.PerCPU) + " (of the controller)"})
	}
	if t := r.Times; t != nil {
		rows = append(rows,
			[]string{"latency",
				fmt.Sprintf("p50 %.0f µs, p90 %.0f µs, p99 %.0f µs, max %.0f µs", t.P50, t.P90, t.P99, t.Max)})
	}
	wrong := fmt.Sprintf("%d of %d", r.Wrong, r.Answers)
	lost := fmt.Sprintf("%d", r.Lost)
	if r.Unheard > 0 {
		lost += fmt.Sprintf(", and %s whose announcement was not answered", words.Plural(r.Unheard, "host"))
	}
	return append(rows, []string{"wrong", wrong}, []string{"lost", lost})
}

func lineRows(r *flowload.Result) [][]string {
	l := r.Line
	after := func(n, of int, seconds float64) string {
		if seconds == 0 {
			return fmt.Sprintf("%d of %d in %.1f s", n, of, r.Seconds)
		}
		return fmt.Sprintf("all %d after %.2f s", of, seconds)
	}
	rows := [][]string{
		{"handshakes", after(l.Handshakes, r.Switches, l.AllUp)},
		{"link directions probed", after(l.Crossed, l.Directions, l.AllCrossed)},
		{"probes/s", fmt.Sprintf("%.0f (in the last %.1f s)", l.Probes, l.Steady)},
		{"longest without a probe", fmt.Sprintf("%.2f s", l.LongestGap)},
	}
	if r.Controller != nil {
		rows = append(rows, []string{"controller, total CPU", fmt.Sprintf("%.2f s", r.Controller.CPUSeconds)},
			[]string{"controller, steady", percent(l.SteadyCPU) + " of a processor"})
	}
	if l.LinksLost != nil {
		rows = append(rows, []string{"links lost", fmt.Sprint(*l.LinksLost)})
	}
	return rows
}

// count formats a number with three digits.
func count(v float64) string {
	switch {
	case v >= 999_500:
		return fmt.Sprintf("%.3g M", v/1e6)
	case v >= 9_995:
		return fmt.Sprintf("%.3g k", v/1e3)
	}
	return fmt.Sprintf("%.0f", math.Round(v))
}

func megabytes(bytes uint64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// profiledController is `trivet controller` with a CPU profile of its whole run.
func (a *app) profiledController() *cobra.Command {
	var s serving
	var apps []string
	var file string
	cmd := &cobra.Command{
		Use: "profiled-controller", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := os.Create(file)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
			return a.runController(cmd.Context(), s, running{apps: apps, api: "none"})
		},
	}
	cmd.Flags().StringVar(&s.listen, "listen", "", "")
	cmd.Flags().StringSliceVar(&apps, "apps", nil, "")
	cmd.Flags().StringVar(&file, "cpuprofile", "", "")
	return cmd
}

// ownArguments returns the arguments with which this program runs the controller to be measured.
func (b *controllerBench) ownArguments(address string) []string {
	args := []string{"controller"}
	if b.profile != "" {
		args = []string{"bench", "profiled-controller", "--cpuprofile", b.profile}
	}
	return append(args, "--listen", address, "--apps", strings.Join(b.apps, ","))
}
