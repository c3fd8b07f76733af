package local

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// A veth device has a carrier as long as both devices of the pair are up, and there is no other way
// to remove it: so one end of a link that is down is set down. If that end is a node's, the kernel
// forgets its routes, IPv6 addresses and permanent neighbours, which a node with a pulled cable
// keeps. They are saved here, and restored when the link is up.

// pulledEnd is what the kernel has forgotten of an end that was set down.
type pulledEnd struct {
	external
	Static    []topology.Route    `json:"static,omitempty"`    // those of the topology when it was set down
	Neighbors []topology.Neighbor `json:"neighbors,omitempty"` // likewise
}

func pulledKey(e topology.Endpoint) string { return e.Node + " " + e.Interface }

// keepPulled saves what the kernel will forget of the ends that steps set down.
func (l *Lab) keepPulled(s plan.Steps) error {
	changed := false
	for _, k := range s.SetLinks {
		if wire := l.WireOf(k.Link); !s.Plugged[k.Key] || !k.Down ||
			wire != datapath.Veth && wire != datapath.External {
			continue
		}
		e := l.cableEnd(k.Link)
		n := l.node(e.Node)
		if !n.Made().Open() {
			continue
		}
		err := l.inNet(e.Node, func() error {
			was, err := forgotten(e.Interface)
			if err != nil || was.Flags&unix.IFF_UP == 0 {
				return err
			}
			if l.Record.Pulled == nil {
				l.Record.Pulled = map[string]pulledEnd{}
			}
			l.Record.Pulled[pulledKey(e)], changed = pulledEnd{was, n.StaticRoutes(), n.Neighbors}, true
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return l.saveRecord()
}

// forgotten reads, in the thread's namespace, what the kernel will forget of a device once it is
// set down.
func forgotten(name string) (x external, err error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return x, err
	}
	a := dev.Attrs()
	x = external{Name: name, Index: a.Index, At: time.Now(), Flags: a.RawFlags & userFlags,
		Carrier:  a.OperState == netlink.OperUp,
		Settings: settingsOf(name), InPlace: true}
	if x.Addresses, err = addressMessages.of(x.Index); err != nil {
		return x, err
	}
	x.Addresses = slices.DeleteFunc(x.Addresses,
		func(m []byte) bool { return m[0] != unix.AF_INET6 || addressMessages.addedByKernel(m) })
	if x.Permanent, err = neighbourMessages.of(x.Index); err != nil {
		return x, err
	}
	x.Routes, err = routeMessages.of(x.Index)
	x.Routes = slices.DeleteFunc(x.Routes, func(m []byte) bool { return addsAgain(m[5]) })
	return x, err
}

// addsAgain says whether the origin of a route (rtm_protocol) adds it again by itself: the kernel
// with an address, from a router advertisement, or a routing daemon (/etc/iproute2/rt_protos).
func addsAgain(protocol byte) bool {
	const gated, mrouted, babel, bgp, lastOfFRR = unix.RTPROT_GATED, unix.RTPROT_MROUTED, unix.RTPROT_BABEL, 186, 199
	switch {
	case protocol == unix.RTPROT_KERNEL, protocol == unix.RTPROT_REDIRECT, protocol == mrouted, protocol == babel:
		return true
	}
	return protocol >= gated && protocol < unix.RTPROT_DHCP || protocol >= bgp && protocol <= lastOfFRR
}

// putBack sets an end up that was set down because its link was, and restores what the kernel has
// forgotten. Of the topology's routes, it restores the current ones.
func (l *Lab) putBack(n *topology.Node, e topology.Endpoint, was pulledEnd) error {
	return l.inNet(n.Name, func() error {
		dev, err := netlink.LinkByName(e.Interface)
		if err != nil {
			return err
		}
		var lost []string
		was.restoreNetwork(dev, func(what string, err error) { lost = was.lose(lost, what, err) })
		for _, what := range lost {
			l.say(what)
		}
		b, err := netbatch.New()
		if err != nil {
			return err
		}
		defer b.Close()
		now, index := n.StaticRoutes(), dev.Attrs().Index
		for _, r := range was.Static {
			if over(e, r) && !slices.Contains(now, r) {
				b.DelRoute(r, device(e, r, index), n.TableOf(r, []*topology.Endpoint{&e}))
			}
		}
		_ = b.Flush() // fails for routes that are not there any more
		for _, r := range now {
			if over(e, r) && !slices.Contains(was.Static, r) {
				b.AddRoute(r, device(e, r, index), n.TableOf(r, []*topology.Endpoint{&e}))
			}
		}
		if err := explainRoute(b.Flush()); err != nil {
			return err
		}
		return setNeighbors(b, &topology.Node{Neighbors: at(e, n.Neighbors)},
			&topology.Node{Neighbors: at(e, was.Neighbors)}, map[string]int{e.Interface: index}, nil)
	})
}

// at returns the neighbours at an end.
func at(e topology.Endpoint, all []topology.Neighbor) []topology.Neighbor {
	return slices.DeleteFunc(slices.Clone(all), func(x topology.Neighbor) bool { return x.Device != e.Interface })
}

// over says whether a route leads over an end.
func over(e topology.Endpoint, r topology.Route) bool {
	return r.Device == e.Interface ||
		slices.ContainsFunc(e.Addresses, func(p netip.Prefix) bool { return p.Contains(r.Via) })
}

// device returns the index of the device if a route names it, or 0.
func device(e topology.Endpoint, r topology.Route, index int) int {
	if r.Device == e.Interface {
		return index
	}
	return 0
}

// forgetPulled drops what was saved for links: it has been restored, or the links are removed.
func (l *Lab) forgetPulled(links ...plan.Link) error {
	had := len(l.Record.Pulled)
	for _, k := range links {
		delete(l.Record.Pulled, pulledKey(l.cableEnd(k.Link)))
	}
	if had == len(l.Record.Pulled) {
		return nil
	}
	return l.saveRecord()
}
