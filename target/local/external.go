package local

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/target/local/wifi"
	"trivet.dev/trivet/topology"
)

// takeExternal moves an interface of the machine into the namespace of the link's node.
func (l *Lab) takeExternal(link *topology.Link) error {
	inner := 0
	if link.Ends[0].External() {
		inner = 1
	}
	within, outside := link.Ends[inner], link.Ends[1-inner]
	if outside.Carrier != nil && outside.Carrier.Port != nil {
		return l.takePort(link, within, outside.Carrier.Port)
	}
	if outside.Carrier != nil {
		return l.makeCarried(link, within, *outside.Carrier)
	}
	dev, err := netlink.LinkByName(outside.Interface)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return l.makeVLAN(link, within, outside.Interface)
	}
	if err != nil {
		return err
	}
	was, err := look(outside.Interface)
	if err != nil {
		return err
	}
	l.Record.External = append(l.Record.External, was)
	if err := l.saveRecord(); err != nil {
		return err
	}
	ns, err := l.netnsOf(within.Node)
	if err != nil {
		return err
	}
	defer ns.Close()
	move := func() error { return netlink.LinkSetNsFd(dev, int(ns.Fd())) }
	if was.Wireless != 0 {
		move = func() error { return moveRadio(outside.Interface, ns) }
	}
	if err := move(); err != nil {
		return fmt.Errorf("move interface %s into the lab: %w", outside.Interface, err)
	}
	return inside.File(ns, func() error {
		if link.AccessPoint(l.node(within.Node)) {
			if err := beAccessPoint(outside.Interface); err != nil {
				return err
			}
		}
		dev, err := netlink.LinkByName(outside.Interface)
		if err != nil {
			return err
		}
		if err := setMTU(outside.Interface, link.Egress(inner).MTU); err != nil {
			return err
		}
		if l.note(within.Node, dev); link.Down {
			return nil
		}
		return netlink.LinkSetUp(dev) // moving it has set it down
	})
}

// makeVLAN makes an interface that does not exist on the machine, if its name says which VLAN of
// another interface it is: eth1.20 is VLAN 20 of eth1. The kernel makes it in the node's namespace
// and eth1 stays where it is, so there is nothing to restore.
func (l *Lab) makeVLAN(link *topology.Link, within topology.Endpoint, name string) error {
	c, ok := vlanOf(name)
	if !ok {
		return fmt.Errorf("link %s: the machine has no interface %s; there are: %s", link.Name(), name,
			strings.Join(nicNames(), ", "))
	}
	if _, err := netlink.LinkByName(c.NIC); errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("link %s: the machine has no interface %s, and no %s to make VLAN %d of; there are: %s",
			link.Name(), name, c.NIC, c.VLAN, strings.Join(nicNames(), ", "))
	}
	if other := vlanDevice(c); other != "" {
		return fmt.Errorf("link %s: VLAN %d of %s is there already under another name: write interface:%s", link.Name(),
			c.VLAN, c.NIC, other)
	}
	within.Interface, within.MAC = name, topology.MAC{} // it shares the MAC address of the other
	return l.makeCarried(link, within, c)
}

// vlanOf parses the name of a VLAN interface.
func vlanOf(name string) (c topology.Carrier, is bool) {
	at := strings.LastIndexByte(name, '.')
	if at < 1 {
		return c, false
	}
	id, err := strconv.ParseUint(name[at+1:], 10, 16)
	return topology.Carrier{NIC: name[:at], VLAN: uint16(id)}, err == nil && id >= 1 && id <= 4094
}

// beAccessPoint sets an interface to access point mode, without which a Linux bridge refuses it.
func beAccessPoint(device string) error {
	w, err := wifi.Find(device)
	if err != nil || w == nil {
		return err
	}
	return w.SetType(unix.NL80211_IFTYPE_AP)
}

// releaseExternal moves an interface back and restores what it had.
func (l *Lab) releaseExternal(link *topology.Link) error {
	for i, e := range link.Ends {
		if !e.External() {
			continue
		}
		at := slices.IndexFunc(l.Record.External, func(x external) bool { return x.Name == e.Interface })
		var port *topology.NetworkPort
		if e.Carrier != nil {
			port = e.Carrier.Port
		}
		if port != nil {
			if err := l.releasePort(link.Ends[1-i], port); err != nil {
				return err
			}
			at = slices.IndexFunc(l.Record.External, func(x external) bool { return x.MAC == port.MAC.String() })
			if at < 0 {
				continue
			}
		}
		if e.Carrier != nil && port == nil || at < 0 { // it was made by the lab
			if err := inNamespaceFile(l.netPath(link.Ends[1-i].Node),
				func() error { return deleteOurs(e.Interface) }); err != nil {
				return err
			}
			l.forgetDevice(e.Interface)
			continue
		}
		if link.Wifi != nil {
			if err := l.endWifi(e.Interface); err != nil {
				return err
			}
		}
		if err := inNamespaceFile(l.netPath(link.Ends[1-i].Node), l.Record.External[at].sendHome); err != nil {
			return err
		}
		for _, lost := range l.Record.External[at].restore() {
			l.say(lost)
		}
		l.Record.External = slices.Delete(l.Record.External, at, at+1)
		l.forgetDevice(e.Interface)
	}
	return l.saveRecord()
}

// say reports a problem to the lab's owner.
func (l *Lab) say(what string) {
	l.owner.OnLoop(what)
}
