package sites

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// farEnd makes, in a namespace, an end of a tunnel whose other end is a file.
func farEnd(ns *os.File, e tunnelEnd) (end *os.File, err error) {
	err = inside.File(ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, _ := unix.NewIfreq("far")
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		end = os.NewFile(uintptr(fd), "far")
		dev, err := netlink.LinkByName("far")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(netip.PrefixFrom(e.address(true), 30).String())
		return errors.Join(err, netlink.LinkSetMTU(dev, local.MTU), netlink.AddrAdd(dev, address), netlink.LinkSetUp(dev),
			os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0))
	})
	return end, err
}

// answerEchoes answers echo requests of up to so many bytes in their order, and, from the first
// large one on, so much later.
func answerEchoes(end *os.File, largest int, late time.Duration) {
	type reply struct {
		at     time.Time
		packet []byte
	}
	replies := make(chan reply, 1000)
	defer close(replies)
	go func() {
		for r := range replies {
			time.Sleep(time.Until(r.at))
			_, _ = end.Write(r.packet)
		}
	}()
	delay := time.Duration(0)
	for {
		p := make([]byte, 2*local.MTU)
		n, err := end.Read(p)
		if err != nil {
			return
		}
		if p = p[:n]; n < ipv4Headers || p[0] != 0x45 || p[9] != unix.IPPROTO_ICMP || p[20] != 8 {
			continue
		}
		if n > 100 {
			delay = late
		}
		if n > largest {
			continue
		}
		source := [4]byte(p[12:])
		copy(p[12:], p[16:20])
		copy(p[16:], source[:])
		p[20] = 0 // an echo reply, and its checksum (RFC 1624)
		sum := uint32(binary.BigEndian.Uint16(p[22:])) + 0x0800
		binary.BigEndian.PutUint16(p[22:], uint16(sum+sum>>16))
		replies <- reply{time.Now().Add(delay), p}
	}
}

// TestMeasureBusy proves that what is found of the size of packets does not depend on when answers
// are heard: a way has the same if it answers later than it did at first, and one that loses large
// packets is told from one that does not.
func TestMeasureBusy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a namespace")
	}
	for _, c := range []struct {
		name    string
		largest int
		late    time.Duration
	}{{"idle", local.MTU, 0}, {"idle, not whole", local.MTU - tunnelHeaders, 0}, {"busy", local.MTU, 300 * time.Millisecond}, {"busy, not whole", local.MTU - tunnelHeaders, 300 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			ns, err := inside.New()
			if err != nil {
				t.Fatal(err)
			}
			defer ns.Close()
			e := tunnelEnd{First: true, Carrier: topology.Carrier{Remote: netip.MustParseAddr("10.0.0.2")}}
			far, err := farEnd(ns, e)
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			go answerEchoes(far, c.largest, c.late)
			tun := &tunnels{ns: ns, ends: []tunnelEnd{e}}
			got, err := tun.measure(t.Context())
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if m := got[0]; m.Received != probes || m.Full != (c.largest == local.MTU) || m.Whole != c.largest {
				t.Errorf("%+v", m)
			}
		})
	}
}
