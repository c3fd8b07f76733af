package local

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// TestSecure proves that two ends of an encrypted network reach each other within 4 seconds, though
// both send at once over a way with a delay, where two handshakes would cross and cost 5: whichever
// is made first, and when one of them is made anew and the other is not.
func TestSecure(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	carrier := insidetest.New(t)
	err := inside.File(carrier, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			err = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: "try"}})
		}
		if err == nil {
			delay := netem(topology.Impairment{Delay: 50_000_000})
			delay.index, delay.parent = lo.Attrs().Index, netlink.HANDLE_ROOT
			err = delay.put(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		}
		return err
	})
	if err != nil && os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this kernel has no WireGuard, or no netem: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprint("end ", first, " first"), func(t *testing.T) {
			ends := pairOfEnds(t)
			ns := [2]*os.File{insidetest.New(t), insidetest.New(t)}
			var group sync.WaitGroup
			makes := func(i int) {
				if err := inside.File(carrier, func() error { return MakeSecure(&ends[i], ns[i]) }); err != nil {
					t.Fatal(err)
				}
				group.Go(func() { meetAll(ends[i], fmt.Sprintf("/proc/self/fd/%d", ns[i].Fd())) })
				group.Go(func() {
					shell(t, ns[i], "ping -i 0.05 -c 1 -w 4 "+ends[1-i].Address.String()) // as many requests as it takes
				})
			}
			makes(first)
			makes(1 - first)
			group.Wait()
			shell(t, ns[first], "ip link del "+secureDevice)
			makes(first)
			group.Wait()
			for i := range ns { // their ports are those of the next ones
				shell(t, ns[i], "ip link del "+secureDevice)
			}
		})
	}
}

// pairOfEnds are two ends on one machine, of which the first calls.
func pairOfEnds(t *testing.T) (ends [2]lab.Secure) {
	for i := range ends {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = lab.Secure{Key: key, Port: 51820 + i, Address: netip.AddrFrom4([4]byte{100, 64, 0, byte(1 + i)})}
	}
	for i := range ends {
		far := ends[1-i]
		ends[i].Peers = []lab.SecurePeer{{Key: far.Key.PublicKey(), Address: far.Address, Calls: i == 0,
			Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(far.Port))}}
	}
	return ends
}
