package local

import (
	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// addBridges makes the Linux bridges among the nodes.
func (l *Lab) addBridges(nodes []*topology.Node) error {
	b, err := netbatch.In(l.fabric)
	if err != nil {
		return err
	}
	defer b.Close()
	for _, n := range nodes {
		if n.Kind == topology.Switch && n.Datapath == topology.Bridge {
			name := topology.DeviceName(n.Name)
			b.AddBridge(name, l.newIndex(name), n.STP)
		}
	}
	return b.Flush()
}

// dropBridge removes a Linux bridge; those of Open vSwitch go with the next applySwitches.
func (l *Lab) dropBridge(n *topology.Node) error {
	if n.Datapath != topology.Bridge {
		return nil
	}
	name := topology.DeviceName(n.Name)
	delete(l.index, name)
	return l.inNet(n.Name, func() error { return deleteDevice(name) })
}

// raiseDevices sets up the devices of switches, once: one that somebody has set down since stays that. A device of a blocked link is out of its
// bridge: a port's state would not last, as a bridge without spanning tree makes all its
// ports forward again whenever one of them has something to tell. Where what bridges have
// learned may be stale they forget it.
func (l *Lab) raiseDevices(blocked map[*topology.Link]bool, stale bool) error {
	b, err := netbatch.In(l.fabric)
	if err != nil {
		return err
	}
	defer b.Close()
	b.SetUp("lo", 1, true)
	bridges := map[string]int{}
	for _, n := range l.Topology().Nodes {
		if n.Kind == topology.Switch && n.Datapath == topology.Bridge {
			bridges[n.Name] = l.index[topology.DeviceName(n.Name)]
			b.SetUp(n.Name, bridges[n.Name], true)
		}
	}
	var raise []func() // once all that is to be out is out, so that there is no loop at any time
	for _, link := range l.Topology().Links {
		for i, e := range link.Ends {
			name, at := e.Interface, e // at: the port
			if e.External() {
				at = link.Ends[1-i]
			}
			index := l.index[name]
			if index == 0 {
				continue
			}
			if bridge := bridges[at.Node]; bridge != 0 && blocked[link] != l.detached[name] {
				l.detached[name] = blocked[link]
				if blocked[link] {
					b.SetMaster(name, index, 0)
				} else {
					raise = append(raise, func() { b.SetMaster(name, index, bridge) })
				}
			}
			switch {
			case link.Down:
				delete(l.raised, name)
			case l.raised[name] != index && !l.shut(at.Node, at):
				l.raised[name] = index
				raise = append(raise, func() { b.SetUp(name, index, true) })
			}
		}
	}
	for _, f := range raise {
		f()
	}
	if stale {
		for name, index := range bridges {
			b.FlushBridge(name, index)
		}
	}
	return b.Flush()
}

// masterOf is the index of the bridge that a switch is, or 0.
func (l *Lab) masterOf(n *topology.Node) int {
	if n.Kind != topology.Switch || n.Datapath != topology.Bridge {
		return 0
	}
	return l.index[topology.DeviceName(n.Name)]
}

// plug puts a device in the switches' namespace into its bridge.
func (l *Lab) plug(node string, dev netlink.Link) error {
	n := l.node(node)
	if ownsNamespaces(n) {
		return nil
	}
	l.index[dev.Attrs().Name] = dev.Attrs().Index
	if master := l.masterOf(n); master != 0 {
		return netlink.LinkSetMasterByIndex(dev, master)
	}
	return nil
}
