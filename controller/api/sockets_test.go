package api

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// linkLocalOf is the address that follows from an interface's MAC (RFC 4291, appendix A).
func linkLocalOf(m openflow.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// Proves that routers reach each other by link-local addresses, with TCP and UDP, from sockets at
// such an address and from those at all addresses; that a connection, and who has sent a datagram,
// tell the interface as the zone, by which an answer goes back; that all of it goes on over a
// change of the configuration; and what is refused: no zone, that of no interface, one of an
// address that needs none, two ends at different links.
func TestLinkLocalSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, err := topology.Generate("ring,3", topology.GenerateOptions{Nodes: topology.Router})
		if err != nil {
			t.Fatal(err)
		}
		top.IPv6 = topology.IPv6Assigned
		b := newFixtureOf(t, top, "")
		var ends [2]*topology.Endpoint // of the link r1 – r2
		for _, l := range b.topology.Links {
			for i := range l.Ends {
				if l.Ends[i].Node == "r1" && l.Ends[1-i].Node == "r2" {
					ends = [2]*topology.Endpoint{&l.Ends[i], &l.Ends[1-i]}
				}
			}
		}
		r := b.c.Routing
		dpid := func(name string) uint64 { return uint64(b.topology.Node(name).DPID) }
		address := func(i int) netip.Addr { return linkLocalOf(openflow.MAC(ends[i].MAC)) }
		at := func(i int, zone string, port uint16) netip.AddrPort {
			return netip.AddrPortFrom(address(i).WithZone(zone), port)
		}
		all := netip.AddrPort{}
		inTime, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for i, listen := range []netip.AddrPort{at(1, ends[1].Interface, 179), netip.AddrPortFrom(all.Addr(), 180)} {
			l, err := r.ListenTCP(dpid("r2"), listen)
			b.must(err)
			from, to := netip.Addr{}, at(1, ends[0].Interface, listen.Port())
			if i > 0 {
				from = address(0).WithZone(strconv.Itoa(int(b.topology.Node("r1").OpenFlowPort(*ends[0])))) // the port's number, too
			}
			c, err := r.DialTCP(inTime, dpid("r1"), from, to)
			b.must(err)
			s, err := l.Accept()
			b.must(err)
			for _, x := range []struct{ got, want string }{
				{c.RemoteAddr().String(), to.String()}, {c.LocalAddr().(*net.TCPAddr).Zone, ends[0].Interface},
				{s.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().String(), address(0).WithZone(ends[1].Interface).String()},
				{s.LocalAddr().String(), at(1, ends[1].Interface, listen.Port()).String()},
			} {
				if x.got != x.want {
					t.Errorf("an end is %s, want %s", x.got, x.want)
				}
			}
			b.must(b.c.Configure(b.topology))
			for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
				_, err = way[0].Write([]byte("hello"))
				b.must(err)
				got := make([]byte, 5)
				b.must(way[1].SetReadDeadline(time.Now().Add(time.Minute)))
				if _, err := io.ReadFull(way[1], got); err != nil || string(got) != "hello" {
					t.Errorf("%q came, %v", got, err)
				}
			}
			c.Close()
			s.Close()
			l.Close()
		}

		for _, listen := range []netip.AddrPort{at(1, ends[1].Interface, 521), netip.AddrPortFrom(all.Addr(), 522)} {
			server, err := r.ListenUDP(dpid("r2"), listen)
			b.must(err)
			client, err := r.ListenUDP(dpid("r1"), at(0, ends[0].Interface, 0))
			b.must(err)
			_, err = client.WriteTo([]byte("ask"), net.UDPAddrFromAddrPort(at(1, ends[0].Interface, listen.Port())))
			b.must(err)
			got := make([]byte, 10)
			b.must(server.SetReadDeadline(time.Now().Add(time.Minute)))
			n, from, err := server.ReadFrom(got)
			b.must(err)
			if u := from.(*net.UDPAddr); string(got[:n]) != "ask" || u.AddrPort().Addr() != address(0).WithZone(ends[1].Interface) {
				t.Errorf("%q came from %v", got[:n], from)
			}
			_, err = server.WriteTo([]byte("answer"), from)
			b.must(err)
			b.must(client.SetReadDeadline(time.Now().Add(time.Minute)))
			if n, from, err = client.ReadFrom(got); err != nil || string(got[:n]) != "answer" || from.(*net.UDPAddr).Zone != ends[0].Interface {
				t.Errorf("%q came from %v, %v", got[:n], from, err)
			}
			client.Close()
			server.Close()
		}

		for want, wrong := range map[string]netip.AddrPort{"no such interface": at(0, "", 9), "r1-eth9: router r1": at(0, "r1-eth9", 9),
			"only link-local addresses": netip.AddrPortFrom(netip.MustParseAddr("fd00::1%r1-eth0"), 9)} {
			if _, err := r.ListenTCP(dpid("r1"), wrong); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("listening at %v: %v, want %q", wrong, err, want)
			}
			if _, err := r.ListenUDP(dpid("r1"), wrong); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("listening at %v: %v, want %q", wrong, err, want)
			}
			if _, err := r.DialTCP(inTime, dpid("r1"), netip.Addr{}, wrong); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("dialling %v: %v, want %q", wrong, err, want)
			}
		}
		if _, err := r.DialTCP(inTime, dpid("r1"), b.host("h1").Addresses[0].Addr(), at(1, ends[0].Interface, 9)); err == nil || !strings.Contains(err.Error(), "not at one link") {
			t.Errorf("dialling from elsewhere: %v", err)
		}
	})
}

