// Package insidetest makes namespaces for tests.
package insidetest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

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

// Do runs a function in a namespace.
func Do(t testing.TB, ns *os.File, f func() error) {
	t.Helper()
	if err := inside.File(ns, f); err != nil {
		t.Fatal(err)
	}
}

// Join makes a pair of veth devices between two namespaces, and waits until they carry frames: the
// kernel may take a second to notice that both ends are up, and drops all until then.
func Join(t testing.TB, a *os.File, deviceOfA string, b *os.File, deviceOfB string) {
	t.Helper()
	Do(t, a, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: deviceOfA}, PeerName: deviceOfB,
			PeerNamespace: netlink.NsFd(b.Fd())})
	})
	up := func(name string) func() error {
		return func() error { return netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name}}) }
	}
	Do(t, a, up(deviceOfA))
	Do(t, b, up(deviceOfB))
	carries := func(name string) func() error {
		return func() error {
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
				dev, err := netlink.LinkByName(name)
				if err != nil || dev.Attrs().OperState == netlink.OperUp {
					return err
				}
				if time.Now().After(end) {
					return fmt.Errorf("%s does not come up", name)
				}
			}
		}
	}
	Do(t, a, carries(deviceOfA))
	Do(t, b, carries(deviceOfB))
}
