package local

import (
	"maps"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// End is the present state of a link's end, whoever brought it about.
type End struct {
	Interface string   `json:"interface"`
	State     EndState `json:"state"`
	MTU       int      `json:"mtu,omitempty" doc:"Of the device; an end without has none"`
	Problem   string   `json:"problem,omitempty" doc:"Why the state is not known"`

	Line *delayline.Direction `json:"line,omitempty" doc:"What became of the packets that left here, of a link with a delay line"`
}

// MTU is that of devices for which nobody has set another.
const MTU = topology.MTU

// EndState says whether packets can leave through an end of a link.
type EndState string

const (
	EndUp     EndState = "up"
	EndDown   EndState = "down"       // it is set down
	EndDark   EndState = "no carrier" // the other end is set down, or nothing is there
	EndAbsent EndState = "gone"       // somebody has deleted the device

	EndUnknown EndState = "unknown" // its site does not say
)

// Ends returns the present state of the ends of the lab's links, in the order of the topology's
// links.
func (l *Lab) Ends() ([][2]End, error) {
	out := make([][2]End, len(l.Topology().Links))
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
			out[i][j] = End{Interface: e.Interface, State: EndUp}
			if line != nil && e.Carrier == nil {
				out[i][j].Line = &left[j]
			}
			switch {
			case wire.Inner():
				switch port := l.port(e); {
				case port.Shut:
					out[i][j].State = EndDown
				case port.Dark || k.Down:
					out[i][j].State = EndDark
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
			name := e.Interface
			if far := l.Topology().Links[a.link].Ends[1-a.end]; far.External() {
				name = far.Interface
			}
			e.State, e.MTU = EndAbsent, 0
			if d := have[name]; d != nil {
				e.State, e.MTU = stateOf(d), d.MTU
			}
		}
		return err
	})
	return out, err
}

func stateOf(d *netlink.LinkAttrs) EndState {
	switch {
	case d.RawFlags&unix.IFF_UP == 0:
		return EndDown
	case d.RawFlags&unix.IFF_LOWER_UP == 0:
		return EndDark
	}
	return EndUp
}
