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

// Traffic to a subnet may take several paths at once: in parts, each of which is the packets of one
// protocol with certain bits in their ports, so that all packets of a connection are in one part;
// or flow by flow, see flows.go. Parts have entries of their own, above the subnet's. Each has a
// single path, so they cannot loop, as they could with weighted groups at several routers whose
// hashes differ.

// Traffic is the packets to a subnet, or a part of them.
type Traffic struct {
	To   netip.Prefix
	Part Part
}

// Part selects some of the packets to a subnet. The zero value selects those in no other part: all
// of them if there is none.
type Part struct {
	Proto uint8 // TCP or UDP; 0: see above
	Index uint8 // less than parts; or each
	Flow  Flow  // if not zero, only this flow
}

const (
	// parts is the number of parts per protocol, from two bits of each port. Both ports are used
	// because one of them is always the same in traffic from or to one server. The lowest bit is
	// not used, because Linux gives clients even ports.
	parts, portValues, portShift = 16, 4, 1

	// each stands for all flows that have no entry of their own yet.
	each = 0xff
)

// The kinds of a route's entries, by their priority above that of the prefix. Hairpins are one
// above.
const (
	forPrefix, forPart, forFlow = 0, 2, 4
	priorityStep                = 6 // between consecutive prefix lengths
)

// Parts lists the parts of traffic to a subnet, without the rest: all parts, or with flows the one
// that stands for all flows.
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

// ported lists the protocols that can be divided.
var ported = []uint8{openflow.IPProtoTCP, openflow.IPProtoUDP}

// Whole returns the traffic to the same subnet, undivided.
func (a *App) Whole(t Traffic) Traffic { return Traffic{To: t.To} }

// Compare orders traffic by subnet and part.
func (t Traffic) Compare(o Traffic) int {
	return cmp.Or(t.To.Compare(o.To), cmp.Compare(t.Part.Proto, o.Part.Proto), cmp.Compare(t.Part.Index, o.Part.Index),
		t.Part.Flow.compare(o.Part.Flow))
}

// String is "10.0.1.0/24"; "10.0.1.0/24 tcp 3/16", the third of sixteen parts; or the same with a
// flow in place of the part.
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

// key is the table, priority and match of the entry for some traffic.
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

// isPart reports whether an entry of a route is for a part of its traffic.
func isPart(m *openflow.FlowMod) bool { return kindOf(m) != forPrefix }

func kindOf(m *openflow.FlowMod) uint16 { return (m.Priority - priorityRoute) % priorityStep &^ 1 }

// trafficOf returns the traffic that an entry, or its hairpin, forwards; false: it belongs to no
// route.
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

// wayOf returns a router's route for some traffic. A part has the way given by Steer, or else its
// subnet's; nil: there is none.
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

// partOf returns the route for a part, from a table that has those to its subnet.
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

// stages returns the steered ways to apply one after the other, from was to wanted. Parts leave
// their subnet's way only after everything else has changed: where they have no entry of their own
// they follow the subnet's.
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

// divide records which subnets' traffic is divided.
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

// partsAt lists the parts of traffic to a subnet for which a router has entries.
func (n *node) partsAt(p netip.Prefix) (out []Traffic) {
	for _, t := range n.net.divided[p] {
		switch {
		case t.Part.Index == each:
			out = append(out, unheard(p)...)
		case t.Part.Flow == Flow{}:
			out = append(out, t)
		case n.flows[t].IsZero() && n.steers(t): // the flow has not passed here yet, but is to
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

// steers reports whether some traffic has another way here than its subnet.
func (n *node) steers(t Traffic) bool {
	_, ok := n.net.balanced[t][n.index]
	return ok
}

// compareParts calls want with the way of each part that needs an entry, and ends for each part
// that has an entry but no longer exists. The latter first takes its subnet's way, in the order of
// all changes, so that removing its entry then changes nothing. entries are the router's current
// entries.
func (n *node) compareParts(routes map[netip.Prefix]*Route, entries []*openflow.FlowMod, want,
	ends func(t Traffic, r *Route, w way)) {
	usable := func(p netip.Prefix) bool {
		r := routes[p]
		return r != nil && r.Source != Connected && !r.Drop && n.wanted(r)
	}
	n.dropFlows()
	known := map[Traffic]bool{}
	for p := range n.net.divided {
		list := n.partsAt(p)
		if !usable(p) { // but whatever is steered here matches an entry
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

// putParts installs the ways of all parts of traffic to a prefix.
func (n *node) putParts(p netip.Prefix) {
	n.offerParts(p, n.partsAt(p), func(_ Traffic, _ *Route, w way) { _ = n.put(w) })
}

// offerParts calls f with the ways of parts of traffic to a prefix. It skips those without a known
// next hop: packets then match the prefix's own entry, and the controller resolves it.
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

// partWay returns the way of some traffic by these hops.
func (n *node) partWay(t Traffic, hops []Hop) way {
	w := n.wayAt(t.key(), hops)
	for _, m := range w.flows {
		switch {
		case t.Part.Index == each && n.listening():
			n.listen(m)
		case t.Part.Flow != Flow{} && !n.steers(t): // a steered flow that has ended is removed
			m.IdleTimeout, m.Flags = flowIdle, openflow.FlowSendFlowRem
		}
	}
	return w
}
