package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lists"
)

// messages describes the kernel's messages about one kind of object.
type messages struct {
	get, add, del uint16
	head          int                            // length of what comes before the attributes
	families      []int                          // to ask for
	is            func(m []byte, index int) bool // of the interface, and worth keeping
	// Offset of the interface's number in the head; -1: in attributes.
	index    int
	clear    func(m []byte)                             // clears what changes by itself in the head
	ignore   []uint16                                   // attributes that change by themselves
	describe func(m []byte, a map[uint16][]byte) string // for users
	prepare  func(m []byte, past time.Duration) []byte  // to send; nil: the lifetime is over
}

var inet = []int{unix.AF_INET, unix.AF_INET6}

var addressMessages = messages{get: unix.RTM_GETADDR, add: unix.RTM_NEWADDR, del: unix.RTM_DELADDR,
	head: unix.SizeofIfAddrmsg, families: inet, index: 4,
	is: func(m []byte, index int) bool { return number(m, 4) == uint32(index) },
	clear: func(m []byte) {
		const passing = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_OPTIMISTIC
		m[2] &^= passing
		if all := attributes(m, unix.SizeofIfAddrmsg)[unix.IFA_FLAGS]; len(all) == 4 {
			all[low] &^= passing
		}
	},
	ignore: []uint16{unix.IFA_CACHEINFO},
	describe: func(m []byte, a map[uint16][]byte) string {
		ip := a[unix.IFA_LOCAL]
		if ip == nil {
			ip = a[unix.IFA_ADDRESS]
		}
		return fmt.Sprintf("the address %s/%d", net.IP(ip), m[1])
	},
	prepare: func(m []byte, past time.Duration) []byte {
		// Struct ifa_cacheinfo: preferred, valid.
		return withAttribute(m, unix.SizeofIfAddrmsg, unix.IFA_CACHEINFO, func(v []byte) []byte {
			return shorter(v, past, 0, 4)
		})
	}}

var routeMessages = messages{get: unix.RTM_GETROUTE, add: unix.RTM_NEWROUTE, del: unix.RTM_DELROUTE,
	head: unix.SizeofRtMsg, families: inet, index: -1,
	is: func(m []byte, index int) bool {
		return number(m, 8)&unix.RTM_F_CLONED == 0 && slices.Contains(routeIndexes(m), uint32(index))
	},
	clear: func(m []byte) {
		const said = unix.RTNH_F_ONLINK | unix.RTNH_F_PERVASIVE
		binary.NativeEndian.PutUint32(m[8:], number(m, 8)&said)
		eachHop(m, func(hop []byte) { hop[2] &= said })
	},
	ignore: []uint16{unix.RTA_CACHEINFO},
	describe: func(m []byte, a map[uint16][]byte) string {
		to := "default"
		if m[1] > 0 {
			to = fmt.Sprintf("%s/%d", net.IP(a[unix.RTA_DST]), m[1])
		}
		if via := a[unix.RTA_GATEWAY]; via != nil {
			to += " via " + net.IP(via).String()
		}
		if table := a[unix.RTA_TABLE]; table != nil && number(table, 0) != unix.RT_TABLE_MAIN {
			to += fmt.Sprintf(" in table %d", number(table, 0))
		}
		return "the route " + to
	},
	prepare: func(m []byte, past time.Duration) []byte {
		// struct rta_cacheinfo has the remaining time at offset 8, in hundredths of a second; it is
		// set by RTA_EXPIRES, in seconds.
		cache := attributes(m, unix.SizeofRtMsg)[unix.RTA_CACHEINFO]
		m = withAttribute(m, unix.SizeofRtMsg, unix.RTA_CACHEINFO, func([]byte) []byte { return nil })
		if len(cache) < 12 || number(cache, 8) == 0 {
			return m
		}
		left := time.Duration(int32(number(cache, 8)))*10*time.Millisecond - past
		if left < time.Second {
			return nil
		}
		return append(m, nl.NewRtAttr(unix.RTA_EXPIRES, nl.Uint32Attr(uint32(left.Seconds()))).Serialize()...)
	}}

