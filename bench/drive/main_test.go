package drive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/call"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/bench/verify"
	_ "trivet.dev/trivet/internal/all"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
)

// TestMain also plays the parts in which the program starts itself: these tests bring up labs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case lab.DaemonCommand:
			ended(lab.RunDaemon(os.Args[2]))
		case local.InitCommand:
			ended(local.RunInit())
		case tune.AwakeCommand:
			ended(tune.Awake(os.Args[2]))
		case packets.Command:
			ended(packets.Serve(os.Stdin, os.Stdout))
		case verify.LookCommand:
			ended(verify.Look(os.Stdout))
		case call.Command:
			ended(call.Serve(os.Stdin, os.Stdout))
		case SuperviseCommand:
			ended(Supervise(os.Args[2:]))
		}
		if strings.HasPrefix(os.Args[1], "__") { // else it would run the tests, which bring up labs, which …
			ended(fmt.Errorf("%s: this test has no such part to play", os.Args[1]))
		}
	}
	dir, err := os.MkdirTemp("", "tvd")
	if err != nil {
		panic(err)
	}
	os.Setenv("TRIVET_RUN_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func ended(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// longest bounds what takes a moment unless it never happens.
const longest = 2 * time.Minute

// planOf reads an experiment and checks it.
func planOf(t *testing.T, text string) *experiment.Plan {
	t.Helper()
	e, problems := experiment.Read(filepath.Join(t.TempDir(), "x.yaml"), []byte(text), Vocabulary())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	p, problems := e.Plan()
	if err := errors.Join(problems.Err(), p.Check(lab.Defaults).Err(), Check(p)); err != nil {
		t.Fatal(err)
	}
	return p
}

// bring brings up the lab of an experiment's first cell, which goes down with the test, and returns
// it with its probes by name.
func bring(t *testing.T, text string) (experiment.Instance, map[string]experiment.Probe) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it brings up a lab")
	}
	p := planOf(t, text)
	prefix, err := PrefixOf(filepath.Join(t.TempDir(), "result"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{Dir: p.Experiment.Dir(), Prefix: prefix, Captures: filepath.Join(t.TempDir(), "captures")}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	i, err := d.Up(ctx, &p.Cells[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left, err := d.Clean(context.Background()); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	probes := map[string]experiment.Probe{}
	for _, group := range p.Cells[0].Groups {
		for _, one := range group {
			probes[one.Name] = one
		}
	}
	return i, probes
}

// run runs a probe, which must not fail, and returns its outcome and its values by metric and
// labels: "rtt h1 h2".
func run(t *testing.T, i experiment.Instance, p experiment.Probe) (experiment.Measured, map[string][]float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	o, err := i.Run(ctx, p, time.Now(), func() {})
	if err != nil {
		t.Fatalf("%s: %v\n%s", p.Name, err, o.Details)
	}
	declared(t, p, o)
	return o, valuesOf(o)
}

// declared proves that what a probe measured is what it says of itself (experiment.Probe.Measures),
// by which reports are checked before anything runs.
func declared(t *testing.T, p experiment.Probe, o experiment.Measured) {
	t.Helper()
	for _, m := range o.Measurements {
		i := slices.IndexFunc(p.Measures(), func(d experiment.Metric) bool { return d.Name == m.Metric })
		if i < 0 || p.Measures()[i].Unit != m.Unit {
			t.Errorf("%s does not say that it measures %s in %s", p.Kind, m.Metric, m.Unit)
			continue
		}
		for label := range m.Labels {
			if !slices.Contains(p.Measures()[i].Labels, label) {
				t.Errorf("%s does not say that %s has the label %s", p.Kind, m.Metric, label)
			}
		}
	}
}

func valuesOf(o experiment.Measured) map[string][]float64 {
	values := map[string][]float64{}
	for _, m := range o.Measurements {
		name := strings.TrimSpace(m.Metric + " " + m.Labels["from"] + " " + m.Labels["to"])
		values[name] = append(values[name], m.Values...)
	}
	return values
}
