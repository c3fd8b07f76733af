package topology

import (
	"fmt"
	"net/netip"
	"slices"
)

// MTUs, in bytes of an IP packet.
const (
	MTU     = 1500 // of a link that nobody has given another
	MinMTU  = 68   // RFC 791, section 3.2
	MinMTU6 = 1280 // with IPv6: RFC 8200, section 5
	MaxMTU  = 9216 // the limit of switches that pass jumbo frames
)

// CheckMTU reports MTUs of a link of a resolved topology with which a protocol over it does not
// work.
func (l *Link) CheckMTU(node func(name string) *Node) (problems Problems) {
	for i, e := range l.Ends {
		mtu, n := l.MTUAt(i), node(e.Node)
		if mtu < MinMTU6 && slices.ContainsFunc(e.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
			problems.Add(l.Pos, fmt.Sprintf("write %d or more, or ipv6: off", MinMTU6),
				"link %s: IPv6 does not work with an MTU of %d", l.Name(), mtu)
			continue
		}
		if n == nil {
			continue
		}
		for _, p := range n.Speaks() {
			if p.LeastMTU == nil {
				continue
			}
			if least := p.LeastMTU(l, n); mtu < least {
				problems.Add(l.Pos, fmt.Sprintf("write %d or more, or %s: off", least, p.Name),
					"link %s: %s does not work with an MTU of %d", l.Name(), p.Title, mtu)
			}
		}
	}
	return problems
}

// mtus checks the MTUs of links, also as events change them.
func (r *resolver) mtus() {
	node := func(name string) *Node { return r.nodes[name] }
	for _, l := range r.t.Links {
		r.problems = append(r.problems, l.CheckMTU(node)...)
	}
	for _, e := range r.t.Schedule {
		l := r.t.FindLink(e.Action.Ends[0], e.Action.Ends[1])
		if l == nil || e.Action.Change.MTU == nil {
			continue
		}
		l = l.Clone()
		l.Pos = e.Pos
		e.Action.Change.Apply(l)
		r.problems = append(r.problems, l.CheckMTU(node)...)
	}
}
