//go:build linux

package inside

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

// TestNamespace proves that a function runs in the given namespace, and nothing after it does; and
// that its error is returned, as is the error that there is no such namespace.
func TestNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	file, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	devices := func() (n int) {
		all, _ := net.Interfaces()
		return len(all)
	}
	outside := devices()
	there := 0
	if err := File(file, func() error { there = devices(); return nil }); err != nil || there != 1 {
		t.Errorf("%d devices in a new namespace, not 1 (loopback): %v", there, err)
	}
	if now := devices(); now != outside {
		t.Errorf("%d devices outside, %d before", now, outside)
	}
	wrong := errors.New("wrong")
	if err := File(file, func() error { return wrong }); err != wrong {
		t.Errorf("the function's error came back as %v", err)
	}
	if err := Namespace("/run/no/such", func() error { return nil }); err == nil || !strings.Contains(err.Error(), "/run/no/such") {
		t.Errorf("no such namespace: %v", err)
	}
	if err := File(os.Stdin, func() error { return nil }); err == nil {
		t.Error("a file that keeps no namespace was entered")
	}
}
