package local

import (
	"bytes"
	"cmp"
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

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/target/local/wifi"
)

// When an interface leaves a network namespace, the kernel forgets its addresses, routes,
// neighbours, settings and queues. They are kept as the kernel itself reported them (rtnetlink(7))
// and sent back to it, as save and restore of ip(8) do: so even what Trivet knows nothing about is
// restored.

// external is a real interface of the machine, as it was before it became an end of a link.
type external struct {
	Name      string            `json:"name"`
	As        string            `json:"as,omitempty"` // its name in the lab, if that differs
	Index     int               `json:"index"`
	At        time.Time         `json:"at"`    // when this was recorded
	Flags     uint32            `json:"flags"` // netdevice(7)
	MTU       int               `json:"mtu"`
	TxQueue   int               `json:"tx_queue"`
	Alias     string            `json:"alias,omitempty"`
	AltNames  []string          `json:"alt_names,omitempty"`
	Group     uint32            `json:"group,omitempty"`
	MAC       string            `json:"mac,omitempty"`
	Carrier   bool              `json:"carrier,omitempty"`
	Wireless  uint32            `json:"wireless,omitempty"` // NL80211_IFTYPE_STATION, …; 0: not wireless
	Offloads  map[uint32]uint32 `json:"offloads,omitempty"` // by the ethtool command that sets it
	Settings  map[string]string `json:"settings,omitempty"` // below /proc/sys/net
	Addresses [][]byte          `json:"ip_addresses,omitempty"`
	Routes    [][]byte          `json:"routes,omitempty"`
	Permanent [][]byte          `json:"neighbours,omitempty"`
	Queues    [][]byte          `json:"queues,omitempty"`
	InPlace   bool              `json:"in_place,omitempty"` // it has not left its namespace: see pulledEnd
	Stays     bool              `json:"stays,omitempty"`    // it is in the machine's namespace in the lab, too
}

// userFlags are the flags of an interface that users set.
const userFlags = unix.IFF_UP | unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_NOARP | unix.IFF_MULTICAST |
	unix.IFF_DEBUG | unix.IFF_DYNAMIC

// look reads the state of an interface, in the thread's namespace.
func look(name string) (x external, err error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return x, err
	}
	a := dev.Attrs()
	x = external{Name: name, Index: a.Index, At: time.Now(), Flags: a.RawFlags & userFlags, MTU: a.MTU,
		TxQueue: a.TxQLen, Alias: a.Alias,
		AltNames: a.AltNames, Group: a.Group, MAC: a.HardwareAddr.String(), Carrier: a.OperState == netlink.OperUp,
		Offloads: offloadsOf(name), Settings: settingsOf(name)}
	if w, err := wifi.Find(name); err != nil {
		return x, err
	} else if w != nil {
		x.Wireless = w.Type
	}
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

// settingsOf reads the kernel's settings of an interface.
func settingsOf(name string) map[string]string {
	out := map[string]string{}
	for _, dir := range []string{"ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"} {
		at := filepath.Join("/proc/sys/net", dir, name)
		list, _ := os.ReadDir(at)
		for _, f := range list {
			// Some can be read only once they have been set.
			if b, err := os.ReadFile(filepath.Join(at, f.Name())); err == nil {
				out[filepath.Join(dir, name, f.Name())] = strings.TrimSpace(string(b))
			}
		}
	}
	return out
}

func setSetting(key, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0o644)
}

// sendHome moves a device from the thread's namespace back to the machine's, where it gets its old
// index unless that is taken. A missing device is no error. A device of the lab may have the same
// name in another node, and stays there.
func (x external) sendHome() error {
	dev, err := netlink.LinkByName(cmp.Or(x.As, x.Name))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	if x.As != "" {
		if dev.Attrs().HardwareAddr.String() != x.MAC {
			return nil
		}
		if err := errors.Join(netlink.LinkSetDown(dev), netlink.LinkSetName(dev, x.Name)); err != nil {
			return fmt.Errorf("call interface %s %s again: %w", x.As, x.Name, err)
		}
	}
	if dev.Attrs().Group == netbatch.Group && x.Group != netbatch.Group {
		return nil
	}
	if x.Stays {
		return afresh(x.Name)
	}
	home, err := os.Open("/proc/self/ns/net") // of the process's first thread, which never leaves it
	if err != nil {
		return err
	}
	defer home.Close()
	if err := netlink.LinkSetNoMaster(dev); err != nil {
		return err
	}
	if x.Wireless != 0 {
		return moveRadio(x.Name, home)
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
		err = move() // fails before Linux 5.13, or if the number is taken: go without
	}
	if err != nil {
		return fmt.Errorf("give interface %s back to the machine: %w", x.Name, err)
	}
	return nil
}

// afresh moves a device of the thread's namespace to another one and back, so that the kernel
// forgets everything that it had here.
func afresh(name string) error {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	away, err := inside.New()
	if err != nil {
		return err
	}
	defer away.Close()
	if err := netlink.LinkSetNsFd(dev, int(away.Fd())); err != nil {
		return err
	}
	return inside.File(away, func() error {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(dev, int(here.Fd()))
	})
}

