package local

import (
	"net/netip"
	"os"
	"strings"
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

// TestAfresh proves that an interface that a provider has attached to a machine loses all that it
// had there when the lab takes it, under another name in the same namespace, and that it has it
// again, and nothing of the lab's, once it is given back; also where what took it was killed before
// it was renamed.
func TestAfresh(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for what, renamed := range map[string]bool{"taken": true, "killed": false} {
		t.Run(what, func(t *testing.T) {
			ns := insidetest.New(t)
			shell(t, ns, `ip link add eth1 type veth peer name far; ip link set far up
				ip address add 198.18.0.3/29 dev eth1; ip link set eth1 up; ip route add 203.0.113.0/24 via 198.18.0.1`)
			const shown = "ip -br -4 address show dev eth1; ip route"
			before := shell(t, ns, shown)
			err := inside.File(ns, func() error {
				was, err := look("eth1")
				if err != nil {
					return err
				}
				was.As, was.Stays = "h1-eth0", true
				if err := afresh("eth1"); err != nil {
					return err
				}
				dev, err := netlink.LinkByName("eth1")
				if err != nil {
					return err
				}
				if had, err := netlink.AddrList(dev, netlink.FAMILY_V4); err != nil || len(had) > 0 {
					t.Errorf("the lab's has %v, %v", had, err)
				}
				if renamed {
					if err := netlink.LinkSetName(dev, was.As); err != nil {
						return err
					}
					address, err := netlink.ParseAddr("10.0.0.1/8")
					if err != nil {
						return err
					}
					if err := netlink.AddrAdd(dev, address); err != nil {
						return err
					}
				}
				if err := was.sendHome(); err != nil {
					return err
				}
				if lost := was.restore(); len(lost) > 0 {
					t.Errorf("lost: %q", lost)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if after := shell(t, ns, shown); after != before || strings.Contains(shell(t, ns, "ip -br link"), "h1-eth0") {
				t.Errorf("it was\n%sand is\n%s", before, after)
			}
		})
	}
}

// TestHasMAC proves that an interface is known to be a port of the lab's, and so is not guarded, by
// its MAC address, and that one without such an address is none.
func TestHasMAC(t *testing.T) {
	port := topology.MAC{2, 0xff, 10, 0, 0, 1}
	dev := func(mac []byte) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1", HardwareAddr: mac}}
	}
	for want, mac := range map[bool][]byte{true: port[:], false: {2, 0, 0, 0, 0, 1}} {
		if got := hasMAC(dev(mac), map[topology.MAC]bool{port: true}); got != want {
			t.Errorf("%x is a port of the lab's: %v", mac, got)
		}
	}
	if hasMAC(dev(nil), map[topology.MAC]bool{{}: true}) {
		t.Error("an interface without a MAC address is a port of the lab's")
	}
}
