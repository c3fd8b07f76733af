package routing

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
)

// What goes to a subnet may be led over several paths at once: in parts, each of which is the
// packets of one protocol with certain bits in their ports, so that all packets of a connection are
// in one; or each flow by itself, see flows.go. Both have entries of their own, above the subnet's.
// As each has one path, they cannot lead in circles, as weighted groups at several routers could
// whose hashes are not the same.

// Traffic is what goes to a subnet, or a part of it.
type Traffic struct {
	To   netip.Prefix
	Part Part
}

// Part says which packets to a subnet are meant. The zero value is those in no other part: all of
// them where there is no other.
type Part struct {
	Proto uint8 // TCP or UDP; 0: see above
	Index uint8 // less than parts; or each
	Flow  Flow  // where it is not zero, this flow alone
}

const (
	// parts is how many there are of a protocol: by two bits of each port, as of what one server
	// gets, or sends, one port is always the same. The lowest bit is not of use: Linux gives even
	// ports to those who connect.
	parts, portValues, portShift = 16, 4, 1

	// each stands for all flows that have no entry of their own yet.
	each = 0xff
)

// What an entry of a route is for, by its priority above that of the prefix. One more is a
// hairpin's.
const (
	forPrefix, forPart, forFlow = 0, 2, 4
	priorityStep                = 6 // from one length of prefixes to the next
)

// Parts lists the parts of what goes to a subnet, without the rest: all of a kind, or what stands
// for the flows.
func (a *App) Parts(t Traffic, flows bool) (out []Traffic) {
	if flows {
		return []Traffic{{t.To, Part{Index: each}}}
	}
	for _, proto := range ported {
		for i := range uint8(parts) {
			out = append(out, Traffic{t.To, Part{Proto: proto, Index: i}})
		}
	}
	return out
}

// ported are the protocols that can be divided.
var ported = []uint8{openflow.IPProtoTCP, openflow.IPProtoUDP}

// Whole is all of what goes where some traffic goes.
func (a *App) Whole(t Traffic) Traffic { return Traffic{To: t.To} }

// Compare orders traffic by subnet and part.
func (t Traffic) Compare(o Traffic) int {
	return cmp.Or(t.To.Compare(o.To), cmp.Compare(t.Part.Proto, o.Part.Proto), cmp.Compare(t.Part.Index, o.Part.Index), t.Part.Flow.compare(o.Part.Flow))
}

// String is "10.0.1.0/24", "10.0.1.0/24 tcp 3/16", which is the third of sixteen parts, or with a
// flow in place of that.
func (t Traffic) String() string {
	if t.Part == (Part{}) {
		return t.To.String()
	}
	return t.To.String() + " " + t.Part.String()
}

func (p Part) String() string {
	name := map[uint8]string{openflow.IPProtoTCP: "tcp", openflow.IPProtoUDP: "udp"}[p.Proto]
	switch {
	case p == Part{}:
		return ""
	case p.Index == each:
		return name + " flows"
	case p.Flow != Flow{}:
		return name + " " + p.Flow.String()
	}
	return fmt.Sprintf("%s %d/%d", name, p.Index+1, parts)
}

// key is where the entry of some traffic stands.
func (t Traffic) key() controller.RuleKey {
	k := routeKey(t.To)
	if t.Part == (Part{}) {
		return k
	}
	k.Priority += forPart
	k.Match = k.Match.With(openflow.IPProto(t.Part.Proto))
	src, dst := openflow.TCPSrc, openflow.TCPDst
	if t.Part.Proto == openflow.IPProtoUDP {
		src, dst = openflow.UDPSrc, openflow.UDPDst
	}
	switch f := t.Part.Flow; {
	case t.Part.Index == each:
	case f != Flow{}:
		k.Priority += forFlow - forPart
		from, to := openflow.IPv4Src, openflow.IPv4Dst
		if !f.Src.Is4() {
			from, to = openflow.IPv6Src, openflow.IPv6Dst
		}
		k.Match = k.Match.With(from(f.Src)).With(to(f.Dst)).With(src(f.SrcPort)).With(dst(f.DstPort))
	default:
		bits := func(of func(uint16) openflow.OXM, value uint8) openflow.OXM {
			return of(uint16(value) << portShift).WithMask64((portValues - 1) << portShift)
		}
		k.Match = k.Match.With(bits(src, t.Part.Index/portValues)).With(bits(dst, t.Part.Index%portValues))
	}
	return k
}

// isPart says whether an entry of a route is for a part of what goes there.
func isPart(m *openflow.FlowMod) bool { return kindOf(m) != forPrefix }

func kindOf(m *openflow.FlowMod) uint16 { return (m.Priority - priorityRoute) % priorityStep &^ 1 }

// trafficOf returns which traffic an entry forwards; false where it is none of a route. A
// hairpin's is the same.
func trafficOf(m *openflow.FlowMod) (t Traffic, is bool) {
	if t.To, is = routePrefix(m); !is || !isPart(m) {
		return t, is
	}
	number := func(fields ...openflow.Field) (n uint16, has bool) {
		for _, f := range fields {
			if o, has := m.Match.Get(f); has {
				return uint16(o.Value.Lo), true
			}
		}
		return 0, false
	}
	proto, _ := number(openflow.FieldIPProto)
	src, ported := number(openflow.FieldTCPSrc, openflow.FieldUDPSrc)
	dst, _ := number(openflow.FieldTCPDst, openflow.FieldUDPDst)
	t.Part.Proto = uint8(proto)
	switch {
	case kindOf(m) == forFlow:
		f := &t.Part.Flow
		for _, field := range []openflow.Field{openflow.FieldIPv4Src, openflow.FieldIPv6Src} {
			if o, has := m.Match.Get(field); has {
				f.Src = o.Addr()
			}
		}
		f.Dst, f.SrcPort, f.DstPort = t.To.Addr(), src, dst
		t.To, _ = f.Dst.Prefix(int(m.Priority-priorityRoute) / priorityStep)
	case !ported:
		t.Part.Index = each
	default:
		t.Part.Index = uint8(src>>portShift*portValues + dst>>portShift)
	}
	return t, true
}

