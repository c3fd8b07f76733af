package api

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/openflow"
)

// begin sends the packet from its source.
func (w *walk) begin(from station, q PathQuery) {
	p, describe := newPacket(from, w.to, q)
	if from.router != nil {
		w.path.Packet = describe(p)
		s := step{hop: PathHop{Switch: from.name, Entries: []PathFlow{}}, dpid: from.router.DPID, at: p}
		w.fate = w.with(s, func() fate { return w.byRouting(&w.trail[0], *from.router, p) })
		return
	}
	src, dst, err := w.leave(from, w.to.address)
	if err != nil {
		w.path.Packet = describe(p)
		w.end(from.name, err.Error(), false)
		return
	}
	p, describe = newPacket(src, w.to, q)
	p.fields = p.fields.With(openflow.EthSrc(src.mac)).With(openflow.EthDst(dst))
	w.path.Packet = describe(p)
	if src.at.port == 0 {
		w.stuck(from.name, from.name+" is attached to no switch of the controller")
		return
	}
	w.fate = w.enter(src.at, p)
}

// newPacket returns the packet to trace, without Ethernet addresses.
func newPacket(from, to station, q PathQuery) (packet, func(packet) string) {
	fields := []openflow.OXM{openflow.VLANNone(), openflow.IPDSCP(0), openflow.IPECN(0), openflow.TunnelID(0)}
	if to.address.Is4() {
		fields = append(fields, openflow.EthType(openflow.EthTypeIPv4), openflow.IPv4Src(from.address),
			openflow.IPv4Dst(to.address))
	} else {
		fields = append(fields, openflow.EthType(openflow.EthTypeIPv6), openflow.IPv6Src(from.address),
			openflow.IPv6Dst(to.address),
			openflow.IPv6Flabel(0), openflow.IPv6Exthdr(1))
	}
	const some = 49152 // a source port from the ephemeral range
	switch {
	case q.TCP != 0:
		fields = append(fields, openflow.IPProto(openflow.IPProtoTCP), openflow.TCPSrc(some), openflow.TCPDst(q.TCP))
	case q.UDP != 0:
		fields = append(fields, openflow.IPProto(openflow.IPProtoUDP), openflow.UDPSrc(some), openflow.UDPDst(q.UDP))
	case to.address.Is4():
		fields = append(fields, openflow.IPProto(openflow.IPProtoICMPv4), openflow.ICMPv4Type(8),
			openflow.ICMPv4Code(0))
	default:
		fields = append(fields, openflow.IPProto(openflow.IPProtoICMPv6), openflow.ICMPv6Type(128),
			openflow.ICMPv6Code(0))
	}
	return packet{openflow.NewMatch(fields...), 64}, func(p packet) string {
		m := p.fields
		for _, f := range []openflow.Field{openflow.FieldVLANVID, openflow.FieldIPDSCP, openflow.FieldIPECN,
			openflow.FieldTunnelID,
			openflow.FieldIPv6Flabel, openflow.FieldIPv6Exthdr} {
			m = m.Without(f)
		}
		return m.String()
	}
}

// controller handles a packet that is sent to the controller only.
func (w *walk) controller(s *step, o output) fate {
	name := app(o)
	if r := w.routerOf(s.dpid); r != nil && name == "routing" {
		if o.expired {
			return w.end(s.hop.Switch, "its TTL expires, and the router says so", false)
		}
		return w.byRouting(s, *r, o.packet)
	}
	switch name {
	case "learning": // the controller always gets a copy
		if l := w.c.Learning; l != nil && l.Reactive() {
			return w.stuck(s.hop.Switch,
				"it has no entry yet: the controller learns from its first packet, and forwards that")
		}
		return w.end(s.hop.Switch, "there is no other port to flood it to", false)
	case "", "user":
		return w.end(s.hop.Switch, "it goes to the controller, where no app handles it", false)
	}
	return w.stuck(s.hop.Switch, "it goes to the controller, to "+name)
}

func (w *walk) routerOf(dpid uint64) *routing.Router {
	if r, ok := w.c.Router(dpid); ok && w.c.Routing != nil {
		return &r
	}
	return nil
}

