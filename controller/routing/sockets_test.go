package routing

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Proves that what has sockets on a router hears that the router is gone, or that the app has
// ended, and may close them then and later; that there are no new ones; and that a router that is
// gone keeps no stack.
func TestSocketsOfGoneRouters(t *testing.T) {
	for _, way := range []string{"configured away", "ended"} {
		app, _, _ := single(t)
		n := app.node(1)
		l, err := app.ListenTCP(1, netip.AddrPortFrom(netip.Addr{}, 7))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		h := n.host
		if way == "ended" {
			app.Stop()
		} else if err := app.Configure(Config{}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: a connection to a router that is gone", way)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the listener does not end", way)
		}
		l.Close()
		h.drop() // as after a while
		if n.host != nil {
			t.Errorf("%s: the router has its stack still", way)
		}
		if _, err := app.ListenTCP(1, netip.AddrPortFrom(netip.Addr{}, 7)); err == nil {
			t.Errorf("%s: a router that is gone has a new socket", way)
		}
	}
}

// Proves that an address of IPv4 is one in the form of IPv6 too, and that none is an error.
func TestDialsMapped(t *testing.T) {
	app, s, _ := single(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := app.DialTCP(ctx, 1, netip.Addr{}, netip.MustParseAddrPort("[::ffff:10.0.2.9]:80"))
	asked := slices.ContainsFunc(s.take(), func(f []byte) bool {
		m, is := parseARP(f[14:])
		return is && m.tpa == netip.MustParseAddr("10.0.2.9")
	})
	if !asked {
		t.Errorf("nobody asks who has the address: %v", err)
	}
	if _, err := app.DialTCP(t.Context(), 1, netip.Addr{}, netip.AddrPort{}); err == nil {
		t.Error("a connection to no address")
	}
}
