package local

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
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
	if err := netlink.LinkSetNsFd(dev, int(ns.Fd())); err != nil {
		return fmt.Errorf("move interface %s into the lab: %w", outside.Interface, err)
	}
	return inside.File(ns, func() error {
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