// moveRadio moves a wireless interface, and all else of its radio, to another namespace.
func moveRadio(device string, to *os.File) error {
	w, err := wifi.Find(device)
	if err != nil || w == nil {
		return err
	}
	return w.Move(to)
}

// restoreWireless restores the mode of a wireless interface, usually that of a station: a killed
// hostapd leaves it as an access point.
func (x external) restoreWireless() error {
	w, err := wifi.Find(x.Name)
	if err != nil || w == nil || w.Type == x.Wireless {
		return err
	}
	return w.SetType(x.Wireless)
}

// restore restores an interface that is back in the machine's namespace, and lists what could not
// be restored. It may be called again.
func (x external) restore() (lost []string) {
	lose := func(what string, err error) { lost = x.lose(lost, what, err) }
	dev, err := netlink.LinkByName(x.Name)
	if err != nil {
		lose("the interface", err)
		return lost
	}
	if x.Wireless != 0 {
		lose("what it is on the air", x.restoreWireless())
	}
	x.restoreLink(dev, lose)
	index := dev.Attrs().Index
	now := settingsOf(x.Name)
	for _, key := range slices.Sorted(maps.Keys(x.Settings)) {
		if now[key] != x.Settings[key] {
			lose("the setting net/"+key, setSetting(key, x.Settings[key]))
		}
	}
	x.restoreNetwork(dev, lose)
	x.restoreAll(queueMessages, x.Queues, index, lose)
	return lost
}

// lose notes what could not be restored, if there is an error.
func (x external) lose(lost []string, what string, err error) []string {
	if err == nil {
		return lost
	}
	return append(lost, fmt.Sprintf("%s: %s could not be restored: %v", x.Name, what, err))
}

// restoreNetwork sets an interface up if it was, and restores its addresses, neighbours and routes.
func (x external) restoreNetwork(dev netlink.Link, lose func(string, error)) {
	index := dev.Attrs().Index
	// The interface had these addresses a moment ago, so duplicate address detection is skipped: it
	// takes a second or more, during which neither they nor routes that name them could be used.
	const duplicates = "accept_dad"
	key := filepath.Join("ipv6/conf", x.Name, duplicates)
	if x.Settings[key] != "" {
		_ = setSetting(key, "0")
	}
	if x.Flags&unix.IFF_UP != 0 {
		lose("that it is up", netlink.LinkSetUp(dev))
		for back := patience.CarrierBack.Begin(); x.Carrier && !back.Over(); time.Sleep(5 * time.Millisecond) {
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
}

// restoreLink restores the properties of the interface itself that differ.
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
		{fmt.Sprintf("its queue of %d packets", x.TxQueue), x.TxQueue != a.TxQLen,
			func() error { return netlink.LinkSetTxQLen(dev, x.TxQueue) }},
		{"its alias " + x.Alias, x.Alias != a.Alias, func() error { return netlink.LinkSetAlias(dev, x.Alias) }},
		{fmt.Sprintf("its group %d", x.Group), x.Group != a.Group,
			func() error { return netlink.LinkSetGroup(dev, int(x.Group)) }},
		{"its flags", x.Flags&^unix.IFF_UP != a.RawFlags&userFlags&^unix.IFF_UP, func() error {
			request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
			request.AddData(&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(a.Index),
				Flags: x.Flags &^ unix.IFF_UP, Change: userFlags &^ unix.IFF_UP}})
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

// settle waits until the kernel has finished handling addresses in the background.
func (x external) settle(index int) {
	for range 200 {
		now, err := addressMessages.of(index)
		if err != nil || len(addressMessages.lacks(x.Addresses, now)) == 0 &&
			!slices.ContainsFunc(now, func(m []byte) bool { return m[2]&unix.IFA_F_TENTATIVE != 0 }) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// restoreAll adds the objects of one kind that are missing, and removes those that the kernel has
// added by itself. As objects may refer to others, it retries as long as it makes progress.
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
			lose("its addresses and routes", err)
			return
		}
		for _, m := range k.lacks(now, wanted) {
			if k.addedByKernel(m) && !x.InPlace {
				_ = k.tell(k.del, m, 0)
			}
		}
		missing := k.lacks(wanted, now)
		if len(missing) == left || len(missing) == 0 {
			for _, m := range missing {
				err := errs[k.same(m)]
				if err == nil {
					err = errors.New("the kernel changed it")
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

// inOrder is the order in which to add objects so that the kernel lists them in their original
// order: it puts a new IPv6 address before those it already has.
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

var errTimeOver = errors.New("it has expired")

// put adds one object.
func (x external) put(k messages, m []byte, index int) error {
	if k.clear != nil {
		m = bytes.Clone(m)
		k.clear(m)
	}
	flags := unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	if k.add == unix.RTM_NEWROUTE {
		flags = unix.NLM_F_CREATE | unix.NLM_F_APPEND // next to others to the same network
		if m[0] == unix.AF_INET6 {
			if rest := hopsElsewhere(m, uint32(index)); rest != nil { // the kernel has kept these hops
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