var neighbourMessages = messages{get: unix.RTM_GETNEIGH, add: unix.RTM_NEWNEIGH, head: unix.SizeofNdMsg, families: inet,
	index: 4,
	is: func(m []byte, index int) bool {
		return number(m, 4) == uint32(index) && binary.NativeEndian.Uint16(m[8:])&unix.NUD_PERMANENT != 0
	},
	ignore: []uint16{unix.NDA_CACHEINFO, unix.NDA_PROBES},
	describe: func(_ []byte, a map[uint16][]byte) string {
		return fmt.Sprintf("the neighbour %s (%s)", net.IP(a[unix.NDA_DST]), net.HardwareAddr(a[unix.NDA_LLADDR]))
	}}

// Queueing disciplines without a handle are the kernel's own defaults.
var queueMessages = messages{get: unix.RTM_GETQDISC, add: unix.RTM_NEWQDISC, head: nl.SizeofTcMsg,
	families: []int{unix.AF_UNSPEC}, index: 4,
	is:     func(m []byte, index int) bool { return number(m, 4) == uint32(index) && number(m, 8) != 0 },
	clear:  func(m []byte) { clear(m[16:20]) }, // the reference count
	ignore: []uint16{unix.TCA_STATS, unix.TCA_STATS2, unix.TCA_XSTATS, unix.TCA_HW_OFFLOAD},
	describe: func(m []byte, a map[uint16][]byte) string {
		return fmt.Sprintf("the queueing discipline %s %x: (its classes and filters are not kept)",
			nl.BytesToString(a[unix.TCA_KIND]), number(m, 8)>>16)
	}}

// low is the offset of the lowest byte in a 4-byte number.
var low = map[bool]int{true: 0, false: 3}[binary.NativeEndian.Uint16([]byte{1, 0}) == 1]

// comesWithAddresses says whether a route is one that the kernel adds and removes together with an
// address.
func comesWithAddresses(k messages, m []byte) bool {
	return k.add == unix.RTM_NEWROUTE && m[5] == unix.RTPROT_KERNEL && m[4] == unix.RT_TABLE_LOCAL
}

// addedByKernel says whether something may be there only because an address was added or an
// interface set up.
func (k messages) addedByKernel(m []byte) bool {
	switch k.add {
	case unix.RTM_NEWROUTE:
		return m[5] == unix.RTPROT_KERNEL && m[4] != unix.RT_TABLE_LOCAL
	case unix.RTM_NEWADDR:
		return m[0] == unix.AF_INET6 && m[3] == unix.RT_SCOPE_LINK
	}
	return false
}

// hopsElsewhere returns a multipath route without its next hops through an interface, or nil if the
// route is not multipath.
func hopsElsewhere(m []byte, index uint32) []byte {
	if attributes(m, unix.SizeofRtMsg)[unix.RTA_MULTIPATH] == nil {
		return nil
	}
	rest := []byte{}
	eachHop(m, func(hop []byte) {
		if number(hop, 4) != index {
			rest = append(rest, hop...)
			rest = append(rest, make([]byte, -len(hop)&3)...)
		}
	})
	return withAttribute(m, unix.SizeofRtMsg, unix.RTA_MULTIPATH, func([]byte) []byte { return rest })
}

func number(m []byte, at int) uint32 {
	if len(m) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(m[at:])
}

// of asks the kernel for all objects of this kind that an interface has.
func (k messages) of(index int) (out [][]byte, err error) {
	for _, family := range k.families {
		list, err := uninterrupted(100, func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(int(k.get), unix.NLM_F_DUMP)
			head := make([]byte, k.head)
			head[0] = byte(family)
			request.AddRawData(head)
			return request.Execute(unix.NETLINK_ROUTE, k.add)
		})
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if len(m) >= k.head && int(m[0]) == family && k.is(m, index) {
				out = append(out, m)
			}
		}
	}
	return out, nil
}

