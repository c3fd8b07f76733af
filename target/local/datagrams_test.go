package local

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/test/until"
)

// echoAt answers each datagram that comes to an address with who has sent it, and what.
func echoAt(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, mostDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s", from, buffer[:n]), from)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func openDatagrams(t *testing.T, at string, to netip.AddrPort) *datagrams {
	t.Helper()
	d, err := newClients(mostClients).listen(netip.MustParseAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	d.dial = func(first []byte) (*net.UDPConn, error) { return sendFirst(to, first) }
	return d
}

func (d *datagrams) count() int {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	return len(d.clients)
}

// udpClient asks a port, and says what the answer is and from where it comes.
type udpClient struct{ *net.UDPConn }

func newUDPClient(t *testing.T) udpClient {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return udpClient{conn}
}

func (c udpClient) ask(t *testing.T, to netip.AddrPort, what string) (node, said string, from netip.AddrPort) {
	t.Helper()
	buffer := make([]byte, mostDatagram)
	if _, err := c.WriteToUDPAddrPort([]byte(what), to); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, from, err := c.ReadFromUDPAddrPort(buffer)
	if err != nil {
		t.Fatalf("%s is not answered: %v", what, err)
	}
	_, _ = fmt.Sscan(string(buffer[:n]), &node, &said)
	return node, said, from
}

// TestDatagrams proves that each client of a UDP port gets the answers to what it has asked, from
// the address that it has asked, by a socket that stays its own until it is idle or forgotten; that
// clients beyond the limit take the place of who was unused for the longest; and that a closed port
// keeps nothing.
func TestDatagrams(t *testing.T) {
	d := openDatagrams(t, "0.0.0.0:0", echoAt(t, "127.0.0.1:0"))
	d.all.most = 3
	go d.serve()
	port := d.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.7"), port)
	a, b := newUDPClient(t), newUDPClient(t)
	first, said, from := a.ask(t, at, "one")
	if said != "one" || from != at {
		t.Errorf("asked at %s, %s answers %q", at, from, said)
	}
	other, said, _ := b.ask(t, at, "two")
	if said != "two" || other == first {
		t.Errorf("two clients are %s and %s; the second one is told %q", first, other, said)
	}
	if again, _, _ := a.ask(t, at, "three"); again != first {
		t.Errorf("a client is %s, and then %s", first, again)
	}
	d.forget()
	if again, _, _ := a.ask(t, at, "four"); again == first {
		t.Error("a client that was forgotten is still the same")
	}
	same, _, _ := a.ask(t, at, "five")
	for range 20 {
		newUDPClient(t).ask(t, at, "more")
		if again, _, _ := a.ask(t, at, "kept"); again != same {
			t.Error("a client that is used makes room for others")
		}
	}
	if n := d.count(); n != 3 {
		t.Errorf("%d clients are kept, and may be 3", n)
	}
	d.Close()
	if n := d.count(); n != 0 {
		t.Errorf("a closed port keeps %d clients", n)
	}
}

// TestDatagramsIdle proves that a client is kept as long as it sends or is answered, and not
// longer.
func TestDatagramsIdle(t *testing.T) {
	d := openDatagrams(t, "[::1]:0", echoAt(t, "127.0.0.1:0"))
	d.keep = 300 * time.Millisecond
	go d.serve()
	conn, err := net.Dial("udp6", d.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 100)
	if _, err := conn.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buffer); err != nil || n == 0 {
		t.Fatal("no answer by IPv6: ", err)
	}
	if d.count() != 1 {
		t.Error("a client is not kept")
	}
	until.True(t, "an idle client is forgotten", func() bool { return d.count() == 0 })
}

// TestDatagramsRefused proves that a datagram to an address where nobody listens is known to be
// lost at once, so that another one can be tried; and that a client whose program has ended reaches
// the next one.
func TestDatagramsRefused(t *testing.T) {
	none := netip.MustParseAddrPort("127.0.0.1:9")
	if conn, err := sendFirst(none, []byte("x")); err == nil {
		conn.Close()
		t.Error("nobody listens at ", none)
	}
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	to := server.LocalAddr().(*net.UDPAddr).AddrPort()
	d := openDatagrams(t, "127.0.0.1:0", to)
	d.rest = 0
	go d.serve()
	at := d.LocalAddr().(*net.UDPAddr).AddrPort()
	a := newUDPClient(t)
	if _, err := a.WriteToUDPAddrPort([]byte("lost"), at); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the client is known", func() bool { return d.count() == 1 })
	server.Close()
	until.True(t, "it is forgotten once nobody listens", func() bool {
		_, _ = a.WriteToUDPAddrPort([]byte("lost"), at)
		return d.count() == 0
	})
	echoAt(t, to.String())
	until.True(t, "the next program answers", func() bool { // perhaps first what was still under way
		_, said, _ := a.ask(t, at, "again")
		return said == "again"
	})
}

// TestDatagramsRest proves that a client that nobody takes a datagram of is not connected again for
// a while, and is then.
func TestDatagramsRest(t *testing.T) {
	d := openDatagrams(t, "127.0.0.1:0", netip.AddrPort{})
	var dialled atomic.Int32
	d.dial = func([]byte) (*net.UDPConn, error) {
		dialled.Add(1)
		return nil, unix.ECONNREFUSED
	}
	c := client{from: netip.MustParseAddrPort("192.0.2.1:1")}
	for range 100 {
		d.pass(c, []byte("x"))
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("100 datagrams to nobody: connected %d times", n)
	}
	until.True(t, "it rests no longer", func() bool { return d.count() == 0 })
	if d.pass(c, []byte("x")); dialled.Load() != 2 {
		t.Error("a client that has rested is not connected")
	}
}

// TestDatagramsOfLab proves that all ports of a lab have one bound for their clients, and that a
// client of one makes room for those of another.
func TestDatagramsOfLab(t *testing.T) {
	to := echoAt(t, "127.0.0.1:0")
	a, b := openDatagrams(t, "127.0.0.1:0", to), openDatagrams(t, "127.0.0.1:0", to)
	a.all.most = 3
	b.all = a.all
	for i := range 10 {
		c := client{from: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(i+1))}
		if a.pass(c, []byte("x")); a.count() > 3 {
			t.Fatalf("%d clients, and there may be 3", a.count())
		}
	}
	b.pass(client{from: netip.MustParseAddrPort("127.0.0.1:1")}, []byte("x"))
	if a.count() != 2 || b.count() != 1 {
		t.Errorf("two ports have %d and %d clients, want 2 and 1", a.count(), b.count())
	}
}

// TestDatagramsForgotten proves that a connection to the old node that is under way while the port
// is led to another one is closed, and not kept.
func TestDatagramsForgotten(t *testing.T) {
	to := echoAt(t, "127.0.0.1:0")
	d := openDatagrams(t, "127.0.0.1:0", to)
	var conn *net.UDPConn
	d.dial = func(first []byte) (_ *net.UDPConn, err error) {
		conn, err = sendFirst(to, first)
		d.forget()
		return conn, err
	}
	d.pass(client{from: netip.MustParseAddrPort("127.0.0.1:1")}, []byte("x"))
	if d.count() != 0 {
		t.Error("a connection to the old node is kept")
	}
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("a connection to the old node stays open")
	}
}
