// Package e2e runs the program as a user would, and looks at the machine before and after.
//
// Each test gets a machine of its own: PID, mount, network and UTS namespaces, with
// an empty /run. So tests run at the same time without meeting (and without
// touching the network of who runs them), what a lab leaves behind is seen exactly,
// and whatever a failed test leaves ends with its machine. Only cgroups and the
// limits of the kernel as a whole are shared; labs' names are unique for the
// former, and limits_test.go is about the latter.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// trivet is the program under test.
var trivet string

// A thread that has been lent to a machine ends; the first thread cannot, so it is kept from that.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if os.Getenv(initVariable) != "" {
		fmt.Fprintln(os.Stderr, runInit())
		os.Exit(1)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == "2" || f.Value.String() == "1" {
		_ = f.Value.Set("4") // most tests wait most of the time
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make namespaces, which needs root: make e2e")
		os.Exit(1)
	}
	trivet = os.Getenv("TRIVET_BINARY")
	if trivet == "" {
		trivet, _ = filepath.Abs("../../bin/trivet")
	}
	if _, err := os.Stat(trivet); err != nil {
		fmt.Fprintln(os.Stderr, err, "(make build)")
		os.Exit(1)
	}
	unix.Umask(0o022)
	restore := moreNeighbors()
	code := m.Run()
	restore()
	os.Exit(code)
}

// moreNeighbors raises the kernel's limits on neighbours as a whole, and returns what restores
// them. A lab does that itself where it sees them; in the machines' own network namespaces it
// cannot.
func moreNeighbors() (restore func()) {
	restore = func() {}
	for _, limit := range []string{"gc_thresh3", "gc_thresh2", "gc_thresh1"} {
		for _, family := range []string{"ipv4", "ipv6"} {
			file := "/proc/sys/net/" + family + "/neigh/default/" + limit
			old, err := os.ReadFile(file)
			if err != nil || os.WriteFile(file, []byte("32768"), 0o644) != nil {
				continue
			}
			rest := restore
			restore = func() { _ = os.WriteFile(file, old, 0o644); rest() }
		}
	}
	return restore
}
