package netfacts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Of linux/if_link.h and linux/rtnetlink.h, where package unix lacks them.
const (
	filterSkipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS
	inetConf        = 1      // IFLA_INET_CONF
	inet6Conf       = 2      // IFLA_INET6_CONF
	xdpAttached     = 2      // IFLA_XDP_ATTACHED
	addressProto    = 11     // IFA_PROTO
	fromRA, fromLL  = 2, 3   // IFAPROT_KERNEL_RA, IFAPROT_KERNEL_LL
)

// reader reads one namespace.
type reader struct {
	*kernel
	proc  int
	facts Facts
	names map[uint32]string // of devices, by index
	order []uint32          // their indexes
}

// Read reads the namespace of the calling thread. proc is an open root of a procfs, from which
// settings are read; 0: the machine's. With bare, devices' own settings are not read: they only
// forward.
func Read(proc int, bare bool) (Facts, error) {
	var err error
	for range 5 { // if something changes all the time, the last reading is used
		var f Facts
		if f, err = readOnce(proc, bare); err == nil {
			return f, nil
		}
		if !errors.Is(err, errMoved) {
			return nil, err
		}
	}
	return nil, err
}

func readOnce(proc int, bare bool) (Facts, error) {
	k, err := dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer k.close()
	r := &reader{kernel: k, proc: proc, facts: Facts{}, names: map[uint32]string{}}
	for _, part := range []struct {
		what string
		read func() error
	}{
		{"devices", func() error { return r.devices(bare) }},
		{"addresses", r.addresses},
		{"routes", r.routes},
		{"rules", r.rules},
		{"neighbours", r.neighbours},
		{"queueing disciplines", r.qdiscs},
		{"offloads", r.offloads},
		{"settings", r.settings},
		{"nftables", r.nftables},
		{"iptables", r.xtables},
	} {
		if err := part.read(); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return r.facts, nil
}

func (r *reader) devices(bare bool) error {
	ask := make([]byte, unix.SizeofIfInfomsg, unix.SizeofIfInfomsg+8)
	ask = binary.NativeEndian.AppendUint16(ask, 8)
	ask = binary.NativeEndian.AppendUint16(ask, unix.IFLA_EXT_MASK)
	ask = binary.NativeEndian.AppendUint32(ask, filterSkipStats)
	master := map[string]uint32{}
	err := r.each(unix.RTM_GETLINK, ask, func(m []byte) {
		if len(m) < unix.SizeofIfInfomsg {
			return
		}
		index, name, kind, mac := u32(m, 4), "", "", ""
		var own []byte
		var port map[uint16][]byte
		eachAttribute(m, unix.SizeofIfInfomsg, func(a uint16, v []byte) {
			switch a {
			case unix.IFLA_IFNAME:
				name = text(v)
			case unix.IFLA_ADDRESS:
				mac = net.HardwareAddr(v).String()
			case unix.IFLA_LINKINFO:
				info := attributes(v, 0)
				kind = text(info[unix.IFLA_INFO_KIND])
				if text(info[unix.IFLA_INFO_SLAVE_KIND]) == "bridge" {
					port = attributes(info[unix.IFLA_INFO_SLAVE_DATA], 0)
				}
			case unix.IFLA_AF_SPEC:
				own = v
			}
		})
		a := attributes(m, unix.SizeofIfInfomsg)
		r.names[index], r.order = name, append(r.order, index)
		r.facts.put(Device, name, "", kind)
		if mac != "" && kind != "sit" && name != "lo" {
			r.facts.put(MAC, name, "", mac)
		}
		r.facts.put(MTU, name, "", strconv.Itoa(int(u32(a[unix.IFLA_MTU], 0))))
		if mode := attributes(a[unix.IFLA_XDP], 0)[xdpAttached]; len(mode) == 1 && mode[0] != 0 {
			r.facts.put(XDP, name, "", "attached")
		}
		for _, p := range portSettings {
			if v := port[p.attribute]; len(v) == 1 && v[0] != p.usual {
				r.facts.put(Port, name, p.does, number(uint32(v[0])))
			}
		}
		if of := u32(a[unix.IFLA_MASTER], 0); of != 0 {
			master[name] = of
		}
		if !bare && name != "lo" {
			r.deviceSettings(name, own)
		}
	})
	for name, of := range master {
		r.facts[Key{Device, name, ""}] += " of " + r.names[of]
	}
	return err
}

func (r *reader) addresses() error {
	return r.each(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), func(m []byte) {
		if len(m) < unix.SizeofIfAddrmsg {
			return
		}
		a := attributes(m, unix.SizeofIfAddrmsg)
		flags := uint32(m[2])
		if len(a[unix.IFA_FLAGS]) == 4 {
			flags = u32(a[unix.IFA_FLAGS], 0)
		}
		if by := a[addressProto]; len(by) == 1 && (by[0] == fromRA || by[0] == fromLL) ||
			flags&unix.IFA_F_PERMANENT == 0 {
			return
		}
		ip := a[unix.IFA_LOCAL]
		if ip == nil {
			ip = a[unix.IFA_ADDRESS]
		}
		if addr, ok := netip.AddrFromSlice(ip); ok && !addr.IsLinkLocalUnicast() {
			r.facts.put(Address, r.names[u32(m, 4)], netip.PrefixFrom(addr, int(m[1])).String(), "")
		}
	})
}

