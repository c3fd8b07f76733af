// Package until is how tests wait for something to come true.
package until

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// limit is for what takes milliseconds unless it never happens, on a machine that stalls.
const limit = 3 * time.Minute

// True waits until a condition holds, and fails the test if it never does. What is named by what it
// waits for: "the entry ends".
func True(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, limit, what, holds)
}

// Within is True for what takes time by itself.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	Silent(t, limit, func() string {
		if holds() {
			return ""
		}
		return what
	})
}

// Silent waits until there is nothing to complain about. The last complaint is what the test fails
// with.
func Silent(t testing.TB, limit time.Duration, complaint func() string) {
	t.Helper()
	pause := time.Millisecond
	for begin := time.Now(); ; time.Sleep(pause) {
		what := complaint()
		if what == "" {
			return
		}
		if took := time.Since(begin); took > limit {
			t.Fatalf("within %s this does not come true: %s (%s)", took.Round(time.Second), what, machine())
		}
		pause = min(pause*2, 20*time.Millisecond)
	}
}

// machine says how busy this machine is.
func machine() string {
	load, _ := os.ReadFile("/proc/loadavg")
	pressure, _ := os.ReadFile("/proc/pressure/cpu") // not every kernel has it
	first, _, _ := strings.Cut(string(pressure), "\n")
	return strings.TrimSpace(fmt.Sprintf("load %s; processors: %s", strings.TrimSpace(string(load)), first))
}