// byRouting simulates the app routing, for packets to the router itself and packets without an
// entry.
func (w *walk) byRouting(s *step, r routing.Router, p packet) fate {
	if w.owns(r, w.to.address) {
		return w.end(r.Name, "", r.Name == w.to.name)
	}
	route := w.lookup(r.DPID)
	if route == nil {
		return w.end(r.Name, fmt.Sprintf("%s has no route to %v: it answers that the network is unreachable", r.Name,
			w.to.address), false)
	}
	if route.Drop {
		why := fmt.Sprintf("it announces %v and has no route to this part of it", route.Prefix)
		if route.Source != routing.Spoken {
			why = fmt.Sprintf("its route to %v discards it", route.Prefix)
		}
		return w.end(r.Name, fmt.Sprintf("%s drops it: %s", r.Name, why), false)
	}
	var sum fate
	before := *s
	for i, h := range route.Hops {
		here := before
		if len(route.Hops) > 1 {
			here.hop.Choice = fmt.Sprintf("%d of %d by hash", i+1, len(route.Hops))
		}
		f := w.replace(here, func(s *step) fate { return w.byHop(s, r, h, p) })
		sum = fate{f.all && (sum.all || i == 0), f.some || sum.some}
	}
	return sum
}

// replace runs f with the last step of the trail replaced.
func (w *walk) replace(s step, f func(*step) fate) fate {
	last := len(w.trail) - 1
	before := w.trail[last]
	w.trail[last] = s
	out := f(&w.trail[last])
	w.trail[last] = before
	return out
}

// byHop sends a packet to a next hop, whose MAC the router resolves if necessary.
func (w *walk) byHop(s *step, r routing.Router, h routing.Hop, p packet) fate {
	to := h.Via
	if !to.IsValid() {
		to = w.to.address
	}
	if s.hop.In != "" {
		s.hop.Controller = fmt.Sprintf("routing asks on %s who has %v, sends the packet, and installs an entry",
			h.Interface, to)
	}
	mac, known := w.macOf(to)
	if !known {
		return w.end(r.Name, fmt.Sprintf("%s asks on %s who has %v, and no known host answers", r.Name, h.Interface,
			to), false)
	}
	for _, f := range r.Interfaces {
		if f.Port == h.Port {
			p.fields = p.fields.With(openflow.EthSrc(f.MAC))
		}
	}
	if s.hop.In != "" {
		p.ttl--
	}
	p.fields = p.fields.With(openflow.EthDst(mac))
	return w.send(s, place{r.DPID, h.Port}, p)
}

