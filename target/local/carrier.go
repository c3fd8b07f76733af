package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// awaitCarriers waits until the devices of links that are new, or up again, are running: the kernel
// notices a carrier some time after the other end has come up, and sends nothing until then. If
// somebody has set an end down, there is nothing to wait for.
func (l *Lab) awaitCarriers(ctx context.Context, s plan.Steps, done func()) error {
	links := slices.Clone(s.AddLinks)
	for _, k := range s.SetLinks {
		if !s.Plugged[k.Key] || k.Down {
			continue
		}
		up, err := l.raisedEnds(k.Link)
		if err != nil {
			return err
		}
		if up {
			links = append(links, k)
		}
	}
	devices := map[string][]string{} // by node; switches' by ""
	for _, k := range links {
		if wire := l.WireOf(k.Link); k.Down || wire.Inner() || wire == datapath.External {
			continue
		}
		if l.port(k.Ends[0]).Shut || l.port(k.Ends[1]).Shut {
			continue
		}
		for _, e := range k.Ends {
			if e.External() {
				continue
			}
			node := e.Node
			if !ownsNamespaces(l.node(node)) {
				node = ""
			}
			devices[node] = append(devices[node], e.Interface)
		}
	}
	if err := l.masters(s, devices); err != nil {
		return err
	}
	nodes := make([]string, 0, len(devices))
	for node := range devices {
		nodes = append(nodes, node)
	}
	within, cancel := patience.Carrier.Context(ctx)
	defer cancel()
	err := parallel.Each(nodes, func(node string) error {
		if err := l.awaitRunning(within, node, devices[node]); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.awaitStations(ctx, s)
	for range s.AddLinks {
		done()
	}
	return nil
}

// masters adds to devices, which are waited for by node, the bridges and bonds of nodes that steps
// change and those at the other end of a link, if they are reached over links that are up: a bond
// notices a carrier with a delay.
func (l *Lab) masters(s plan.Steps, devices map[string][]string) error {
	touched := map[string]bool{}
	for node := range devices {
		touched[node] = true
	}
	for _, c := range s.SetNodes {
		touched[c.New.Name] = true
	}
	passedOn := map[string]map[string]*topology.Interface{}
	for _, n := range s.New.Nodes {
		if len(n.Interfaces) > 0 {
			passedOn[n.Name] = n.PassedOn()
		}
	}
	if len(passedOn) == 0 {
		return nil
	}
	for _, k := range s.New.Links {
		wire := l.WireOf(k)
		switch {
		case k.Down || !touched[k.Ends[0].Node] && !touched[k.Ends[1].Node]:
			continue
		case wire != datapath.Veth && wire != datapath.Line: // who is at its other end is not known here
			continue
		case l.port(k.Ends[0]).Shut || l.port(k.Ends[1]).Shut:
			continue
		}
		for _, e := range k.Ends {
			master := passedOn[e.Node][e.Interface]
			if master == nil || master.VLAN != 0 || slices.Contains(devices[e.Node], master.Name) {
				continue
			}
			up, err := l.raisedEnds(k)
			if err != nil {
				return err
			}
			if up {
				devices[e.Node] = append(devices[e.Node], master.Name)
			}
		}
	}
	return nil
}

// raisedEnds says whether both ends of a link with devices are set up.
func (l *Lab) raisedEnds(k *topology.Link) (up bool, err error) {
	if wire := l.WireOf(k); wire != datapath.Veth && wire != datapath.Line {
		return false, nil
	}
	up = true
	for _, e := range k.Ends {
		if e.External() {
			continue
		}
		err := l.inNet(e.Node, func() error {
			dev, err := netlink.LinkByName(e.Interface)
			up = up && err == nil && dev.Attrs().RawFlags&unix.IFF_UP != 0
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return up, nil
}

func (l *Lab) awaitRunning(ctx context.Context, node string, names []string) error {
	return l.inNet(node, func() error {
		b, err := netbatch.New()
		if err != nil {
			return err
		}
		defer b.Close()
		indexes := map[string]int{}
		for _, name := range names {
			if indexes[name] = l.index[name]; node != "" || indexes[name] == 0 {
				if indexes[name], err = indexOf(name); err != nil {
					return err
				}
			}
		}
		for {
			b.Running = map[int32]bool{}
			for name, index := range indexes {
				b.GetLink(name, index)
			}
			if err := b.Flush(); err != nil {
				return err
			}
			maps.DeleteFunc(indexes, func(_ string, index int) bool { return b.Running[int32(index)] })
			if len(indexes) == 0 {
				return nil
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				for name := range indexes {
					return fmt.Errorf("%s has no carrier after %s", name, patience.Carrier.Within(ctx.Err()))
				}
			}
		}
	})
}
