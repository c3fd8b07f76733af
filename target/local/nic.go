package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel forgets, when an interface leaves a network namespace, its addresses, routes, neighbours, settings and queues. They are
// kept as the kernel itself told them (rtnetlink(7)), and told back to it, as ip(8) does with save and restore: so what Trivet has no
// notion of comes back as well.

// external is a real interface of the machine, as it was before it became an end of a link.
type external struct {
	Name      string            `json:"name"`
	Index     int               `json:"index"`
	At        time.Time         `json:"at"`    // when it was so
	Flags     uint32            `json:"flags"` // netdevice(7)
	MTU       int               `json:"mtu"`
	TxQueue   int               `json:"tx_queue"`
	Alias     string            `json:"alias,omitempty"`
	AltNames  []string          `json:"alt_names,omitempty"`
	Group     uint32            `json:"group,omitempty"`
	MAC       string            `json:"mac,omitempty"`
	Carrier   bool              `json:"carrier,omitempty"`
	Offloads  map[uint32]uint32 `json:"offloads,omitempty"` // by the command of ethtool that sets one
	Settings  map[string]string `json:"settings,omitempty"` // below /proc/sys/net
	Addresses [][]byte          `json:"ip_addresses,omitempty"`
	Routes    [][]byte          `json:"routes,omitempty"`
	Permanent [][]byte          `json:"neighbours,omitempty"`
	Queues    [][]byte          `json:"queues,omitempty"`
}

// userFlags are the flags of an interface that its user sets.
const userFlags = unix.IFF_UP | unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_NOARP | unix.IFF_MULTICAST | unix.IFF_DEBUG | unix.IFF_DYNAMIC

// look reads how an interface is, in the namespace of the thread.
func look(name string) (x external, err error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return x, err
	}
	a := dev.Attrs()
	x = external{Name: name, Index: a.Index, At: time.Now(), Flags: a.RawFlags & userFlags, MTU: a.MTU, TxQueue: a.TxQLen, Alias: a.Alias,
		AltNames: a.AltNames, Group: a.Group, MAC: a.HardwareAddr.String(), Carrier: a.OperState == netlink.OperUp,
		Offloads: offloadsOf(name), Settings: settingsOf(name)}
	if x.Addresses, err = addressMessages.of(x.Index); err == nil {
		x.Routes, err = routeMessages.of(x.Index)
	}
	if err == nil {
		x.Permanent, err = neighbourMessages.of(x.Index)
	}
	if err == nil {
		x.Queues, err = queueMessages.of(x.Index)
	}
	return x, err
}

// messages is what the kernel tells of one kind of things.
type messages struct {
	get, add, del uint16
	head          int                                        // length of what comes before the attributes
	families      []int                                      // asked for
	is            func(m []byte, index int) bool             // of the interface, and to be kept
	index         int                                        // where its number stands in the head; -1: in attributes
	clear         func(m []byte)                             // what changes by itself, in the head
	ignore        []uint16                                   // attributes that do
	describe      func(m []byte, a map[uint16][]byte) string // for people
	prepare       func(m []byte, past time.Duration) []byte  // what to tell the kernel; nil: its time has passed
}

var inet = []int{unix.AF_INET, unix.AF_INET6}

var addressMessages = messages{get: unix.RTM_GETADDR, add: unix.RTM_NEWADDR, del: unix.RTM_DELADDR, head: unix.SizeofIfAddrmsg, families: inet, index: 4,
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
		return withAttribute(m, unix.SizeofIfAddrmsg, unix.IFA_CACHEINFO, func(v []byte) []byte { // struct ifa_cacheinfo: preferred, valid
			return shorter(v, past, 0, 4)
		})
	}}

