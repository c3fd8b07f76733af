package local

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
)

// Proves that a server's port is none that a client could be given, however the kernel divides
// them, unless clients may have all.
func TestFreePort(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a namespace")
	}
	ns := insidetest.New(t)
	l := &Lab{fabric: ns}
	for _, c := range []struct {
		clients string
		below   int
	}{{"32768 60999", 32768}, {"20000 60999", 20000}, {"1024 65535", 65536}} {
		if err := inside.File(ns, func() error {
			lo, err := netlink.LinkByName("lo")
			if err == nil {
				err = netlink.LinkSetUp(lo)
			}
			if err == nil {
				err = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(c.clients), 0)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if port, err := l.FreePort(); err != nil || port >= c.below || port < 1024 {
				t.Errorf("of clients are %s; a server gets %d: %v", c.clients, port, err)
			}
		}
	}
}