// uninterrupted reads a list of the kernel's until nothing in it has changed meanwhile. If it does
// so each of that many times, the error is ErrDumpInterrupted, and the list the last.
func uninterrupted[T any](times int, list func() ([]T, error)) (out []T, err error) {
	for range times {
		if out, err = list(); !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return out, err
}

// tell sends the kernel a change.
func (k messages) tell(what uint16, m []byte, flags int) error {
	request := nl.NewNetlinkRequest(int(what), flags|unix.NLM_F_ACK)
	request.AddRawData(m)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// same is the part of a message that stays the same as long as the object itself does.
func (k messages) same(m []byte) string {
	m = bytes.Clone(m)
	if k.clear != nil {
		k.clear(m)
	}
	if k.index >= 0 {
		clear(m[k.index : k.index+4])
	}
	out := string(m[:k.head])
	a := attributes(m, k.head)
	for _, t := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(k.ignore, t) {
			out += fmt.Sprintf(" %d=%x", t, a[t])
		}
	}
	return out
}

// lacks lists the elements of a that are not in b.
func (k messages) lacks(a, b [][]byte) [][]byte {
	have := lists.Set(b, k.same)
	return lists.Filter(a, func(m []byte) bool { return !have[k.same(m)] })
}

func attributes(m []byte, head int) map[uint16][]byte {
	out := map[uint16][]byte{}
	list, _ := nl.ParseRouteAttr(m[head:])
	for _, a := range list {
		out[a.Attr.Type&^unix.NLA_F_NESTED] = a.Value
	}
	return out
}

// withAttribute returns a message with another value of an attribute; nil removes the attribute. If
// the value is empty, so is the returned message.
func withAttribute(m []byte, head int, kind uint16, change func([]byte) []byte) []byte {
	out := bytes.Clone(m[:head])
	list, _ := nl.ParseRouteAttr(m[head:])
	for _, a := range list {
		if a.Attr.Type == kind {
			if a.Value = change(bytes.Clone(a.Value)); a.Value == nil {
				continue
			}
			if len(a.Value) == 0 {
				return nil
			}
		}
		out = append(out, nl.NewRtAttr(int(a.Attr.Type), a.Value).Serialize()...)
	}
	return out
}

// shorter subtracts the time that has passed from lifetimes in seconds. The last of them is that of
// the whole object: if it is over, the result is empty.
func shorter(v []byte, past time.Duration, at ...int) []byte {
	const ever = 1<<32 - 1
	for i, at := range at {
		left := number(v, at)
		if left == ever {
			continue
		}
		if left = left - min(left, uint32(past.Seconds())); left == 0 && i == 1 {
			return []byte{}
		}
		binary.NativeEndian.PutUint32(v[at:], left)
	}
	return v
}

// eachHop visits the next hops of a multipath route: a struct rtnexthop and its attributes.
func eachHop(m []byte, f func(hop []byte)) {
	list, _ := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	for _, a := range list {
		if a.Attr.Type&^unix.NLA_F_NESTED != unix.RTA_MULTIPATH {
			continue
		}
		for v := a.Value; len(v) >= unix.SizeofRtNexthop; {
			n := int(binary.NativeEndian.Uint16(v))
			if n < unix.SizeofRtNexthop {
				break
			}
			f(v[:min(n, len(v))])
			v = v[min(len(v), (n+3)&^3):]
		}
	}
}

// routeIndexes returns the interfaces that a route uses.
func routeIndexes(m []byte) (out []uint32) {
	if a := attributes(m, unix.SizeofRtMsg); a[unix.RTA_OIF] != nil {
		out = append(out, number(a[unix.RTA_OIF], 0))
	}
	eachHop(m, func(hop []byte) { out = append(out, number(hop, 4)) })
	return out
}

// moved returns a message rewritten for an interface whose number has changed.
func (k messages) moved(m []byte, from, to int) []byte {
	m = bytes.Clone(m)
	if k.index >= 0 {
		binary.NativeEndian.PutUint32(m[k.index:], uint32(to))
		return m
	}
	eachHop(m, func(hop []byte) {
		if number(hop, 4) == uint32(from) {
			binary.NativeEndian.PutUint32(hop[4:], uint32(to))
		}
	})
	return withAttribute(m, k.head, unix.RTA_OIF, func(v []byte) []byte {
		if number(v, 0) == uint32(from) {
			binary.NativeEndian.PutUint32(v, uint32(to))
		}
		return v
	})
}