var routeMessages = messages{get: unix.RTM_GETROUTE, add: unix.RTM_NEWROUTE, del: unix.RTM_DELROUTE, head: unix.SizeofRtMsg, families: inet, index: -1,
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
		// struct rta_cacheinfo has the time left at 8, in hundredths of a second; it is told as RTA_EXPIRES, in seconds.
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

var neighbourMessages = messages{get: unix.RTM_GETNEIGH, add: unix.RTM_NEWNEIGH, head: unix.SizeofNdMsg, families: inet, index: 4,
	is: func(m []byte, index int) bool {
		return number(m, 4) == uint32(index) && binary.NativeEndian.Uint16(m[8:])&unix.NUD_PERMANENT != 0
	},
	ignore: []uint16{unix.NDA_CACHEINFO, unix.NDA_PROBES},
	describe: func(_ []byte, a map[uint16][]byte) string {
		return fmt.Sprintf("the neighbour %s (%s)", net.IP(a[unix.NDA_DST]), net.HardwareAddr(a[unix.NDA_LLADDR]))
	}}

// Queueing disciplines without a handle are those that the kernel gives by itself.
var queueMessages = messages{get: unix.RTM_GETQDISC, add: unix.RTM_NEWQDISC, head: nl.SizeofTcMsg, families: []int{unix.AF_UNSPEC}, index: 4,
	is:     func(m []byte, index int) bool { return number(m, 4) == uint32(index) && number(m, 8) != 0 },
	clear:  func(m []byte) { clear(m[16:20]) }, // how many use it
	ignore: []uint16{unix.TCA_STATS, unix.TCA_STATS2, unix.TCA_XSTATS, unix.TCA_HW_OFFLOAD},
	describe: func(m []byte, a map[uint16][]byte) string {
		return fmt.Sprintf("the queueing discipline %s %x: (its classes and filters are not kept)", nl.BytesToString(a[unix.TCA_KIND]), number(m, 8)>>16)
	}}

// low is where the lowest byte of a number is that has four.
var low = map[bool]int{true: 0, false: 3}[binary.NativeEndian.Uint16([]byte{1, 0}) == 1]

// comesWithAddresses says whether a route is one that the kernel makes of an address, and takes away with it.
func comesWithAddresses(k messages, m []byte) bool {
	return k.add == unix.RTM_NEWROUTE && m[5] == unix.RTPROT_KERNEL && m[4] == unix.RT_TABLE_LOCAL
}

// addedByKernel says whether something may be there because an address was given or an interface set up, and for no other reason.
func (k messages) addedByKernel(m []byte) bool {
	switch k.add {
	case unix.RTM_NEWROUTE:
		return m[5] == unix.RTPROT_KERNEL && m[4] != unix.RT_TABLE_LOCAL
	case unix.RTM_NEWADDR:
		return m[0] == unix.AF_INET6 && m[3] == unix.RT_SCOPE_LINK
	}
	return false
}

// hopsElsewhere is a route of several next hops without those by an interface, nil where there are none.
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

// of asks the kernel for what there is of an interface.
func (k messages) of(index int) (out [][]byte, err error) {
	for _, family := range k.families {
		var list [][]byte
		for range 100 { // it may change while the kernel lists it
			request := nl.NewNetlinkRequest(int(k.get), unix.NLM_F_DUMP)
			head := make([]byte, k.head)
			head[0] = byte(family)
			request.AddRawData(head)
			if list, err = request.Execute(unix.NETLINK_ROUTE, k.add); !errors.Is(err, nl.ErrDumpInterrupted) {
				break
			}
		}
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

// tell asks the kernel for a change.
func (k messages) tell(what uint16, m []byte, flags int) error {
	request := nl.NewNetlinkRequest(int(what), flags|unix.NLM_F_ACK)
	request.AddRawData(m)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// same is what of a message stays the same as long as what it tells does.
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

// lacks lists those of a that are not in b.
func (k messages) lacks(a, b [][]byte) (out [][]byte) {
	have := map[string]bool{}
	for _, m := range b {
		have[k.same(m)] = true
	}
	for _, m := range a {
		if !have[k.same(m)] {
			out = append(out, m)
		}
	}
	return out
}

func attributes(m []byte, head int) map[uint16][]byte {
	out := map[uint16][]byte{}
	list, _ := nl.ParseRouteAttr(m[head:])
	for _, a := range list {
		out[a.Attr.Type&^unix.NLA_F_NESTED] = a.Value
	}
	return out
}

// withAttribute is a message with another value of an attribute: nil takes it out. Where the value is empty nothing is left of the message.
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

// shorter takes the time that has passed off lifetimes in seconds, the last of which is that of the whole: empty when it is over.
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

// eachHop visits the next hops of a route that has several: a struct rtnexthop and its attributes.
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

// routeIndexes are the interfaces that a route goes by.
func routeIndexes(m []byte) (out []uint32) {
	if a := attributes(m, unix.SizeofRtMsg); a[unix.RTA_OIF] != nil {
		out = append(out, number(a[unix.RTA_OIF], 0))
	}
	eachHop(m, func(hop []byte) { out = append(out, number(hop, 4)) })
	return out
}

// moved is a message for an interface that has another number now.
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

// settingsOf reads the settings that the kernel has for each interface.
func settingsOf(name string) map[string]string {
	out := map[string]string{}
	for _, dir := range []string{"ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"} {
		at := filepath.Join("/proc/sys/net", dir, name)
		list, _ := os.ReadDir(at)
		for _, f := range list {
			if b, err := os.ReadFile(filepath.Join(at, f.Name())); err == nil { // some can be read only once they are set
				out[filepath.Join(dir, name, f.Name())] = strings.TrimSpace(string(b))
			}
		}
	}
	return out
}

func setSetting(key, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0o644)
}

// sendHome moves a device from the namespace of the thread to the machine's, where it has its number again if nobody else has it now. One
// that is not there is no error.
func (x external) sendHome() error {
	dev, err := netlink.LinkByName(x.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	home, err := os.Open("/proc/self/ns/net") // of the process' first thread, which never leaves
	if err != nil {
		return err
	}
	defer home.Close()
	if err := netlink.LinkSetNoMaster(dev); err != nil {
		return err
	}
	move := func(attrs ...*nl.RtAttr) error {
		request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
		request.AddData(&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(dev.Attrs().Index)}})
		for _, a := range append(attrs, nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(home.Fd())))) {
			request.AddData(a)
		}
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	}
	if err = move(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, nl.Uint32Attr(uint32(x.Index)))); err != nil {
		err = move() // since Linux 5.13, and where it is free
	}
	if err != nil {
		return fmt.Errorf("give interface %s back to the machine: %w", x.Name, err)
	}
	return nil
}

