package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
)

// What goes to a subnet may be led over several paths at once, in parts: each is the packets of one
// protocol with certain bits in their source port, so that all packets of a connection are in one
// part. Parts have entries of their own, two priorities above the subnet's, at all routers that
// have a route there. As each part has one path, parts cannot lead in circles, as weighted groups
// at several routers could whose hashes are not the same.

// Traffic is what goes to a subnet, or one of its parts.
type Traffic struct {
	To   netip.Prefix
	Part Part
}

// Part says which packets to a subnet are meant. The zero value is those in no other part: all of
// them where there is no other.
type Part struct {
	Proto uint8 // TCP or UDP; 0: see above
	Index uint8 // less than parts
}

const (
	// parts is how many there are of a protocol, and partShift where their bits are in a port. The
	// lowest bit is not of use: Linux gives even ports to those who connect.
	parts, partShift = 8, 1

	abovePrefix = 2 // in priority: beside its own, a prefix may have hairpins
)

// Parts lists the parts of what goes to a subnet, without the rest.
func (a *App) Parts(t Traffic) (out []Traffic) {
	for _, proto := range []uint8{openflow.IPProtoTCP, openflow.IPProtoUDP} {
		for i := range uint8(parts) {
			out = append(out, Traffic{t.To, Part{proto, i}})
		}
	}
	return out
}

// Compare orders traffic by subnet and part.
func (t Traffic) Compare(o Traffic) int {
	return cmp.Or(t.To.Compare(o.To), cmp.Compare(t.Part.Proto, o.Part.Proto), cmp.Compare(t.Part.Index, o.Part.Index))
}

// String is "10.0.1.0/24", or "10.0.1.0/24 tcp 3/8", which is the third of eight parts.
func (t Traffic) String() string {
	if t.Part == (Part{}) {
		return t.To.String()
	}
	return t.To.String() + " " + t.Part.String()
}

func (p Part) String() string {
	switch p.Proto {
	case openflow.IPProtoTCP:
		return fmt.Sprintf("tcp %d/%d", p.Index+1, parts)
	case openflow.IPProtoUDP:
		return fmt.Sprintf("udp %d/%d", p.Index+1, parts)
	}
	return ""
}

// key is where the entry of some traffic stands.
func (t Traffic) key() controller.RuleKey {
	k := routeKey(t.To)
	if t.Part == (Part{}) {
		return k
	}
	port := openflow.TCPSrc
	if t.Part.Proto == openflow.IPProtoUDP {
		port = openflow.UDPSrc
	}
	k.Priority += abovePrefix
	k.Match = k.Match.With(openflow.IPProto(t.Part.Proto)).With(port(uint16(t.Part.Index) << partShift).WithMask64((parts - 1) << partShift))
	return k
}

// trafficOf returns which traffic an entry forwards; false where it is none of a route. A
// hairpin's is the same.
func trafficOf(m *openflow.FlowMod) (t Traffic, is bool) {
	if t.To, is = routePrefix(m); !is || !isPart(m) {
		return t, is
	}
	proto, has := m.Match.Get(openflow.FieldIPProto)
	port, hasTCP := m.Match.Get(openflow.FieldTCPSrc)
	if !hasTCP {
		port, is = m.Match.Get(openflow.FieldUDPSrc)
	}
	t.Part = Part{uint8(proto.Value.Lo), uint8(port.Value.Lo >> partShift & (parts - 1))}
	return t, has && is
}

// isPart says whether an entry of a route is one for a part.
func isPart(m *openflow.FlowMod) bool { return (m.Priority-priorityRoute)%priorityStep >= abovePrefix }

// wayOf returns a router's route for some traffic: of a part the way that it is steered by, or else
// that which the subnet has without being steered; nil: there is none.
func (n *network) wayOf(router int, t Traffic) *Route {
	if t.Part == (Part{}) {
		r := n.route(router, t.To)
		if r == nil && n.onDemand && t.To.IsSingleIP() {
			r = n.lookup(router, t.To.Addr()) // see towards
		}
		return r
	}
	_, home := n.routeAndHome(router, t.To)
	h, is := n.balanced[t][router]
	if own := n.routers[router].distance(Balanced); home == nil || !is || home.Distance < own || own == rib.Never {
		return home
	}
	steered := *home
	steered.Source, steered.Hops = Balanced, []Hop{h}
	return &steered
}

// partsOf are the parts that what goes to a prefix is led in, in order.
func (n *network) partsOf(p netip.Prefix) []Traffic { return n.divided[p] }

// compareParts finds which entries for parts a switch lacks, and calls want with each that it is to
// have. Parts that are no more take the prefix's way, in the same order as all that changes; who
// removes them afterwards then changes nothing.
func (n *node) compareParts(routes map[netip.Prefix]*Route, want func(t Traffic, r *Route, w way), ends func(t Traffic, r *Route, w way)) {
	usable := func(p netip.Prefix) bool {
		r := routes[p]
		return r != nil && r.Source != Connected && !r.Drop && n.wanted(r)
	}
	known := map[Traffic]bool{}
	for p, list := range n.net.divided {
		if !usable(p) {
			continue
		}
		for _, t := range list {
			known[t] = true
			n.offerPart(t, want)
		}
	}
	for _, m := range n.rules.Flows() {
		t, is := trafficOf(m)
		if !is || t.Part == (Part{}) || known[t] || !usable(t.To) {
			continue
		}
		known[t] = true
		n.offerPart(t, ends)
	}
}

// offerPart gives the way of some traffic to f, unless none of its next hops is known: then the
// prefix's own entry has the controller ask.
func (n *node) offerPart(t Traffic, f func(t Traffic, r *Route, w way)) {
	r := n.net.wayOf(n.index, t)
	if r == nil || r.Source == Connected || r.Drop {
		return
	}
	if hops := n.resolved(r); len(hops) > 0 {
		f(t, r, n.wayAt(t.key(), hops))
	}
}

// divide notes which prefixes are led in parts.
func (n *network) divide(parts []Traffic) {
	n.divided = map[netip.Prefix][]Traffic{}
	slices.SortFunc(parts, Traffic.Compare)
	for _, t := range parts {
		n.divided[t.To] = append(n.divided[t.To], t)
	}
}
