package routing

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/internal/radvert"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// ping is an echo request.
func ping(from, to string) []byte {
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	if !src.Is4() {
		return ip6(src, dst, openflow.IPProtoICMPv6, 64, []byte{echoRequest6, 0, 0, 0, 1, 2, 3, 4, 5})
	}
	b := []byte{echoRequest4, 0, 0, 0, 1, 2, 3, 4, 5}
	binary.BigEndian.PutUint16(b[2:], ^checksum.Checksum(b, 0))
	return ip4(src, dst, openflow.IPProtoICMPv4, 64, b)
}

// Proves that a router answers pings to all nodes, to all routers and to its link-local address by
// an address of the interface that they came by, to the MAC that they came from; and no others that
// are not for it.
func TestPingsOfGroups(t *testing.T) {
	app, s, sw := single(t)
	own := linkLocal(router1).String()
	for _, c := range []struct{ from, to, answer string }{
		{"10.0.1.9", "224.0.0.1", "10.0.1.1"},
		{"10.0.1.9", "224.0.0.2", "10.0.1.1"},
		{"10.0.1.9", "224.0.0.3", ""},
		{"10.9.9.9", "224.0.0.1", ""}, // nobody there has that address
		{"10.0.1.1", "224.0.0.1", ""}, // our own
		{"fd00:1::9", "ff02::1", "fd00:1::1"},
		{"fd00:1::9", "ff02::2", "fd00:1::1"},
		{"fe80::9", "ff02::2", own},
		{"fe80::9", own, own},
		{"fe80::9", linkLocal(router2).String(), ""},
		{"fe80::9", "ff02::3", ""},
	} {
		packet := ping(c.from, c.to)
		receive(app, sw, 1, openflow.ReasonAction, frame(multicastMAC(netip.MustParseAddr(c.to)), host1, etherTypeOf(packet), packet))
		got := s.take()
		if c.answer == "" {
			if len(got) != 0 {
				t.Errorf("%s, a ping from %s, is answered by %x", c.to, c.from, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%s, a ping from %s, has %d answers", c.to, c.from, len(got))
			continue
		}
		b := got[0][14:]
		p, ok := parseIP(etherTypeOf(b), b)
		if !ok || p.src.String() != c.answer || p.dst.String() != c.from || openflow.MAC(got[0][:6]) != host1 || openflow.MAC(got[0][6:12]) != router1 {
			t.Errorf("%s, a ping from %s, is answered by %x", c.to, c.from, got[0])
			continue
		}
		if p.v4 && (checksum.Checksum(b[20:], 0) != 0xffff || b[20] != echoReply4 || b[28] != 5) ||
			!p.v4 && (icmp6Checksum(b[:40], b[40:]) != 0 || b[40] != echoReply6 || b[48] != 5) {
			t.Errorf("%s: the answer's message is %x", c.to, b)
		}
	}
}

// Proves that a router answers solicitations that are right (RFC 4861, sections 6.1.1 and 6.2.6):
// with the interface's prefix, which no address is to be made of, to the one who asks; to all where
// that one has no address, once in three seconds.
func TestRouterAdvertisement(t *testing.T) {
	app, s, sw := single(t)
	allRouters := netip.MustParseAddr("ff02::2")
	option := append([]byte{1, 1}, host1[:]...)
	ask := func(from string, hops, code uint8, options ...byte) [][]byte {
		b := append([]byte{routerSolicitation, code, 0, 0, 0, 0, 0, 0}, options...)
		packet := ip6(netip.MustParseAddr(from), allRouters, openflow.IPProtoICMPv6, hops, b)
		receive(app, sw, 1, openflow.ReasonAction, frame(multicastMAC(allRouters), host1, openflow.EthTypeIPv6, packet))
		return s.take()
	}
	for what, got := range map[string][][]byte{
		"hop limit 254":          ask("fe80::9", 254, 0, option...),
		"code 1":                 ask("fe80::9", 255, 1, option...),
		"an option of no length": ask("fe80::9", 255, 0, 1, 0, 0, 0, 0, 0, 0, 0),
		"an option that is cut":  ask("fe80::9", 255, 0, 1, 2, 0, 0, 0, 0, 0, 0),
		"a MAC, but no address":  ask("::", 255, 0, option...),
	} {
		if len(got) != 0 {
			t.Errorf("%s: %x", what, got)
		}
	}
	check := func(got [][]byte, to netip.Addr, mac openflow.MAC) {
		t.Helper()
		if len(got) != 1 {
			t.Fatalf("%d answers", len(got))
		}
		b := got[0][14:]
		ip := header.IPv6(b)
		if address(b[8:24]) != linkLocal(router1) || address(b[24:40]) != to || ip.HopLimit() != 255 || openflow.MAC(got[0][:6]) != mac ||
			icmp6Checksum(b[:40], b[40:]) != 0 || b[40] != routerAdvertisement {
			t.Fatalf("the answer is %x", got[0])
		}
		ra := header.NDPRouterAdvert(b[44:])
		options, err := ra.Options().Iter(true)
		if err != nil || ra.RouterLifetime() == 0 || ra.ManagedAddrConfFlag() || ra.OtherConfFlag() {
			t.Fatalf("%v: %x", err, b)
		}
		found := 0
		for {
			o, done, err := options.Next()
			if err != nil {
				t.Fatal(err)
			}
			if done {
				break
			}
			switch o := o.(type) {
			case header.NDPSourceLinkLayerAddressOption:
				if found++; string(o.EthernetAddress()) != string(router1[:]) {
					t.Errorf("the MAC is %v", o)
				}
			case header.NDPPrefixInformation:
				if found++; o.Subnet().String() != "fd00:1::/64" || !o.OnLinkFlag() || o.AutonomousAddressConfigurationFlag() {
					t.Errorf("the prefix is %v", o)
				}
			}
		}
		if found != 2 {
			t.Errorf("%d of the 2 options", found)
		}
	}
	check(ask("fe80::9", 255, 0, option...), netip.MustParseAddr("fe80::9"), host1)
	check(ask("fe80::9", 255, 0), netip.MustParseAddr("fe80::9"), host1)
	then := time.Now()
	check(ask("::", 255, 0), allNodes, multicastMAC(allNodes))
	if got := ask("::", 255, 0); len(got) != 0 && time.Since(then) < radvert.MinDelay {
		t.Errorf("at once the next to all: %x", got)
	}
}

// Proves that a router advertises itself at interfaces of which something is said, as soon as its
// switch is there and once more soon after, with prefixes of which addresses are to be made; that
// it answers solicitations with the same; and at others with none of these.
func TestConfiguredAdvertisement(t *testing.T) {
	t.Parallel()
	say := &topology.Advertisement{Interval: topology.Duration(4 * time.Second), Preference: topology.PreferenceHigh, Managed: true}
	app, s, sw := singleWith(t, func(c *Config) { c.Routers[0].Interfaces[0].RA = say })
	// The header of the message, without its checksum, and the flags of its prefix (RFC 4861,
	// sections 4.2 and 4.6.2): M and the preference 01, and L and A.
	right := func(b []byte) bool {
		return len(b) == 14+40+56 && b[54] == routerAdvertisement && b[59] == 0x80|0x08 && b[14+40+16+8+3] == 0xc0
	}
	all := 0
	until.True(t, "all nodes are told again", func() bool {
		for _, b := range s.take() {
			if openflow.MAC(b[:6]) != multicastMAC(allNodes) || !right(b) {
				t.Fatalf("sent is %x", b)
			}
			all++
		}
		return all >= 1
	})
	ask := func(port uint32, from string) [][]byte {
		packet := ip6(netip.MustParseAddr(from), netip.MustParseAddr("ff02::2"), openflow.IPProtoICMPv6, 255, []byte{routerSolicitation, 7: 0})
		receive(app, sw, port, openflow.ReasonAction, frame(multicastMAC(netip.MustParseAddr("ff02::2")), host1, openflow.EthTypeIPv6, packet))
		return s.take()
	}
	if got := ask(1, "fe80::9"); len(got) != 1 || !right(got[0]) || openflow.MAC(got[0][:6]) != host1 {
		t.Errorf("answered is %x", got)
	}
	s.take()
	port := openflow.Port{Number: 1, Name: "r1-eth0", Config: openflow.PortConfigDown}
	app.PortChanged(sw, openflow.PortModify, port)
	port.Config = 0
	app.PortChanged(sw, openflow.PortModify, port)
	until.True(t, "all nodes at a port that is up again are told", func() bool {
		got := s.take()
		return len(got) > 0 && openflow.MAC(got[0][:6]) == multicastMAC(allNodes) && right(got[0])
	})
	if got := ask(2, "fe80::9"); len(got) != 1 || right(got[0]) || got[0][14+40+16+8+3] != 0x80 {
		t.Errorf("answered at the other interface is %x", got)
	}
}