// neighborly is a protocol that has one route of IPv6, by a link-local neighbour.
type neighborly struct {
	dpid uint64
	l    routing.Learned
}

func (n *neighborly) Routes(dpid uint64) (out []routing.Learned) {
	if dpid == n.dpid {
		out = append(out, n.l)
	}
	return out
}
func (n *neighborly) RouteTo(dpid uint64, p netip.Prefix) (routing.Learned, bool) {
	return n.l, dpid == n.dpid && p == n.l.Prefix
}
func (n *neighborly) Networks() []netip.Prefix     { return []netip.Prefix{n.l.Prefix} }
func (*neighborly) Settled() bool                  { return true }
func (*neighborly) Receive(uint64, uint32, []byte) {}

// Proves that a route of a protocol leads to a link-local neighbour: a router of the controller at
// once, a host when it has answered for the address; and that a router may have such a neighbour at
// each of two ports by the same address.
func TestLinkLocalNextHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, err := topology.Generate("ring,3", topology.GenerateOptions{Nodes: topology.Router})
		if err != nil {
			t.Fatal(err)
		}
		top.IPv6 = topology.IPv6Assigned
		b := newFixtureOf(t, top, "")
		h1, r1 := b.host("h1"), b.topology.Node("r1")
		dpid := uint64(r1.DPID)
		for i, l := range b.topology.Links {
			other := 1
			if l.Ends[1].Node == "r1" {
				other = 0
			} else if l.Ends[0].Node != "r1" {
				continue
			}
			mine, peer := l.Ends[1-other], l.Ends[other]
			port := r1.OpenFlowPort(mine)
			prefix := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 15: 0, 2: byte(i)}), 64)
			via := linkLocalOf(openflow.MAC(peer.MAC))
			if peer.Node == "h1" {
				via = netip.MustParseAddr("fe80::9")
			}
			p := &neighborly{dpid, routing.Learned{Prefix: prefix, Metric: 3, Hops: []routing.LearnedHop{{Port: port, Via: via}}}}
			name := "p" + string(rune('a'+i))
			b.must(b.c.Routing.Speak(routing.Protocol{Name: name, Distance: 120, Speaker: p}))
			b.c.Routing.SetSpeakers(name, []uint64{dpid})
			b.wait("r1 has the route", func() bool {
				routes, err := b.Routes(ctx, "r1", prefix.String())
				b.must(err)
				return len(routes.Routes) == 1 && routes.Routes[0].Source == name && routes.Routes[0].Distance == 120 && routes.Routes[0].Hops[0].Via == via
			})
			entry := func() string {
				flows, err := b.Flows(ctx, "r1")
				b.must(err)
				for _, f := range flows.Flows {
					if strings.Contains(f.Match, "ipv6_dst="+prefix.String()) {
						return f.Actions
					}
				}
				return ""
			}
			if peer.Node != "h1" {
				b.wait("r1 forwards to the router", func() bool { return strings.Contains(entry(), openflow.MAC(peer.MAC).String()) })
				continue
			}
			b.wait("r1 asks by a packet", func() bool { return strings.Contains(entry(), "CONTROLLER") })
			src := h1.Addresses[1].Addr()
			packet := append([]byte{0x60, 0, 0, 0, 0, 8, 17, 64}, append(src.AsSlice(), prefix.Addr().Next().AsSlice()...)...)
			packet = append(packet, 0, 9, 0, 9, 0, 8, 0, 0)
			asked, comes := false, false
			b.wait("h1 is asked, and the packet comes", func() bool { // both again, as r1 asks for a while only
				b.send("h1", append(append(append(mine.MAC[:], h1.MAC[:]...), 0x86, 0xdd), packet...))
				for len(b.arrived) > 0 {
					switch a := <-b.arrived; {
					case a.host != "h1" || len(a.frame) < 62:
					case len(a.frame) >= 78 && a.frame[54] == 135 && netip.AddrFrom16([16]byte(a.frame[62:78])) == via:
						asked = true
						b.send("h1", advertisement(h1.MAC, openflow.MAC(mine.MAC), via, linkLocalOf(openflow.MAC(mine.MAC))))
					case a.frame[20] == 17 && a.frame[21] == 63:
						comes = true
					}
				}
				return comes
			})
			if !asked {
				t.Error("the packet comes before h1 has answered for the address")
			}
			b.wait("r1 forwards to the host", func() bool { return strings.Contains(entry(), h1.MAC.String()) })
		}
	})
}

// advertisement is a neighbour advertisement for an address, with its MAC (RFC 4861, section 4.4).
func advertisement(from, to openflow.MAC, who, asked netip.Addr) []byte {
	b := make([]byte, 32)
	b[0], b[4], b[24], b[25] = 136, 0x60, 2, 1
	copy(b[8:], who.AsSlice())
	copy(b[26:], from[:])
	pseudo := append(append(append([]byte{}, who.AsSlice()...), asked.AsSlice()...), 0, 0, 0, 32, 0, 0, 0, 58)
	sum := checksum(append(pseudo, b...))
	b[2], b[3] = byte(sum>>8), byte(sum)
	packet := append([]byte{0x60, 0, 0, 0, 0, 32, 58, 255}, append(who.AsSlice(), asked.AsSlice()...)...)
	return append(append(append(append(append([]byte{}, to[:]...), from[:]...), 0x86, 0xdd), packet...), b...)
}
