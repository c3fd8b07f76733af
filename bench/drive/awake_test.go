package drive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/measure/environment"
)

// TestAwake proves that with awake: true this machine's processors are kept from sleep while probes
// run, that the result says how, and that nothing of it is left after the cell; and that without it
// nothing is asked for.
func TestAwake(t *testing.T) {
	for awake, want := range map[string]string{"true": "1", "false": "0"} {
		s := sampleOf(t, fmt.Sprintf(`
topology: line,0
lab: {awake: %s, controller: none}
probes: [command: {run: "ls -l /proc/%d/fd | grep cpu_dma_latency | wc -l", metric: open, unit: files, match: '([0-9]+)'}]
`, awake, os.Getpid()))
		how := ""
		if awake == "true" {
			how = tune.AwakeBy()
		}
		if s.Usage == nil || s.Usage.Awake != how {
			t.Errorf("awake %s: it was by %+v, not %q", awake, s.Usage, how)
		}
		if how != environment.ByLoops && (s.Failure != "" || fmt.Sprint(s.Measurements[0].Values[0]) != want) {
			t.Errorf("awake %s: %v, %s", awake, s.Measurements, s.Failure)
		}
	}
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "cpu_dma_latency") {
			t.Errorf("the device is still open: %s", fd)
		}
	}
	all, _ = filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err != nil || process.Parent(pid) != os.Getpid() {
			continue
		}
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), tune.AwakeCommand) {
			t.Errorf("the loops still run: %q", text)
		}
	}
}
