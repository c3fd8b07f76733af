package delayline

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"trivet.dev/trivet/topology"
)

// reply is how long tests wait for a packet that should come; only a failing test waits that long.
const reply = 5 * time.Second

// fastest returns the shortest of several round trips with packets of a size.
func fastest(t *testing.T, c net.Conn, size int) time.Duration {
	t.Helper()
	best := reply
	for range 5 {
		rtt, ok := roundTrip(t, c, size, reply)
		if !ok {
			t.Fatalf("no echo of %d bytes", size)
		}
		best = min(best, rtt)
	}
	return best
}

// balanced checks that every packet a line took in is accounted for.
func balanced(t *testing.T, s Stats) {
	t.Helper()
	for i, d := range s {
		sum := d.Out.Packets + d.Lost.Packets + d.Overflowed.Packets + d.Cleared.Packets + d.NoMemory.Packets + d.Refused.Packets +
			d.Unserved.Packets + d.Held.Packets
		if d.In.Packets != sum+d.Waiting.Packets+d.Flying.Packets {
			t.Errorf("direction %d does not add up: %+v", i, d)
		}
	}
}

// TestDelayOnTheWire proves that no packet arrives early, IPv4 or IPv6, and that changing the delay
// in just one direction takes effect on a line in use.
func TestDelayOnTheWire(t *testing.T) {
	delay := topology.Impairment{Delay: ms(20)}
	w := newWire(t, delay, Options{})
	for _, ip := range []netip.Addr{w.b.ip4, w.b.ip6} {
		c := w.echo(t, ip)
		if got := fastest(t, c, 64); got < 40*time.Millisecond {
			t.Errorf("%v: round trip %v, want 40ms", ip, got)
		}
		if err := w.line.Set(delay, topology.Impairment{Delay: ms(60)}); err != nil {
			t.Fatal(err)
		}
		if got := fastest(t, c, 64); got < 80*time.Millisecond {
			t.Errorf("%v: round trip %v after the change, want 80ms", ip, got)
		}
		if err := w.line.Set(delay, delay); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // one by one: for the last of several, ping waits only twice as long as the others took
		w.a.mustRun("ping", "-c", "1", "-W", "30", w.b.ip4.String())
	}
	balanced(t, w.line.Stats())
}

// TestLargeFrames proves that frames up to the device's MTU pass whole.
func TestLargeFrames(t *testing.T) {
	w := newWire(t, topology.Impairment{Loss: 1e-12}, Options{}) // no super-packets
	c := w.echo(t, w.b.ip4)
	fastest(t, c, testMTU-28)
	s := w.line.Stats()
	for i := range s {
		// The 5 echoes, and little else (address resolution, neighbour discovery).
		if s[i].Out.Bytes < 5*(testMTU+14) || s[i].Out.Packets > 60 {
			t.Errorf("direction %d: %+v", i, s[i].Out)
		}
	}
}

