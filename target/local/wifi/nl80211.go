// Package wifi makes real wireless interfaces access points and stations. It configures them in the
// kernel (nl80211), and runs hostapd and wpa_supplicant, which do the rest.
//
// A wireless interface belongs to a radio (a phy), and only a radio as a whole can be moved to
// another network namespace, with all its interfaces.
package wifi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Interface is a wireless interface in the thread's network namespace.
type Interface struct {
	Name  string
	Radio uint32
	Type  uint32 // what it is: NL80211_IFTYPE_STATION, …
	index int
}

// Find returns an interface; nil if it is not wireless.
func Find(name string) (*Interface, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	all, err := interfaces()
	for _, w := range all {
		if w.index == dev.Attrs().Index {
			return &w, err
		}
	}
	return nil, err
}

// Others returns the names of the radio's other interfaces.
func (w *Interface) Others() (names []string, err error) {
	all, err := interfaces()
	for _, other := range all {
		if other.Radio == w.Radio && other.index != w.index && other.Name != "" {
			names = append(names, other.Name)
		}
	}
	return names, err
}

// Move moves the interface's radio, with all its interfaces, to another network namespace. That
// sets them down.
func (w *Interface) Move(to *os.File) error {
	err := command(unix.NL80211_CMD_SET_WIPHY_NETNS, attr(unix.NL80211_ATTR_WIPHY, w.Radio),
		attr(unix.NL80211_ATTR_NETNS_FD, uint32(to.Fd())))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the driver of %s cannot move it to another network namespace: %w", w.Name, err)
	}
	return err
}

// SetType makes the interface, which this sets down, a station or an access point; it stays
// down.
func (w *Interface) SetType(to uint32) error {
	dev, err := netlink.LinkByIndex(w.index)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(dev); err != nil {
		return err
	}
	if err := command(unix.NL80211_CMD_SET_INTERFACE, attr(unix.NL80211_ATTR_IFINDEX, uint32(w.index)),
		attr(unix.NL80211_ATTR_IFTYPE, to)); err != nil {
		return fmt.Errorf("change what the wireless interface %s is: %w", w.Name, err)
	}
	w.Type = to
	return nil
}

// interfaces lists the wireless interfaces of the thread's network namespace; none if the kernel
// has nothing wireless.
func interfaces() (out []Interface, err error) {
	answers, err := ask(unix.NL80211_CMD_GET_INTERFACE, unix.NLM_F_DUMP)
	for _, m := range answers {
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		var w Interface
		for _, a := range attrs {
			switch a.Attr.Type {
			case unix.NL80211_ATTR_IFINDEX:
				w.index = int(binary.NativeEndian.Uint32(a.Value))
			case unix.NL80211_ATTR_IFNAME:
				w.Name = unix.ByteSliceToString(a.Value)
			case unix.NL80211_ATTR_WIPHY:
				w.Radio = binary.NativeEndian.Uint32(a.Value)
			case unix.NL80211_ATTR_IFTYPE:
				w.Type = binary.NativeEndian.Uint32(a.Value)
			}
		}
		out = append(out, w)
	}
	return out, err
}

func attr(kind int, value uint32) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint32Attr(value)) }

func command(what uint8, attrs ...*nl.RtAttr) error {
	_, err := ask(what, unix.NLM_F_ACK, attrs...)
	return err
}

// ask sends a request of nl80211 and returns the answers; none where the kernel does not have it.
func ask(what uint8, flags int, attrs ...*nl.RtAttr) ([][]byte, error) {
	family, err := netlink.GenlFamilyGet("nl80211")
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for nl80211: %w", err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), flags)
	request.AddData(&nl.Genlmsg{Command: what, Version: 0})
	for _, a := range attrs {
		request.AddData(a)
	}
	return request.Execute(unix.NETLINK_GENERIC, 0)
}