// byHand reports whether someone added a route or rule: the kernel derives its own from addresses,
// and routing daemons from their protocols.
func byHand(protocol byte) bool {
	return protocol == unix.RTPROT_UNSPEC || protocol == unix.RTPROT_BOOT || protocol == unix.RTPROT_STATIC ||
		protocol == unix.RTPROT_DHCP
}

var routeTypes = map[byte]string{unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable",
	unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
	unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
	unix.RTN_MULTICAST: "multicast", unix.RTN_NAT: "nat", unix.RTN_XRESOLVE: "xresolve"}

// everywhere is the destination of a default route.
var everywhere = map[byte]netip.Prefix{unix.AF_INET: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	unix.AF_INET6: netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

func prefixOf(family, bits byte, address []byte) netip.Prefix {
	if a, ok := netip.AddrFromSlice(address); ok {
		return netip.PrefixFrom(a, int(bits))
	}
	return everywhere[family]
}

func (r *reader) routes() error {
	return r.each(unix.RTM_GETROUTE, make([]byte, unix.SizeofRtMsg), func(m []byte) {
		if len(m) >= unix.SizeofRtMsg && m[0] == unix.AF_MPLS && byHand(m[5]) {
			r.label(attributes(m, unix.SizeofRtMsg))
			return
		}
		if len(m) < unix.SizeofRtMsg || m[0] != unix.AF_INET && m[0] != unix.AF_INET6 || u32(m,
			8)&unix.RTM_F_CLONED != 0 || !byHand(m[5]) {
			return
		}
		a := attributes(m, unix.SizeofRtMsg)
		to := prefixOf(m[0], m[1], a[unix.RTA_DST])
		if to.Addr().IsMulticast() || to.Addr().IsLinkLocalUnicast() {
			return
		}
		table := uint32(m[4])
		if t := a[unix.RTA_TABLE]; len(t) == 4 {
			table = u32(t, 0)
		}
		p := Path{Table: tableName(table), To: to, Metric: u32(a[unix.RTA_PRIORITY], 0), Type: routeTypes[m[7]]}
		p.hop(a, r.names[u32(a[unix.RTA_OIF], 0)])
		for hops := a[unix.RTA_MULTIPATH]; len(hops) >= unix.SizeofRtNexthop; {
			length := int(binary.NativeEndian.Uint16(hops))
			if length < unix.SizeofRtNexthop || length > len(hops) {
				break
			}
			p.hop(attributes(hops[:length], unix.SizeofRtNexthop), r.names[u32(hops, 4)])
			hops = hops[min(len(hops), (length+3)&^3):]
		}
		if m[3] != 0 {
			p.Rest += fmt.Sprintf(" tos %#x", m[3])
		}
		if from := a[unix.RTA_SRC]; from != nil {
			p.Rest += " from " + prefixOf(m[0], m[2], from).String()
		}
		if src, ok := netip.AddrFromSlice(a[unix.RTA_PREFSRC]); ok {
			p.Rest += " src " + src.String()
		}
		eachAttribute(a[unix.RTA_METRICS], 0, func(kind uint16, v []byte) {
			if kind == unix.RTAX_MTU {
				p.Rest += fmt.Sprintf(" mtu %d", u32(v, 0))
			}
		})
		k, v := p.fact()
		r.facts.put(k.Kind, k.Device, k.Name, v)
	})
}

// label adds the route of an MPLS label.
func (r *reader) label(a map[uint16][]byte) {
	words := []string{}
	hop := func(a map[uint16][]byte, device string) {
		if to := a[unix.RTA_NEWDST]; to != nil {
			words = append(words, "as "+labelStack(to))
		}
		if v := a[unix.RTA_VIA]; len(v) > 2 {
			if via, ok := netip.AddrFromSlice(v[2:]); ok {
				words = append(words, "via "+via.String())
			}
		}
		if device != "" {
			words = append(words, "dev "+device)
		}
	}
	hop(a, r.names[u32(a[unix.RTA_OIF], 0)])
	for hops := a[unix.RTA_MULTIPATH]; len(hops) >= unix.SizeofRtNexthop; {
		length := int(binary.NativeEndian.Uint16(hops))
		if length < unix.SizeofRtNexthop || length > len(hops) {
			break
		}
		hop(attributes(hops[:length], unix.SizeofRtNexthop), r.names[u32(hops, 4)])
		hops = hops[min(len(hops), (length+3)&^3):]
	}
	r.facts.put(Label, "", labelStack(a[unix.RTA_DST]), strings.Join(words, " "))
}

// FR_ACT_….
var ruleActions = map[byte]string{1: "", 2: "goto", 3: "nop", 6: "blackhole", 7: "unreachable", 8: "prohibit"}

func (r *reader) rules() error {
	return r.each(unix.RTM_GETRULE, make([]byte, unix.SizeofRtMsg), func(m []byte) {
		if len(m) < unix.SizeofRtMsg || m[0] != unix.AF_INET && m[0] != unix.AF_INET6 {
			return
		}
		a := attributes(m, unix.SizeofRtMsg)
		if by := a[fraProtocol]; len(by) == 1 && by[0] != unix.RTPROT_KERNEL && !byHand(by[0]) {
			return
		}
		family := "ipv4"
		if m[0] == unix.AF_INET6 {
			family = "ipv6"
		}
		name := fmt.Sprintf("%s %d:", family, u32(a[fraPriority], 0))
		if u32(m, 8)&fibRuleInvert != 0 {
			name += " not"
		}
		name += " from " + orAll(m[0], m[2], a[fraSrc]) + " to " + orAll(m[0], m[1], a[fraDst])
		for _, x := range []struct {
			kind uint16
			word string
		}{{fraIIF, "iif"}, {fraOIF, "oif"}} {
			if v := a[x.kind]; v != nil {
				name += " " + x.word + " " + text(v)
			}
		}
		if m[3] != 0 {
			name += fmt.Sprintf(" tos %#x", m[3])
		}
		for _, x := range []struct {
			kind uint16
			word string
		}{{fraMark, "fwmark"}, {fraMask, "mask"}, {fraIPProto, "ipproto"}, {fraSport, "sport"}, {fraDport, "dport"},
			{fraUID, "uidrange"}} {
			if v := a[x.kind]; len(v) > 0 && !allZero(v) && !(x.kind == fraMask && allOnes(v)) {
				name += fmt.Sprintf(" %s %x", x.word, v)
			}
		}
		table := uint32(m[4])
		if t := a[unix.RTA_TABLE]; len(t) == 4 {
			table = u32(t, 0)
		}
		value := ruleActions[m[7]]
		if m[7] == 1 {
			value = "lookup " + tableName(table)
		}
		if v := a[fraSuppress]; len(v) == 4 && u32(v, 0) != 0xffffffff {
			value += fmt.Sprintf(" suppress_prefixlength %d", u32(v, 0))
		}
		r.facts.put(Rule, "", name, value)
	})
}

// Of linux/fib_rules.h.
const (
	fraDst, fraSrc, fraIIF, fraPriority, fraMark                   = 1, 2, 3, 6, 10
	fraSuppress, fraOIF, fraUID, fraProtocol, fraIPProto, fraSport = 14, 17, 20, 21, 22, 23
	fraDport, fraMask                                              = 24, 16
	fibRuleInvert                                                  = 2
)

func allOnes(b []byte) bool { return bytes.Count(b, []byte{0xff}) == len(b) }

func allZero(b []byte) bool { return strings.Trim(string(b), "\x00") == "" }

func orAll(family, bits byte, address []byte) string {
	if address == nil {
		return "all"
	}
	return prefixOf(family, bits, address).String()
}

func tableName(n uint32) string {
	switch n {
	case unix.RT_TABLE_MAIN:
		return Main
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	}
	return strconv.Itoa(int(n))
}

func (r *reader) neighbours() error {
	err := r.each(unix.RTM_GETNEIGH, make([]byte, unix.SizeofNdMsg), func(m []byte) {
		if len(m) < unix.SizeofNdMsg || binary.NativeEndian.Uint16(m[8:])&unix.NUD_PERMANENT == 0 {
			return
		}
		a := attributes(m, unix.SizeofNdMsg)
		if ip, ok := netip.AddrFromSlice(a[unix.NDA_DST]); ok {
			r.facts.put(Neighbour, r.names[u32(m, 4)], ip.String(), net.HardwareAddr(a[unix.NDA_LLADDR]).String())
		}
	})
	if err != nil || !r.anyBridge() {
		return err
	}
	ask := make([]byte, unix.SizeofIfInfomsg)
	ask[0] = unix.AF_BRIDGE
	return r.each(unix.RTM_GETNEIGH, ask, func(m []byte) {
		const fixed = unix.NUD_NOARP
		if len(m) < unix.SizeofNdMsg || binary.NativeEndian.Uint16(m[8:])&fixed == 0 {
			return
		}
		a := attributes(m, unix.SizeofNdMsg)
		if mac := net.HardwareAddr(a[unix.NDA_LLADDR]); a[unix.NDA_MASTER] != nil && len(mac) == 6 && mac[0]&1 == 0 {
			r.facts.put(FDB, r.names[u32(m, 4)], mac.String(), "static")
		}
	})
}

func (r *reader) anyBridge() bool {
	for _, name := range r.names {
		if r.facts[Key{Device, name, ""}] == "bridge" {
			return true
		}
	}
	return false
}