func (w *walk) owns(r routing.Router, a netip.Addr) bool {
	for _, f := range r.Interfaces {
		for _, p := range f.Prefixes {
			if p.Addr() == a {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.Loopback, func(p netip.Prefix) bool { return p.Addr() == a })
}

// explain says what determined the path: the first router, or all the switches together.
func (w *walk) explain() {
	if len(w.path.Ways) == 0 {
		return
	}
	way := w.path.Ways[0]
	learned, flooded, users := []string{}, []string{}, []string{}
	chosen := []chosenWay{}
	for _, h := range way.Hops {
		for _, r := range w.c.Routers() {
			if r.Name == h.Switch && w.c.Routing != nil && len(w.path.Why) == 0 {
				w.path.Why = append(w.path.Why, w.whyRoute(r)...)
			}
		}
		if n := len(h.Entries); n > 0 && h.Entries[n-1].App == "learning" && h.Out != "" {
			switch {
			case h.Choice == "flooded":
				flooded = append(flooded, h.Switch)
			case h.Entries[n-1].Priority == learning.PathPriority:
				if k := len(chosen); k == 0 || chosen[k-1].to != h.to {
					chosen = append(chosen, chosenWay{to: h.to})
				}
				last := &chosen[len(chosen)-1]
				last.switches = append(last.switches, h.Switch)
			default:
				learned = append(learned, h.Switch)
			}
		}
		for _, e := range h.Entries {
			if e.App == "user" {
				users = append(users, fmt.Sprintf("%s: the user's entry %d: %s", h.Switch, e.ID, e.Readable))
			}
		}
	}
	if len(learned) > 0 {
		w.path.Why = append(w.path.Why, strings.Join(learned, ", ")+": learned, from a packet that came from there")
	}
	if len(flooded) > 0 {
		w.path.Why = append(w.path.Why, strings.Join(flooded,
			", ")+": not learned yet, hence flooded along the spanning tree")
	}
	for _, c := range chosen {
		w.path.Why = append(w.path.Why, strings.Join(c.switches, ", ")+": "+w.whyChosen(c))
	}
	w.path.Why = append(w.path.Why, users...)
}

// chosenWay is a set of switches that send a packet by the controller's path to an Ethernet
// address.
type chosenWay struct {
	to       openflow.MAC
	switches []string
}

// whyChosen says why they do.
func (w *walk) whyChosen(c chosenWay) string {
	if w.c.Balance != nil && w.c.Balance.Hosts != nil {
		for _, name := range c.switches {
			dpid, found := w.m.Find(name)
			if p := w.c.Balance.Hosts.Why(dpid, c.to); found && p != nil {
				return fmt.Sprintf("off the shortest path to %s, by %s: %s", w.host(c.to),
					strings.Join(w.switchNames(p.Routers), ", "), p.Why)
			}
		}
	}
	return fmt.Sprintf("the controller's path to %s, a shortest one", w.host(c.to))
}

// whyRoute says why a router forwards a packet the way it does.
func (w *walk) whyRoute(r routing.Router) (out []string) {
	route := w.lookup(r.DPID)
	switch {
	case w.owns(r, w.to.address) || route == nil:
		return nil
	case route.Source == routing.Connected:
		return []string{fmt.Sprintf("%s: %v is its own subnet, at %s", r.Name, route.Prefix, route.Hops[0].Interface)}
	}
	if route.Drop {
		return []string{fmt.Sprintf("%s: %v by %s: dropped, as no more specific route is known", r.Name, route.Prefix,
			builtin.SourceOf(route))}
	}
	var via []string
	for _, h := range route.Hops {
		name := h.Router
		if name == "" {
			name = h.Via.String()
		}
		via = append(via, name)
	}
	text := fmt.Sprintf("%s: %v by %s", r.Name, route.Prefix, builtin.SourceOf(route))
	if route.Source == routing.Balanced {
		text = fmt.Sprintf("%s: %v off its shortest path", r.Name, route.Prefix)
	}
	if route.Source == routing.Computed || route.Source == routing.Spoken {
		text += fmt.Sprintf(", cost %d", route.Metric)
	}
	text += ", via " + strings.Join(via, " or ")
	moved, parts := w.moves(r.DPID, route)
	if moved != "" {
		text += ": " + moved
	}
	if len(via) > 1 {
		text += fmt.Sprintf(" (%d of equal cost)", len(via))
	}
	out = []string{text}
	if parts > 0 {
		out = append(out, fmt.Sprintf("%s: %s of the traffic to %v on other paths: trivet balance", r.Name,
			words.Plural(parts, "part"), route.Prefix))
	}
	if route.Source == routing.Computed {
		out = append(out, w.otherWays(r, route)...)
	}
	return out
}

// otherWays says what the path would cost through the other neighbours.
func (w *walk) otherWays(r routing.Router, route *routing.Route) (out []string) {
	seen := map[uint64]bool{}
	var links []discovery.Link
	for _, f := range r.Interfaces {
		links = append(links, w.c.Discovery.LinksFrom(r.DPID, f.Port)...)
	}
	for _, l := range links {
		next := w.routerOf(l.To)
		if next == nil || seen[l.To] ||
			slices.ContainsFunc(route.Hops, func(h routing.Hop) bool { return h.Router == next.Name }) {
			continue
		}
		seen[l.To] = true
		beyond := w.lookup(l.To)
		if beyond == nil || !slices.ContainsFunc(beyond.Hops, func(h routing.Hop) bool { return h.Router != r.Name }) {
			continue // its path leads back here
		}
		cost := beyond.Metric + costOf(r, l.FromPort)
		if beyond.Source == routing.Connected {
			cost += costOf(*next, beyond.Hops[0].Port)
		}
		out = append(out, fmt.Sprintf("%s: via %s it would cost %d", r.Name, next.Name, cost))
	}
	slices.Sort(out)
	return out
}

func costOf(r routing.Router, port uint32) uint32 {
	for _, f := range r.Interfaces {
		if f.Port == port {
			return max(1, f.Cost)
		}
	}
	return 1
}
