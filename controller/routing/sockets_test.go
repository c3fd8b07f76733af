package routing

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := app.DialTCP(ctx, 1, netip.Addr{}, netip.MustParseAddrPort("[::ffff:10.0.2.9]:80"))
		ended <- err
	}()
	asked := false
	for deadline := time.Now().Add(time.Minute); !asked && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		asked = slices.ContainsFunc(s.take(), func(f []byte) bool {
			m, ok := parseARP(f[14:])
			return ok && m.tpa == netip.MustParseAddr("10.0.2.9")
		})
	}
	cancel()
	if err := <-ended; !asked {
		t.Errorf("nobody asks who has the address: %v", err)
	}
	if _, err := app.DialTCP(t.Context(), 1, netip.Addr{}, netip.AddrPort{}); err == nil {
		t.Error("a connection to no address")
	}
}

// Proves that sockets at link-local addresses go on while the configuration changes, and may be
// used while interfaces come and go.
func TestLinkLocalSocketsWhileConfigured(t *testing.T) {
	for _, renamed := range []bool{false, true} {
		app, _, _ := single(t)
		first := app.config
		config := func(changed bool) Config { // a new one: it is the app's from then on
			c := first
			c.Routers = slices.Clone(c.Routers)
			c.Routers[0].Interfaces = slices.Clone(c.Routers[0].Interfaces)
			for i := range c.Routers[0].Interfaces {
				if f := &c.Routers[0].Interfaces[i]; changed {
					if f.MTU = 1400; renamed {
						f.Name += "0"
					}
				}
			}
			return c
		}
		c, err := app.ListenUDP(1, netip.AddrPortFrom(netip.Addr{}, 7))
		if err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		var stop atomic.Bool
		for _, zone := range []string{"1", "2"} {
			done.Go(func() {
				for to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("[fe80::9%" + zone + "]:7")); !stop.Load(); {
					if _, err := c.WriteTo([]byte("walnut"), to); err != nil && !renamed {
						t.Errorf("zone %s: %v", zone, err)
						return
					}
				}
			})
		}
		for i := range 300 {
			if err := app.Configure(config(i%2 == 1)); err != nil {
				t.Fatal(err)
			}
		}
		stop.Store(true)
		done.Wait()
		c.Close()
	}
}

// Proves that a router's link-local address answers those on the link who speak to it by another
// address, as a host does whose own link-local one is tentative; and nobody from elsewhere.
func TestLinkLocalAnswersOtherAddresses(t *testing.T) {
	app, s, sw := single(t)
	give := func(packet []byte) {
		receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, openflow.EthTypeIPv6, packet))
	}
	host, answered := netip.MustParseAddr("fd00:1::9"), false
	for deadline := time.Now().Add(time.Minute); !answered; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is answered")
		}
		for _, from := range []string{"fd00:9::9", host.String()} { // the first is not on the link
			give(ping(from, linkLocal(router1).String())) // again, as the router asks who has an address for a while only
		}
		for _, f := range s.take() {
			p, ok := parseIP(etherTypeOf(f[14:]), f[14:])
			switch asked, isNDP := parseNDP(p.data); {
			case !ok:
			case isNDP && asked.kind == neighborSolicitation && asked.target == host:
				told := ndp{kind: neighborAdvertisement, target: host, mac: host1, src: host, dst: asked.src, solicited: true}
				give(told.bytes())
			case p.data[40] == echoReply6 && p.src == linkLocal(router1) && p.dst == host:
				answered = true
			default:
				t.Fatalf("from %v to %v it sends %x", p.src, p.dst, p.data)
			}
		}
	}
}
