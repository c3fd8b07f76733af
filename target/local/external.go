package local

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/target/local/wifi"
	"trivet.dev/trivet/topology"
)

// takeExternal moves an interface of the machine into the namespace of the link's node.
func (l *Lab) takeExternal(link *topology.Link) error {
	within, outside := link.Ends[0], link.Ends[1]
	if within.External() {
		within, outside = outside, within
	}
	if outside.Carrier != nil {
		return l.makeCarried(link, within, *outside.Carrier)
	}
	dev, err := netlink.LinkByName(outside.Interface)
	if err != nil {
		return fmt.Errorf("link %s: the machine has no interface %s: %w", link.Name(), outside.Interface, err)
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
		if l.note(within.Node, dev); link.Down {
			return nil
		}
		return netlink.LinkSetUp(dev) // moving it has set it down
	})
}

// beAccessPoint makes an interface what it must be before a Linux bridge takes it.
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
		if e.Carrier != nil {
			if err := inNamespaceFile(l.netPath(link.Ends[1-i].Node), func() error { return deleteOurs(e.Interface) }); err != nil {
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
		at := slices.IndexFunc(l.Record.External, func(x external) bool { return x.Name == e.Interface })
		if at < 0 {
			continue
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

// say reports something that is not as it should be to the lab's owner.
func (l *Lab) say(what string) {
	l.owner.OnLoop(what)
}
