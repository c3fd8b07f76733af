package verify

import (
	"net/netip"
	"slices"

	"trivet.dev/trivet/topology"
)

// sizes are the sizes of a stream's full packets before and after a direction.
type sizes struct {
	before, behind int // frames, in bytes of layer 2; 0: none came
	by             string
}

// judgeMTUs judges each direction by full packets: by the stream whose largest packets came to it,
// and among several by the one of which most came through.
func (v *verifier) judgeMTUs(traces []*trace) {
	best := map[hop]sizes{}
	for _, t := range traces {
		before := t.frame
		for i := 1; i < len(t.points); i++ {
			here := t.points[i]
			behind := here.largest
			if behind == 0 && i == len(t.points)-1 && t.cameFull(here) {
				behind = before // the receiver's socket does not know their size on the wire
			}
			for k, h := range here.hops {
				if k < len(here.hops)-1 && behind < before {
					continue // on links without devices it is unknown where they ended
				}
				s := sizes{before, behind, t.name()}
				if b, ok := best[h]; before > smallest && len(here.at) > 0 &&
					(!ok || s.behind > b.behind || s.behind == b.behind && s.before > b.before) {
					best[h] = s
				}
			}
			before = min(before, behind)
		}
	}
	for h, s := range best {
		c := v.check(h, MTU)
		if c == nil {
			continue
		}
		said := Check{Asked: c.Asked}
		if v.takes[h] = 0; judgeMTU(&said, s) == Wrong {
			v.takes[h] = max(s.behind, smallFrame)
		}
		if c.Verdict == Wrong && len(c.By) == 0 {
			continue // the check of its device reports it
		}
		if said.Verdict == Wrong && (v.tunnels(v.near(h)) || v.tunnels(v.far(h))) {
			said.untold("packets may have gone through a tunnel, which takes smaller ones")
		}
		c.Verdict, c.Got, c.Why, c.By = said.Verdict, said.Got, said.Why, []string{s.by}
	}
}

// smallFrame is the size of frames over a direction that passes no full packets, in bytes of layer
// 2.
const smallFrame = 576 + ethernet

// cameFull says whether one of a stream's full packets passed a point.
func (t *trace) cameFull(p point) bool {
	for n := max(0, t.sent-t.full); n < t.sent; n++ {
		if _, ok := p.at[uint64(n)]; ok {
			return true
		}
	}
	return false
}

// judgeMTU judges by the largest packets that came to a direction, and through it.
func judgeMTU(c *Check, s sizes) Verdict {
	mtu := int(c.Asked)
	switch {
	case s.behind >= mtu+ethernet:
		c.set(c.Asked)
	case s.before < mtu+ethernet && s.behind >= s.before:
		c.untold("no way that was tried takes packets of %d bytes", mtu)
	case s.behind <= smallest:
		c.wrong(0, "no packet of %d bytes came through it", min(mtu, s.before-ethernet))
	default:
		c.wrong(float64(s.behind-ethernet), "packets of %d bytes come through it, but none of %d", s.behind-ethernet,
			min(mtu, s.before-ethernet))
	}
	return c.Verdict
}

// smallest is the maximum size of a survey's small frames.
const smallest = 14 + 40 + 8 + 20

// checkMTUs compares the devices at both ends of links with the topology: packets from nodes cannot
// show that a device takes larger ones than it should, as the nodes' own devices do not send these.
func (v *verifier) checkMTUs(there map[string]*seen) {
	for i, l := range v.t.Links {
		if !v.hasDevice(i) {
			continue
		}
		for end, e := range l.Ends {
			n := v.nodes[e.Node]
			s := there[v.placeOf(e.Node)]
			if s == nil || n.Native && n.Kind == topology.Switch {
				continue // its ports keep their MTU
			}
			k := slices.IndexFunc(s.Devices, func(d device) bool { return d.Name == e.Interface })
			c := v.check(hop{i, end}, MTU)
			if k < 0 || c == nil {
				continue
			}
			switch d, want := s.Devices[k], l.MTUAt(end); {
			case d.MTU != want:
				c.wrong(float64(d.MTU), "%s takes packets of %d bytes, not of %d", e.Interface, d.MTU, want)
			case d.MTU6 > 0 && d.MTU6 < want && own(n) &&
				slices.ContainsFunc(e.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }):
				c.wrong(float64(d.MTU6), "%s takes packets of IPv6 of %d bytes, not of %d", e.Interface, d.MTU6, want)
			}
		}
	}
}

// placeOf returns the node in which another's namespace is read.
func (n *network) placeOf(node string) string {
	if own(n.nodes[node]) {
		return node
	}
	return n.fabrics[n.siteOf(node)]
}

// tunnels says whether a node encapsulates packets.
func (n *network) tunnels(node string) bool {
	return n.nodes[node] != nil && slices.ContainsFunc(n.nodes[node].Interfaces, func(i topology.Interface) bool {
		return i.VXLAN != 0 || i.GRE.IsValid()
	})
}
