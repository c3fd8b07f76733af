// Package insidetest makes namespaces for tests.
package insidetest

import (
	"os"
	"testing"

	"trivet.dev/trivet/internal/inside"
)

// New makes a network namespace without a name, which ends with the test.
func New(t testing.TB) *os.File {
	t.Helper()
	ns, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}
