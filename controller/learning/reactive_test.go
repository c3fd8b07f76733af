package learning

import (
	"encoding/hex"
	"strings"
	"testing"

	"trivet.dev/trivet/controller"
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
