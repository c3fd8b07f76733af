package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"trivet.dev/trivet/internal/inside"
)

var namespaces atomic.Int32

// newNamespace makes a network namespace without IPv6 that ends with the test.
func newNamespace(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	name := fmt.Sprintf("trivet-embedded-%d-%d", os.Getpid(), namespaces.Add(1))
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	within(t, name, func() error {
		for _, which := range []string{"default", "all"} {
			err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0)
			if err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		return nil
	})
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return name
}

// within calls f on a thread in the namespace.
func within(t testing.TB, name string, f func() error) {
	t.Helper()
	if err := inside.Namespace("/run/netns/"+name, f); err != nil {
		t.Fatalf("in the namespace %s: %v", name, err)
	}
}

func run(t testing.TB, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// shortTemp is a temporary directory whose path fits a socket's.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "of")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
