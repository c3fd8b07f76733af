package local

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/topology"
)

// external is a real interface of the machine, as it was before it became an end of a link.
type external struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses,omitempty"`
	Up        bool     `json:"up"`
}

// takeExternal moves an interface of the machine into the namespace of the link's node.
func (l *Lab) takeExternal(link *topology.Link) error {
	within, outside := link.Ends[0], link.Ends[1]
	if within.External() {
		within, outside = outside, within
	}
	dev, err := netlink.LinkByName(outside.Interface)
	if err != nil {
		return fmt.Errorf("link %s: the machine has no interface %s: %w", link.Name(), outside.Interface, err)
	}
	was := external{Name: outside.Interface, Up: dev.Attrs().Flags&1 != 0}
	addresses, err := netlink.AddrList(dev, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			was.Addresses = append(was.Addresses, a.IPNet.String())
		}
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
		return l.plug(within.Node, dev)
	})
}

// releaseExternal moves an interface back and gives it what it had.
func (l *Lab) releaseExternal(link *topology.Link) error {
	for i, e := range link.Ends {
		if !e.External() {
			continue
		}
		at := slices.IndexFunc(l.Record.External, func(x external) bool { return x.Name == e.Interface })
		if at < 0 {
			continue
		}
		if err := inNamespaceFile(l.netPath(link.Ends[1-i].Node), func() error { return sendHome(e.Interface) }); err != nil {
			return err
		}
		if err := l.Record.External[at].restore(); err != nil {
			return err
		}
		l.Record.External = slices.Delete(l.Record.External, at, at+1)
		delete(l.index, e.Interface)
	}
	return l.saveRecord()
}

// sendHome moves a device from the namespace of the thread to the machine's. One that is not there is no error.
func sendHome(name string) error {
	dev, err := netlink.LinkByName(name)
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
	return errors.Join(netlink.LinkSetNoMaster(dev), netlink.LinkSetNsFd(dev, int(home.Fd())))
}

// restore gives an interface that is back its addresses and its state.
func (x external) restore() error {
	dev, err := netlink.LinkByName(x.Name)
	if err != nil {
		return nil // it is gone from the machine altogether
	}
	for _, a := range x.Addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(dev, addr); err != nil {
			return err
		}
	}
	if x.Up {
		return netlink.LinkSetUp(dev)
	}
	return nil
}
