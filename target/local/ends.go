package local

import (
	"maps"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// MTU is the MTU of devices for which nobody has set another.
const MTU = topology.MTU

// Ends returns the present state of the ends of the lab's links, in the order of the topology's
// links.
func (l *Lab) Ends() ([][2]lab.End, error) {
	out := make([][2]lab.End, len(l.Topology().Links))
	type at struct{ link, end int }
	devices := map[string][]at{} // by namespace
	keys := topology.LinkKeys(l.Topology())
	for i, k := range l.Topology().Links {
		wire := l.WireOf(k)
		var left delayline.Stats
		line := l.lines[keys[i]]
		if line != nil {
			left = line.Stats()
		}
		for j, e := range k.Ends {
			out[i][j] = lab.End{Interface: e.Interface, State: lab.EndUp}
			if line != nil && e.Carrier == nil {
				out[i][j].Line = &left[j]
			}
			switch {
			case wire.Inner():
				switch port := l.port(e); {
				case port.Shut:
					out[i][j].State = lab.EndDown
				case port.Dark || k.Down:
					out[i][j].State = lab.EndDark
				}
			case e.External(): // the same device as the link's other end: see there
			default:
				path := l.netPath(e.Node)
				devices[path] = append(devices[path], at{i, j})
			}
		}
	}
	var mu sync.Mutex
	err := parallel.Each(slices.Collect(maps.Keys(devices)), func(path string) error {
		have := map[string]*netlink.LinkAttrs{}
		err := inNamespaceFile(path, func() error {
			list, err := netlink.LinkList()
			for _, d := range list {
				have[d.Attrs().Name] = d.Attrs()
			}
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		for _, a := range devices[path] {
			e := &out[a.link][a.end]
			name := l.Topology().Links[a.link].DeviceAt(a.end)
			e.State, e.MTU = lab.EndAbsent, 0
			if d := have[name]; d != nil {
				e.State, e.MTU = stateOf(d), d.MTU
			}
		}
		return err
	})
	return out, err
}

func stateOf(d *netlink.LinkAttrs) lab.EndState {
	switch {
	case d.RawFlags&unix.IFF_UP == 0:
		return lab.EndDown
	case d.RawFlags&unix.IFF_LOWER_UP == 0:
		return lab.EndDark
	}
	return lab.EndUp
}
