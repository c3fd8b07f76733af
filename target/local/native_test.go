package local

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/topology"
)

// TestRestoreMachine proves that of a machine that was a host no route is left, of either family,
// also none that discards packets, and that the machine's own stay.
func TestRestoreMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	ns := insidetest.New(t)
	shell(t, ns, "ip link set lo up; ip route add 192.0.2.0/24 dev lo; ip route add blackhole 198.51.100.0/24")
	before := shell(t, ns, "ip route show table all; ip -6 route show table all")
	err := inside.File(ns, func() error {
		var static []topology.Route
		for _, to := range []string{"10.9.0.0/16", "0.0.0.0/0", "fd00:9::/32"} {
			static = append(static, topology.Route{To: netip.MustParsePrefix(to), Discard: true})
		}
		if err := routeNative(nil, static); err != nil {
			return err
		}
		list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: nativeTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		if len(list) != len(static) || list[0].Type != unix.RTN_BLACKHOLE {
			t.Errorf("the lab's routes: %v", list)
		}
		return restoreMachine(native{Node: "h1"}, t.TempDir())
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := shell(t, ns, "ip route show table all; ip -6 route show table all"); after != before {
		t.Errorf("routes were\n%s\nand are\n%s", before, after)
	}
}
