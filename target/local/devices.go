package local

import (
	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/netbatch"
)

// raiseDevices sets up the devices of switches, each only once: if somebody then sets one down, it
// stays down.
func (l *Lab) raiseDevices() error {
	b, err := netbatch.In(l.fabric)
	if err != nil {
		return err
	}
	defer b.Close()
	for _, link := range l.Topology().Links {
		for i, e := range link.Ends {
			name, at := e.Interface, e // at: the port
			if e.External() {
				at = link.Ends[1-i]
			}
			index := l.index[name]
			switch {
			case index == 0:
			case link.Down:
				delete(l.raised, name)
			case l.raised[name] != index && !l.port(at).Shut:
				l.raised[name] = index
				b.SetUp(name, index, true)
			}
		}
	}
	return b.Flush()
}

// note records a device that others made, if it is in the switches' namespace.
func (l *Lab) note(node string, dev netlink.Link) {
	if !ownsNamespaces(l.node(node)) {
		l.index[dev.Attrs().Name] = dev.Attrs().Index
	}
}