// carrierBack is how long an interface that had a carrier may take to have it again: negotiation takes seconds.
const carrierBack = 5 * time.Second

// restore makes an interface that is back what it was, and lists what could not be restored. It may be called again.
func (x external) restore() (lost []string) {
	lose := func(what string, err error) {
		if err != nil {
			lost = append(lost, fmt.Sprintf("%s: %s could not be restored: %v", x.Name, what, err))
		}
	}
	dev, err := netlink.LinkByName(x.Name)
	if err != nil {
		lose("the interface", err)
		return lost
	}
	x.restoreLink(dev, lose)
	index := dev.Attrs().Index
	now := settingsOf(x.Name)
	for _, key := range slices.Sorted(maps.Keys(x.Settings)) {
		if now[key] != x.Settings[key] {
			lose("the setting net/"+key, setSetting(key, x.Settings[key]))
		}
	}
	// The addresses were its own a moment ago. Duplicates are not looked for again: until that were over, in a second or more, they
	// could not be used, nor routes that name them.
	const duplicates = "accept_dad"
	key := filepath.Join("ipv6/conf", x.Name, duplicates)
	if x.Settings[key] != "" {
		_ = setSetting(key, "0")
	}
	if x.Flags&unix.IFF_UP != 0 {
		lose("that it is up", netlink.LinkSetUp(dev))
		for end := time.Now().Add(carrierBack); x.Carrier && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if d, err := netlink.LinkByIndex(index); err != nil || d.Attrs().OperState == netlink.OperUp {
				break
			}
		}
	}
	x.restoreAll(addressMessages, x.Addresses, index, lose)
	x.settle(index)
	if was := x.Settings[key]; was != "" {
		_ = setSetting(key, was)
	}
	x.restoreAll(neighbourMessages, x.Permanent, index, lose)
	x.restoreAll(routeMessages, x.Routes, index, lose)
	x.restoreAll(queueMessages, x.Queues, index, lose)
	return lost
}

