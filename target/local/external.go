package local

import (
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// takeExternal moves an interface of the machine into the namespace of the link's node.
func (l *Lab) takeExternal(link *topology.Link) error {
	within, outside := link.Ends[0], link.Ends[1]
	if within.External() {
		within, outside = outside, within
	}
	if outside.Carrier != nil {
		return l.makeTunnel(link, within, *outside.Carrier)
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

// makeTunnel makes the end of a tunnel to another site the device of a node here. The kernel makes
// it in its place at once, so there is never anything in the machine's own namespace to clean up.
func (l *Lab) makeTunnel(link *topology.Link, at topology.Endpoint, c topology.Carrier) error {
	ns, err := l.netnsOf(at.Node)
	if err != nil {
		return err
	}
	defer ns.Close()
	b, err := l.carrierBatch(c)
	if err != nil {
		return err
	}
	defer b.Close()
	d := netbatch.Device{Name: at.Interface, MAC: at.MAC, NS: ns, MTU: MTU}
	if !ownsNamespaces(l.node(at.Node)) {
		d.Index = l.newIndex(at.Interface)
	}
	b.AddVXLAN(d, c, false)
	if err := b.Flush(); err != nil {
		return fmt.Errorf("link %s: %w", link.Name(), tunnelTaken(err))
	}
	if link.Down || !ownsNamespaces(l.node(at.Node)) { // those of switches are set up together
		return nil
	}
	return inside.File(ns, func() error {
		dev, err := netlink.LinkByName(at.Interface)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(dev)
	})
}

// carrierBatch makes tunnels whose packets travel as a carrier's: in the machine's own network, or
// in the encrypted one.
func (l *Lab) carrierBatch(c topology.Carrier) (*netbatch.Batch, error) {
	if !c.Encrypted {
		return netbatch.New()
	}
	ns, err := os.Open(l.securePath())
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return netbatch.In(ns)
}

// releaseExternal moves an interface back and restores what it had.
func (l *Lab) releaseExternal(link *topology.Link) error {
	for i, e := range link.Ends {
		if !e.External() {
			continue
		}
		if e.Carrier != nil {
			if err := inNamespaceFile(l.netPath(link.Ends[1-i].Node), func() error { return netbatch.Delete(e.Interface) }); err != nil {
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