// transfer sends data over TCP from a to b and proves that it arrives unchanged.
func transfer(t *testing.T, w *wire, to netip.Addr, size int) {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	var err error
	w.b.within(func() { listener, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	received := make(chan [32]byte, 1)
	go func() {
		hash := sha256.New()
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(hash, c)
			c.Close()
		}
		received <- [32]byte(hash.Sum(nil))
	}()
	w.a.within(func() { conn, err = net.DialTimeout("tcp", listener.Addr().String(), reply) })
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(conn, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {
	case got := <-received:
		if got != sha256.Sum256(data) {
			t.Error("the data came damaged")
		}
	case <-time.After(time.Minute):
		t.Error("the data did not arrive within a minute")
	}
}

// TestTCP proves that TCP data arrives intact, over IPv4 and IPv6, with super-packets and, for each
// of the reasons to avoid them, without; that super-packets are used exactly where they may be; and
// that they count as the packets that a wire would carry.
func TestTCP(t *testing.T) {
	const size = 4 << 20
	path := topology.Impairment{Bandwidth: 100e6, Delay: ms(20)}
	lossy := topology.Impairment{Bandwidth: 100e6, Delay: ms(1), Loss: 0.005}
	for _, c := range []struct {
		name string
		topology.Impairment
		Options
		offload [2]bool
	}{
		{"offload", path, Options{}, [2]bool{true, true}},
		{"plain end b", path, Options{Plain: [2]bool{false, true}}, [2]bool{false, true}},
		{"loss", lossy, Options{Seed: 1}, [2]bool{false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, c.Impairment, c.Options)
			transfer(t, w, w.b.ip4, size)
			transfer(t, w, w.b.ip6, size)
			s, err := w.line.Close()
			if err != nil {
				t.Fatal(err)
			}
			balanced(t, s)
			for i := range s {
				if s[i].Offload != c.offload[i] || s[i].Malformed != 0 || s[i].Refused.Packets != 0 {
					t.Errorf("direction %d: %+v", i, s[i])
				}
			}
			// No packet on a wire exceeds what the MTU allows; nor, then, does the average.
			if average := s[0].In.Bytes / s[0].In.Packets; average > testMTU+14 || s[0].Out.Bytes < 2*size {
				t.Errorf("packets of %d bytes on the average, %d bytes in all", average, s[0].Out.Bytes)
			}
			if c.Loss > 0 && s[0].Lost.Packets == 0 {
				t.Error("nothing was lost")
			}
		})
	}
}

// TestOffloadChanges proves that a TCP connection survives super-packets being switched on and off.
func TestOffloadChanges(t *testing.T) {
	fast := topology.Impairment{Bandwidth: 400e6, Delay: ms(2)}
	precise := topology.Impairment{Bandwidth: 400e6, Delay: ms(2), Jitter: 1}
	w := newWire(t, fast, Options{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			imp := []topology.Impairment{precise, fast}[i%2]
			if err := w.line.Set(imp, imp); err != nil {
				t.Error(err)
			}
		}
	}()
	transfer(t, w, w.b.ip4, 16<<20)
	close(stop)
	<-stopped
	balanced(t, w.line.Stats())
}

// TestLossOnTheWire proves that what does not arrive is what the line counts as lost.
func TestLossOnTheWire(t *testing.T) {
	w := newWire(t, topology.Impairment{}, Options{Seed: 3})
	c := w.echo(t, w.b.ip4)
	fastest(t, c, 64) // resolves the addresses: those packets must not be lost
	if err := w.line.Set(topology.Impairment{Loss: 1}, topology.Impairment{}); err != nil {
		t.Fatal(err)
	}
	before := w.line.Stats()
	const n = 50
	for range n {
		if _, err := c.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := roundTrip(t, c, 100, 300*time.Millisecond); ok {
		t.Error("an echo came where all is lost")
	}
	after := w.line.Stats()
	for deadline := time.Now().Add(reply); after[0].Lost.Packets < before[0].Lost.Packets+n+1 && time.Now().Before(deadline); after = w.line.Stats() {
		time.Sleep(10 * time.Millisecond)
	}
	if lost := after[0].Lost.Packets - before[0].Lost.Packets; lost < n+1 || after[0].Out != before[0].Out {
		t.Errorf("%d lost, want %d or more; out %+v, was %+v", lost, n+1, after[0].Out, before[0].Out)
	}
	balanced(t, after)
}

// TestUp proves that a line that is down carries nothing, that both ends see it is down, and that
// it carries again once it is up.
func TestUp(t *testing.T) {
	w := newWire(t, topology.Impairment{Delay: ms(1)}, Options{})
	c := w.echo(t, w.b.ip4)
	fastest(t, c, 64)
	if err := w.line.Up(false); err != nil {
		t.Fatal(err)
	}
	if _, ok := roundTrip(t, c, 64, 200*time.Millisecond); ok {
		t.Error("an echo came over a line that is down")
	}
	for _, s := range []*site{w.a, w.b} {
		s.within(func() {
			link, err := netlink.LinkByName(testDevice)
			if err != nil || link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
				t.Errorf("the device still has a carrier (%v)", err)
			}
		})
	}
	if err := w.line.Up(true); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(reply)
	for {
		if _, ok := roundTrip(t, c, 64, 200*time.Millisecond); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no echo after the line was up again")
		}
	}
	balanced(t, w.line.Stats())
}

// TestReattach proves that a persistent device stays, with its addresses, when its line is closed;
// is refused to a second holder while it is held; and carries again in another line.
func TestReattach(t *testing.T) {
	w := newWire(t, topology.Impairment{}, Options{})
	c := w.echo(t, w.b.ip4)
	fastest(t, c, 64)
	w.a.within(func() {
		if fd, err := OpenTap(testDevice, true); err == nil {
			unix.Close(fd)
			t.Error("a held device could be opened")
		} else if !strings.Contains(err.Error(), "another process holds it") {
			t.Error(err)
		}
	})
	if _, err := w.line.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*site{w.a, w.b} {
		s.within(func() {
			var err error
			if s.fd, err = OpenTap(testDevice, true); err != nil {
				t.Error(err)
			}
		})
	}
	e, err := NewEngine(0)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	line, err := e.Add(w.a.fd, w.b.fd, topology.Impairment{}, topology.Impairment{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fastest(t, c, 64)
	if s := line.Stats(); s[0].Overrun != 0 {
		t.Errorf("drops from before the line was there count: %+v", s[0])
	}
}