// restoreLink sets what differs of the interface itself.
func (x external) restoreLink(dev netlink.Link, lose func(string, error)) {
	a := dev.Attrs()
	for _, s := range []struct {
		what    string
		differs bool
		set     func() error
	}{
		{"its MAC " + x.MAC, x.MAC != a.HardwareAddr.String(), func() error {
			mac, err := net.ParseMAC(x.MAC)
			if err != nil {
				return err
			}
			return netlink.LinkSetHardwareAddr(dev, mac)
		}},
		{fmt.Sprintf("its MTU of %d", x.MTU), x.MTU != a.MTU, func() error { return netlink.LinkSetMTU(dev, x.MTU) }},
		{fmt.Sprintf("its queue of %d packets", x.TxQueue), x.TxQueue != a.TxQLen, func() error { return netlink.LinkSetTxQLen(dev, x.TxQueue) }},
		{"its alias " + x.Alias, x.Alias != a.Alias, func() error { return netlink.LinkSetAlias(dev, x.Alias) }},
		{fmt.Sprintf("its group %d", x.Group), x.Group != a.Group, func() error { return netlink.LinkSetGroup(dev, int(x.Group)) }},
		{"its flags", x.Flags&^unix.IFF_UP != a.RawFlags&userFlags&^unix.IFF_UP, func() error {
			request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
			request.AddData(&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(a.Index), Flags: x.Flags &^ unix.IFF_UP, Change: userFlags &^ unix.IFF_UP}})
			_, err := request.Execute(unix.NETLINK_ROUTE, 0)
			return err
		}},
	} {
		if s.differs {
			lose(s.what, s.set())
		}
	}
	for _, name := range x.AltNames {
		if !slices.Contains(a.AltNames, name) {
			lose("its name "+name, netlink.LinkAddAltName(dev, name))
		}
	}
	now := offloadsOf(x.Name)
	for command, value := range x.Offloads {
		if now[command] != value {
			lose("an offload", setOffloads(x.Name, []uint32{command}, value != 0))
		}
	}
}

// settle waits until the kernel has done with addresses what it does by itself, which takes it a moment.
func (x external) settle(index int) {
	for range 200 {
		now, err := addressMessages.of(index)
		if err != nil || len(addressMessages.lacks(x.Addresses, now)) == 0 && !slices.ContainsFunc(now, func(m []byte) bool { return m[2]&unix.IFA_F_TENTATIVE != 0 }) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// restoreAll tells the kernel what it does not have of one kind of things, and takes away what it has added by itself. What refers to others
// may have to come after them, so it is tried again as long as that helps.
func (x external) restoreAll(k messages, were [][]byte, index int, lose func(string, error)) {
	var wanted [][]byte
	for _, m := range were {
		if m = k.moved(m, x.Index, index); !comesWithAddresses(k, m) {
			wanted = append(wanted, m)
		}
	}
	errs := map[string]error{}
	for left := len(wanted) + 1; ; {
		now, err := k.of(index)
		if err != nil {
			lose("what there was", err)
			return
		}
		for _, m := range k.lacks(now, wanted) {
			if k.addedByKernel(m) {
				_ = k.tell(k.del, m, 0)
			}
		}
		missing := k.lacks(wanted, now)
		if len(missing) == left || len(missing) == 0 {
			for _, m := range missing {
				err := errs[k.same(m)]
				if err == nil {
					err = errors.New("the kernel made another of it")
				}
				lose(k.describe(m, attributes(m, k.head)), err)
			}
			return
		}
		left = len(missing)
		for _, m := range inOrder(k, missing) {
			errs[k.same(m)] = x.put(k, m, index)
		}
	}
}

// inOrder is the order in which to tell the kernel of things, so that it has them in the order in which it told them: an address
// of IPv6 it puts before those that it has.
func inOrder(k messages, list [][]byte) [][]byte {
	if k.add != unix.RTM_NEWADDR {
		return list
	}
	var v4, v6 [][]byte
	for _, m := range list {
		if m[0] == unix.AF_INET6 {
			v6 = append([][]byte{m}, v6...)
		} else {
			v4 = append(v4, m)
		}
	}
	return append(v4, v6...)
}

var errTimeOver = errors.New("its time is over")

// put tells the kernel of one thing.
func (x external) put(k messages, m []byte, index int) error {
	if k.clear != nil {
		m = bytes.Clone(m)
		k.clear(m)
	}
	flags := unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	if k.add == unix.RTM_NEWROUTE {
		flags = unix.NLM_F_CREATE | unix.NLM_F_APPEND // beside others to the same network
		if m[0] == unix.AF_INET6 {
			if rest := hopsElsewhere(m, uint32(index)); rest != nil { // the kernel has kept these
				_ = k.tell(k.del, rest, 0)
			}
		}
	}
	if k.prepare != nil {
		if m = k.prepare(m, time.Since(x.At)); m == nil {
			return errTimeOver
		}
	}
	return k.tell(k.add, m, flags)
}
