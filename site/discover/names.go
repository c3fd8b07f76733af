package discover

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"

	"trivet.dev/trivet/internal/segment"
)

// mdnsTime is how long mDNS answers are waited for.
const mdnsTime = time.Second

// askNames queries the names of all devices at once by mDNS. The source port is not 5353, so that
// answers are unicast (RFC 6762, section 6.7).
func askNames(ctx context.Context, nic string, devices []*Device) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	dev, err := net.InterfaceByName(nic)
	own := segment.Addresses(nic)
	if err != nil || len(own) == 0 {
		return out
	}
	conn, err := net.ListenPacket("udp4", netip.AddrPortFrom(own[0].Addr(), 0).String())
	if err != nil {
		return out
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p := ipv4.NewPacketConn(conn)
	if p.SetMulticastInterface(dev) != nil || p.SetMulticastTTL(255) != nil {
		return out
	}
	for _, d := range devices {
		if q, err := nameQuestion(d.Address); err == nil {
			_, _ = conn.WriteTo(q, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353})
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(mdnsTime))
	for b := make([]byte, 9000); ; { // RFC 6762, section 17
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return out
		}
		by, _ := netip.AddrFromSlice(from.(*net.UDPAddr).IP.To4())
		if name := nameAnswer(b[:n], by); name != "" && out[by] == "" { // a device can only name itself
			out[by] = name
		}
	}
}

// arpa returns the domain name for the reverse lookup of an address (RFC 1035, section 3.5).
func arpa(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0])
}

func nameQuestion(a netip.Addr) ([]byte, error) {
	name, err := dnsmessage.NewName(arpa(a))
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypePTR,
		Class: dnsmessage.ClassINET}}}
	return m.Pack()
}

// nameAnswer reads the name of an address from an mDNS answer; empty: it has none.
func nameAnswer(b []byte, a netip.Addr) string {
	var p dnsmessage.Parser
	if h, err := p.Start(b); err != nil || !h.Response || !a.Is4() || p.SkipAllQuestions() != nil {
		return ""
	}
	for range 64 {
		h, err := p.AnswerHeader()
		if err != nil {
			return ""
		}
		if h.Type != dnsmessage.TypePTR || !strings.EqualFold(h.Name.String(), arpa(a)) {
			if p.SkipAnswer() != nil {
				return ""
			}
			continue
		}
		r, err := p.PTRResource()
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(strings.TrimSuffix(r.PTR.String(), "."), ".local")
	}
	return ""
}

// reverse looks an address up with the machine's resolver, which may know devices that a local DHCP
// server has configured.
func reverse(ctx context.Context, a netip.Addr) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	names, err := net.DefaultResolver.LookupAddr(ctx, a.String())
	if err != nil || len(names) == 0 {
		return ""
	}
	return strings.TrimSuffix(names[0], ".")
}
