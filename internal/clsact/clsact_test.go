package clsact_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/internal/segment"
)

var (
	client    = [6]byte{2, 0, 0, 0xfe, 0, 0xa7} // a word that is negative as a number with a sign
	server    = netip.MustParseAddr("169.254.255.67")
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// ip4 is an IPv4 packet; options are of its header, whole words, fragment is its flags and offset.
func ip4(protocol byte, fragment uint16, options, payload []byte) []byte {
	b := []byte{0x45 + byte(len(options)/4), 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(options)+len(payload)))
	binary.BigEndian.PutUint16(b[6:], fragment)
	return slices.Concat(b, options, payload)
}

// udp is UDP to a port, which carries what is a DHCP request of a client, as far as that matters.
func udp(port uint16, of [6]byte) []byte {
	b := make([]byte, 8+240)
	binary.BigEndian.PutUint16(b, 68)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	copy(b[8+28:], of[:])
	return b
}

func arp(target netip.Addr) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, client[:], []byte{10, 0, 0, 1}, make([]byte, 6), target.AsSlice())
}

// TestRedirectAnswered proves that of what comes in at a device only the client's DHCP requests and
// what asks for the server by ARP does not leave by the other, neither whole nor so that it could
// be put together; that all else does, what is similar included; and that Redirect keeps nothing.
func TestRedirectAnswered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	other, tcp, head := client, udp(67, client), udp(67, client)[:40]
	other[5]++
	first := client
	first[0] += 4
	const moreFragments, second = 0x2000, 1
	cases := []struct {
		name  string
		vlan  uint16
		kind  uint16
		data  []byte
		stays bool
	}{
		{"a request", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, nil, udp(67, client)), true},
		{"with options in its header", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, make([]byte, 40), udp(67, client)), true},
		{"that is not to be cut", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0x4000, nil, udp(67, client)), true},
		{"the first of its fragments", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, moreFragments, nil, udp(67, client)), true},
		{"one that is none but begins so", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, second, nil, udp(67, client)), false},
		{"in a VLAN", 7, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, nil, udp(67, client)), false},
		{"of another client", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, nil, udp(67, other)), false},
		{"of one more", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, nil, udp(67, first)), false},
		{"cut", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, nil, udp(67, client)[:40]), false},
		{"to a client", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, nil, udp(68, client)), false},
		{"whose options look like it", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_UDP, 0, head, udp(53, client)), false},
		{"over another protocol", 0, unix.ETH_P_IP, ip4(unix.IPPROTO_TCP, 0, nil, tcp), false},
		{"IPv6", 0, unix.ETH_P_IPV6, ip4(unix.IPPROTO_UDP, 0, nil, udp(67, client)), false},
		{"ARP for the server", 0, unix.ETH_P_ARP, arp(server), true},
		{"ARP for another", 0, unix.ETH_P_ARP, arp(server.Next()), false},
		{"ARP in a VLAN", 7, unix.ETH_P_ARP, arp(server), false},
		{"nothing", 0, unix.ETH_P_IP, nil, false},
	}
	for _, answered := range []bool{true, false} {
		guest, host, far := insidetest.New(t), insidetest.New(t), insidetest.New(t)
		insidetest.Join(t, guest, "eth0", host, "tap")
		insidetest.Join(t, far, "eth0", host, "link")
		insidetest.Do(t, host, func() error {
			tap, err := netlink.LinkByName("tap")
			if err != nil {
				return err
			}
			link, err := netlink.LinkByName("link")
			if err != nil {
				return err
			}
			if !answered {
				return clsact.Redirect(tap.Attrs().Index, link.Attrs().Index)
			}
			return clsact.RedirectAnswered(tap.Attrs().Index, link.Attrs().Index, client, server)
		})
		open := func(ns *os.File) (s *segment.Segment) {
			insidetest.Do(t, ns, func() (err error) {
				s, err = segment.Open("eth0")
				return err
			})
			t.Cleanup(s.Close)
			return s
		}
		from, to := open(guest), open(far)
		const last = "that was all"
		for i, c := range cases {
			// The number of the case is behind what is looked at.
			data := append(append(slices.Clone(c.data), make([]byte, max(0, 46-len(c.data)))...), byte(i), 0xca, 0x5e)
			if err := from.Send(broadcast, c.vlan, c.kind, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := from.Send(broadcast, segment.Untagged, segment.Calling, []byte(last)); err != nil {
			t.Fatal(err)
		}
		came := make([]int, len(cases))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := to.Watch(ctx, func(data []byte) {
			if bytes.HasPrefix(data, []byte(last)) {
				cancel()
			} else if n := len(data); n > 3 && data[n-2] == 0xca && data[n-1] == 0x5e {
				came[data[n-3]]++
			}
		})
		if err != nil || ctx.Err() != context.Canceled {
			t.Fatalf("the last did not come: %v, %v", err, ctx.Err())
		}
		for i, c := range cases {
			if want := c.stays && answered; (came[i] == 0) != want || came[i] > 1 {
				t.Errorf("answered %v, %s: came %d times", answered, c.name, came[i])
			}
		}
	}
}
