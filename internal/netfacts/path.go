package netfacts

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Main is the routing table that the kernel uses unless a rule says otherwise.
const Main = "main"

// Path is a route.
type Path struct {
	Table   string
	To      netip.Prefix
	Metric  uint32
	Type    string // "" is an ordinary one; else blackhole, unreachable, …
	Via     []netip.Addr
	Devices []string
	Rest    string
}

// Lost reports whether the route drops packets.
func (p Path) Lost() bool {
	return p.Type == "blackhole" || p.Type == "unreachable" || p.Type == "prohibit"
}

// hop adds a next hop.
func (p *Path) hop(a map[uint16][]byte, device string) {
	if via, ok := netip.AddrFromSlice(a[unix.RTA_GATEWAY]); ok {
		p.Via = append(p.Via, via)
	} else if v := a[unix.RTA_VIA]; len(v) > 2 { // of another family, which comes before it
		if via, ok := netip.AddrFromSlice(v[2:]); ok {
			p.Via = append(p.Via, via)
		}
	}
	if device != "" {
		p.Devices = append(p.Devices, device)
	}
	if encap := a[unix.RTA_ENCAP_TYPE]; len(encap) == 2 {
		p.Rest += " encap"
		if binary.NativeEndian.Uint16(encap) == nl.LWTUNNEL_ENCAP_MPLS {
			p.Rest += " mpls " + labelStack(attributes(a[unix.RTA_ENCAP], 0)[nl.MPLS_IPTUNNEL_DST])
		}
	}
}

// labelStack formats a stack of labels in the syntax of ip-route(8).
func labelStack(b []byte) string {
	out := []string{}
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, strconv.Itoa(int(binary.BigEndian.Uint32(b)>>nl.MPLS_LS_LABEL_SHIFT)))
	}
	return strings.Join(out, "/")
}

// fact converts a route to a fact.
func (p Path) fact() (Key, string) {
	k := Key{Route, p.Table, p.To.String()}
	if p.Metric != 0 {
		k.Name += fmt.Sprintf(" metric %d", p.Metric)
	}
	return k, p.words()
}

func (p Path) words() string {
	out := []string{}
	if p.Type != "" {
		out = append(out, p.Type)
	}
	for _, v := range p.Via {
		out = append(out, "via "+v.String())
	}
	for _, d := range p.Devices {
		out = append(out, "dev "+d)
	}
	return strings.Join(out, " ") + p.Rest
}

// Paths returns the routes of a fact.
func Paths(k Key, value string) (out []Path) {
	if value == "" {
		return nil
	}
	for _, one := range strings.Split(value, twice) {
		p := Path{Table: k.Device}
		to, metric, _ := strings.Cut(k.Name, " metric ")
		p.To, _ = netip.ParsePrefix(to)
		fmt.Sscan(metric, &p.Metric)
		words := strings.Fields(one)
		for i, w := range words {
			switch {
			case i+1 < len(words) && w == "via":
				if a, err := netip.ParseAddr(words[i+1]); err == nil {
					p.Via = append(p.Via, a)
				}
			case i+1 < len(words) && w == "dev":
				p.Devices = append(p.Devices, words[i+1])
			case i == 0:
				p.Type = w
			}
		}
		out = append(out, p)
	}
	return out
}
