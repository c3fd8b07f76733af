package delayline

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/topology"
)

// site is an unnamed namespace (so that nothing is left when a test dies) with one TAP device.
type site struct {
	t   testing.TB
	ns  *os.File
	fd  int // of the TAP device; the line owns it once there is one
	ip4 netip.Addr
	ip6 netip.Addr
}

const (
	testDevice = "tap0"
	testMTU    = 9000
)

// within runs a function on a thread in the site's namespace; sockets and programs it opens stay in
// it.
func (s *site) within(do func()) {
	s.t.Helper()
	if err := inside.File(s.ns, func() error { do(); return nil }); err != nil {
		s.t.Error(err)
	}
}

func newSite(t testing.TB, number byte) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for namespaces and TAP devices")
	}
	ns := insidetest.New(t)
	var err error
	s := &site{t: t, ns: ns, ip4: netip.AddrFrom4([4]byte{10, 9, 9, number}),
		ip6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x09, 15: number})}
	s.within(func() {
		if s.fd, err = OpenTap(testDevice, true); err == nil {
			err = s.configure()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) configure() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	tap, err := netlink.LinkByName(testDevice)
	if err != nil {
		return err
	}
	addr := func(ip netip.Addr, bits int) *netlink.Addr {
		const noDAD = 0x02 // IFA_F_NODAD: usable at once
		return &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())}, Flags: noDAD}
	}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetUp(lo) },
		func() error { return netlink.LinkSetMTU(tap, testMTU) },
		func() error { return netlink.AddrAdd(tap, addr(s.ip4, 24)) },
		func() error { return netlink.AddrAdd(tap, addr(s.ip6, 64)) },
		func() error { return netlink.LinkSetUp(tap) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program in the namespace.
func (s *site) run(name string, args ...string) (out string, err error) {
	s.within(func() {
		var b []byte
		b, err = exec.Command(name, args...).CombinedOutput()
		out = string(b)
	})
	return out, err
}

// mustRun runs a program, or skips the test if it is not installed.
func (s *site) mustRun(name string, args ...string) string {
	s.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		s.t.Skipf("needs %s", name)
	}
	out, err := s.run(name, args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

// wire is two sites and the line between them.
type wire struct {
	a, b *site
	line *Line
}

func newWire(t testing.TB, i topology.Impairment, opts Options) *wire {
	t.Helper()
	w := &wire{a: newSite(t, 1), b: newSite(t, 2)}
	e, err := NewEngine(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.line, err = e.Add(w.a.fd, w.b.fd, i, i, opts); err != nil {
		t.Fatal(err)
	}
	return w
}

// echo starts a UDP server at b that sends back what it receives, and returns a socket at a that is
// connected to it.
func (w *wire) echo(t testing.TB, at netip.Addr) net.Conn {
	t.Helper()
	var server net.PacketConn
	var client net.Conn
	var err error
	w.b.within(func() { server, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 7).String()) })
	if err != nil {
		t.Fatal(err)
	}
	w.a.within(func() { client, err = net.Dial("udp", server.LocalAddr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(b[:n], from)
		}
	}()
	return client
}

// roundTrip sends a packet of a size and waits for its echo; ok is false if none came in time.
func roundTrip(t testing.TB, c net.Conn, size int, timeout time.Duration) (rtt time.Duration, ok bool) {
	t.Helper()
	b := make([]byte, size)
	_ = c.SetReadDeadline(time.Now().Add(timeout)) // not of writes: others may come much later
	start := time.Now()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(b)
	return time.Since(start), err == nil && n == size
}