// wayOf returns a router's route for some traffic: of a part the way that it is steered by, or else
// that of the subnet; nil: there is none.
func (n *network) wayOf(router int, t Traffic) *Route {
	if t.Part == (Part{}) {
		r := n.route(router, t.To)
		if r == nil && n.onDemand && t.To.IsSingleIP() {
			r = n.lookup(router, t.To.Addr()) // see towards
		}
		return r
	}
	return n.partOf(router, t, n.tableTo(router, t.To))
}

// partOf is the route for a part, by a table that has those to its subnet.
func (n *network) partOf(router int, t Traffic, of *table) *Route {
	r, home := of.both(t.To)
	h, ok := n.balanced[t][router]
	if home == nil || !ok {
		return r
	}
	steered := *home
	steered.Source, steered.Hops = Balanced, []Hop{h}
	return &steered
}

// stages are the ways to be steered by one after the other, from what was to what is wanted: parts
// take another way than their subnet only when nothing else changes any more, as where they have no
// entry of their own they follow the subnet's.
func stages(was, wanted map[Traffic]steer.Ways) []map[Traffic]steer.Ways {
	first := maps.Clone(wanted)
	for t, ways := range wanted {
		if t.Part != (Part{}) && !maps.Equal(ways, was[t]) {
			first[t] = was[t]
		}
	}
	for t := range wanted {
		if !maps.Equal(first[t], wanted[t]) {
			return []map[Traffic]steer.Ways{first, wanted}
		}
	}
	return []map[Traffic]steer.Ways{wanted}
}

// divide notes which subnets are led to in parts.
func (n *network) divide(parts []Traffic) {
	n.divided, n.leadsParts = map[netip.Prefix][]Traffic{}, map[int]bool{}
	slices.SortFunc(parts, Traffic.Compare)
	for _, t := range parts {
		n.divided[t.To] = append(n.divided[t.To], t)
		for router := range n.balanced[t] {
			n.leadsParts[router] = true
		}
	}
}

// partsAt are those parts of what goes to a subnet for which a router has entries.
func (n *node) partsAt(p netip.Prefix) (out []Traffic) {
	for _, t := range n.net.divided[p] {
		switch {
		case t.Part.Index == each:
			out = append(out, unheard(p)...)
		case t.Part.Flow == Flow{}:
			out = append(out, t)
		case n.flows[t].IsZero() && n.steers(t): // it is not known to come by here, but is to
			out = append(out, t)
		}
	}
	for t := range n.flows {
		if t.To == p {
			out = append(out, t)
		}
	}
	return out
}

// steers says whether some traffic has another way here than its subnet.
func (n *node) steers(t Traffic) bool {
	_, ok := n.net.balanced[t][n.index]
	return ok
}

// compareParts gives the way of each part that the router is to have an entry for to want, and of
// each that it has and that is no more to ends: it takes the subnet's way, in the same order as all
// that changes, so that removing its entry changes nothing then. entries are what it has.
func (n *node) compareParts(routes map[netip.Prefix]*Route, entries []*openflow.FlowMod, want, ends func(t Traffic, r *Route, w way)) {
	usable := func(p netip.Prefix) bool {
		r := routes[p]
		return r != nil && r.Source != Connected && !r.Drop && n.wanted(r)
	}
	n.dropFlows()
	known := map[Traffic]bool{}
	for p := range n.net.divided {
		list := n.partsAt(p)
		if !usable(p) { // but whatever is led here finds an entry
			list = slices.DeleteFunc(list, func(t Traffic) bool { return !n.steers(t) })
		}
		for _, t := range list {
			known[t] = true
		}
		n.offerParts(p, list, want)
	}
	for _, m := range entries {
		if !isRoute(controller.KeyOf(m)) || !isPart(m) {
			continue
		}
		n.settled = false
		if t, ok := trafficOf(m); ok && !known[t] && usable(t.To) {
			known[t] = true
			n.offerParts(t.To, []Traffic{t}, ends)
		}
	}
}

// putParts installs the ways of all parts of what goes to a prefix.
func (n *node) putParts(p netip.Prefix) {
	n.offerParts(p, n.partsAt(p), func(_ Traffic, _ *Route, w way) { _ = n.put(w) })
}

// offerParts gives the ways of parts of what goes to a prefix to f, but of those of which no next
// hop is known: then the prefix's own entry has the controller ask.
func (n *node) offerParts(p netip.Prefix, list []Traffic, f func(t Traffic, r *Route, w way)) {
	if len(list) == 0 {
		return
	}
	of := n.net.tableTo(n.index, p)
	for _, t := range list {
		r := n.net.partOf(n.index, t, of)
		if r == nil || r.Source == Connected || r.Drop {
			continue
		}
		if hops := n.resolved(r); len(hops) > 0 {
			f(t, r, n.partWay(t, hops))
		}
	}
}

// partWay is the way of some traffic by these hops.
func (n *node) partWay(t Traffic, hops []Hop) way {
	w := n.wayAt(t.key(), hops)
	for _, m := range w.flows {
		switch {
		case t.Part.Index == each && n.listening():
			n.listen(m)
		case t.Part.Flow != Flow{} && !n.steers(t): // what is led is taken back when it has ended
			m.IdleTimeout, m.Flags = flowIdle, openflow.FlowSendFlowRem
		}
	}
	return w
}
