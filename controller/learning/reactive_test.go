package learning

import (
	"encoding/hex"
	"strings"
	"testing"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

// Proves that the match of a flow has all that tells it from others, in terms that switches take,
// and what is cut short or a fragment has less.
func TestMatchFlow(t *testing.T) {
	const (
		macs = "0200000000020200000000 01"
		ipv4 = "4500 001c 0000 0000 40 %PROTO 0000 0a000001 0a000002"
		ipv6 = "60000000 0008 %PROTO 40 fd000000000000000000000000000001 fd000000000000000000000000000002"
	)
	ip := func(header, protocol string) string { return strings.Replace(header, "%PROTO", protocol, 1) }
	for what, c := range map[string]struct {
		etherType uint16
		frame     string
		fields    int
	}{
		"arp":                   {0x0806, "0806 0001 0800 06 04 0002 020000000001 0a000001 020000000002 0a000002", 8},
		"arp, cut short":        {0x0806, "0806 0001 0800 06 04 0002", 5},
		"icmp":                  {0x0800, "0800" + ip(ipv4, "01") + "0800 0000", 11},
		"tcp":                   {0x0800, "0800" + ip(ipv4, "06") + "1234 0050", 11},
		"udp":                   {0x0800, "0800" + ip(ipv4, "11") + "1234 0035", 11},
		"tcp, cut short":        {0x0800, "0800" + ip(ipv4, "06"), 9},
		"another protocol":      {0x0800, "0800" + ip(ipv4, "59") + "1234 0050", 9},
		"a first fragment":      {0x0800, "0800" + strings.Replace(ip(ipv4, "11"), "0000 0000", "0000 2000", 1) + "1234 0035", 9},
		"a last fragment":       {0x0800, "0800" + strings.Replace(ip(ipv4, "11"), "0000 0000", "0000 0010", 1) + "1234 0035", 9},
		"tcp of IPv6":           {0x86dd, "86dd" + ip(ipv6, "06") + "1234 0050", 10},
		"icmp of IPv6":          {0x86dd, "86dd" + ip(ipv6, "3a") + "8000 0000", 10},
		"an extension of IPv6":  {0x86dd, "86dd" + ip(ipv6, "00") + "3a00 0000", 7},
		"icmp in VLAN 5":        {0x0800, "8100 0005 0800" + ip(ipv4, "01") + "0800 0000", 11},
		"two tags":              {0x0800, "88a8 0005 8100 0006 0800" + ip(ipv4, "01") + "0800 0000", 4},
		"a frame with a length": {0x0026, "0026 4242 03", 4},
	} {
		data, err := hex.DecodeString(strings.ReplaceAll(macs+c.frame, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		p := &controller.Packet{PacketIn: &openflow.PacketIn{Data: data}, InPort: 7, EtherType: c.etherType,
			Dst: openflow.MAC(data[:6]), Src: openflow.MAC(data[6:12])}
		m := matchFlow(p)
		if m.Len() != c.fields {
			t.Errorf("%s: %d fields, want %d: %v", what, m.Len(), c.fields, m)
		}
		if field, missing := m.MissingPrerequisite(); missing {
			t.Errorf("%s: %v lacks what %v needs", what, m, field)
		}
	}
}

// Proves that what is flooded takes a tree: of a ring, of parallel links and of switches that two
// ports of a foreign network join the ends of one link are left out; and that a datapath of another
// app closes no loop.
func TestReactiveTree(t *testing.T) {
	link := func(from uint64, fromPort uint32, to uint64, toPort uint32) []discovery.Link {
		return []discovery.Link{{From: from, FromPort: fromPort, To: to, ToPort: toPort}, {From: to, FromPort: toPort, To: from, ToPort: fromPort}}
	}
	join := func(lists ...[]discovery.Link) (out []discovery.Link) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	router := func(dpid uint64) bool { return dpid < 90 }
	for what, c := range map[string]struct {
		links []discovery.Link
		want  []end
	}{
		"a line":                           {join(link(1, 2, 2, 1), link(2, 2, 3, 1)), nil},
		"a ring":                           {join(link(1, 2, 2, 1), link(2, 2, 3, 1), link(3, 2, 1, 1)), []end{{2, 2}, {3, 1}}},
		"parallel links":                   {join(link(1, 1, 2, 1), link(1, 2, 2, 2)), []end{{1, 2}, {2, 2}}},
		"a cable from a switch to itself":  {link(1, 1, 1, 2), []end{{1, 1}, {1, 2}}},
		"two ports at one foreign network": {join(link(1, 1, 2, 1), link(1, 2, 2, 1)), []end{{1, 2}}},
		"a router between":                 {join(link(1, 1, 90, 1), link(2, 1, 90, 2), link(1, 2, 2, 2)), nil},
	} {
		a := NewReactive(discovery.New(), router)
		got := a.outside(c.links)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v are closed, want %v", what, got, c.want)
		}
		for _, e := range c.want {
			if !got[e] {
				t.Errorf("%s: %v are closed, want %v", what, got, c.want)
			}
		}
	}
}
