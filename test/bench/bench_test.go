// Package bench measures what docs/performance.md says of Trivet's speed and truth, side
// by side with Mininet where it can be. It runs only when asked:
//
//	make bench                                      everything, and experiments/own
//	go test ./test/bench -run UpDown -pairs 5 -v    one table
//
// Figures are medians with their spread; nothing here fails for being slow.
package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
)

var pairs = flag.Int("pairs", 0, "how often each comparison is repeated; 0: not at all")

var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == packets.Command { // this program, as an instrument in a host
		if err := packets.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if *pairs == 0 {
		fmt.Println("benchmarks run only with -pairs N")
		os.Exit(0)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	binary = cmp.Or(os.Getenv("TRIVET_BINARY"), filepath.Join(root, "bin", "trivet"))
	dir, err := os.MkdirTemp("", "tvb")
	if err != nil {
		panic(err)
	}
	os.Setenv("TRIVET_RUN_DIR", dir)
	code := m.Run()
	_ = exec.Command(binary, "down", "--all").Run() // what a benchmark that failed has left
	os.RemoveAll(dir)
	os.Exit(code)
}

// trivet runs the program and decodes what it prints as JSON.
func trivet(t *testing.T, into any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "--json")...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("trivet %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if into != nil {
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatalf("trivet %s printed no JSON: %v", strings.Join(args, " "), err)
		}
	}
}

// timed runs trivet and returns how long the whole command took, in seconds.
func timed(t *testing.T, args ...string) float64 {
	t.Helper()
	start := time.Now()
	trivet(t, nil, args...)
	return time.Since(start).Seconds()
}

// spread is a median and the extremes.
func spread(values []float64) (median, low, high float64) {
	s := slices.Clone(values)
	slices.Sort(s)
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]
}

func text(values []float64, unit string) string {
	m, low, high := spread(values)
	return fmt.Sprintf("%.3g %s (%.3g–%.3g)", m, unit, low, high)
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func load(t *testing.T) {
	b, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load before: %s", strings.TrimSpace(string(b)))
}
