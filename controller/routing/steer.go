package routing

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/routing/rib"
)

// Edges returns the current edges between routers, in a deterministic order.
func (a *App) Edges() (out []steer.Edge) {
	net := a.net.Load()
	if net == nil || !net.isJoined() {
		return nil
	}
	for i, r := range net.routers {
		for _, segment := range slices.Sorted(maps.Keys(net.inner[i])) {
			f := net.inner[i][segment]
			for _, to := range net.members[int(segment)-len(net.routers)] {
				if to.router != i {
					out = append(out, steer.Edge{From: r.DPID, To: net.routers[to.router].DPID, FromPort: f.Port,
						ToPort: to.itf.Port})
				}
			}
		}
	}
	return out
}

// Destination returns the paths of traffic to its subnet; false: no router has it. A disconnected
// router counts with its last entries.
func (a *App) Destination(t Traffic) (d steer.Destination, is bool) {
	net, p := a.net.Load(), t.To
	if net == nil {
		return d, false
	}
	d = steer.Destination{Next: map[uint64]steer.Edge{}, Home: map[uint64]steer.Edge{}, Fixed: map[uint64]bool{}}
	for _, o := range net.owners[p] {
		if net.isUp(o) {
			d.Owners = append(d.Owners, net.routers[o.router].DPID)
		}
	}
	for i, r := range net.routers {
		if slices.Contains(d.Owners, r.DPID) {
			continue
		}
		of := net.tableTo(i, p)
		chosen, own := of.both(p)
		home := own
		if t.Part != (Part{}) { // its home is its subnet's way
			chosen, home = net.partOf(i, t, of), chosen
		}
		if e, ok := net.edge(i, chosen); ok {
			d.Next[r.DPID] = e
		}
		if e, ok := net.edge(i, home); ok {
			d.Home[r.DPID] = e
		}
		if !a.isConnected(r.DPID) || !r.speaks(p) || !r.prefersBalanced(own) {
			d.Fixed[r.DPID] = true
		}
	}
	return d, len(d.Owners) > 0
}

// prefersBalanced reports whether a router uses a steered way in place of a route, or of none.
func (r *Router) prefersBalanced(home *Route) bool {
	if home == nil {
		return r.distance(Balanced) != rib.Never
	}
	return r.distance(Balanced) < home.Distance
}

// leads reports whether a steered router takes the steered way. Parts are steered only where their
// subnet has a route.
func (n *network) leads(router int, t Traffic) bool {
	_, home := n.routeAndHome(router, t.To)
	return n.routers[router].prefersBalanced(home) && (home != nil || t.Part == (Part{}))
}

// edge returns the first edge of a route; false: it leads to no router of the app.
func (n *network) edge(router int, r *Route) (e steer.Edge, is bool) {
	if r == nil || len(r.Hops) == 0 || r.Hops[0].router < 0 {
		return e, false
	}
	h := r.Hops[0]
	to := n.routers[h.router]
	for j := range to.Interfaces {
		if f := &to.Interfaces[j]; f.MAC == h.dst {
			return steer.Edge{From: n.routers[router].DPID, To: to.DPID, FromPort: h.Port, ToPort: f.Port}, true
		}
	}
	return e, false
}

// isConnected reports whether a router's entries can be changed now.
func (a *App) isConnected(dpid uint64) bool {
	n := a.node(dpid)
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sw != nil
}

// Subnets returns the subnets that routers have, sorted.
func (a *App) Subnets() []netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addresses.subnets
}

// Steer replaces all steered ways, to subnets of routers. They are a source of routes of their own,
// "balanced". Parts without ways get entries, too, whose counters measure them.
func (a *App) Steer(ways map[Traffic]steer.Ways, why string) {
	a.mu.Lock()
	a.steered = ways
	a.mu.Unlock()
	a.poke(why, time.Now())
}

// sayable returns the ways without those that would need changes at disconnected routers. Traffic
// is not steered over a router that has not taken the way yet, nor taken off a path that includes a
// disconnected router, as it might loop between two routers with different ways.
func sayable(ways, led map[Traffic]steer.Ways, connected map[uint64]bool) map[Traffic]steer.Ways {
	out := map[Traffic]steer.Ways{}
	for t, steered := range ways {
		out[t] = maps.Clone(steered)
		maps.DeleteFunc(out[t], func(dpid uint64, e steer.Edge) bool { return !connected[dpid] && led[t][dpid] != e })
	}
	for t, was := range led {
		for dpid, e := range was {
			if is, known := connected[dpid]; known && !is && ways[t][dpid] != e {
				out[t] = was
				break
			}
		}
	}
	return out
}

// steer determines which of the requested ways reach their prefix, over routers that all take them:
// a router with a static route of its own might send packets back.
func (n *network) steer(ways map[Traffic]steer.Ways) {
	balanced := make(map[Traffic]map[int]Hop, len(ways))
	var parts []Traffic
	for t, steered := range ways {
		p := t.To
		if t.Part != (Part{}) {
			parts = append(parts, t)
		}
		there, hops := steer.Ways{}, map[int]Hop{}
		for dpid, e := range steered {
			if i, ok := n.index[dpid]; ok {
				if h, ok := n.hopOver(i, e, p); ok && n.leads(i, t) {
					there[dpid], hops[i] = e, h
				}
			}
		}
		at := func(dpid uint64) bool { return n.has(n.index[dpid], p) }
		for dpid := range there {
			if !there.Arrive(dpid, at) {
				delete(hops, n.index[dpid])
			}
		}
		if len(hops) > 0 {
			balanced[t] = hops
		}
	}
	n.balanced = balanced // until here all routes were those without steering
	for i, t := range n.tables {
		if t != nil {
			n.addBalanced(t, i)
			t.findLengths()
		}
	}
	n.divide(parts)
}

// addBalanced adds all steered ways.
func (n *network) addBalanced(t *table, router int) {
	for b := range n.balanced {
		if b.Part == (Part{}) {
			n.offerBalanced(t, router, b.To)
		}
	}
}

// hopOver returns the next hop to a prefix over an edge; false: the edge does not exist now, or a
// router there lacks the prefix's IP version.
func (n *network) hopOver(router int, e steer.Edge, p netip.Prefix) (h Hop, is bool) {
	out := n.portOf(router, e.FromPort)
	to, known := n.index[e.To]
	if out == nil || !known || !n.isJoined() || !n.routers[router].speaks(p) || !n.routers[to].speaks(p) {
		return h, false
	}
	in := n.portOf(to, e.ToPort)
	if in == nil || !n.joins(router, out, to, in) {
		return h, false
	}
	return Hop{Port: out.Port, Interface: out.Name, Via: shared(out, in, p.Addr().Is4()), Router: n.routers[to].Name,
		src: out.MAC, dst: in.MAC, router: to}, true
}

// joins reports whether two ports are in one segment.
func (n *network) joins(a int, out *Interface, b int, in *Interface) bool {
	for segment, f := range n.inner[a] {
		if f.Port == out.Port {
			return slices.ContainsFunc(n.members[int(segment)-len(n.routers)],
				func(o owner) bool { return o.router == b && o.itf.Port == in.Port })
		}
	}
	return false
}

// offerBalanced adds the steered way to a prefix.
func (n *network) offerBalanced(t *table, router int, p netip.Prefix) {
	hops := n.balanced[Traffic{To: p}]
	h, ok := hops[router]
	if !ok || n.has(router, p) {
		return
	}
	if t.home == nil {
		t.home = map[netip.Prefix]*Route{}
	}
	t.home[p] = t.routes[p]
	steps := uint32(0)
	for at := router; !n.has(at, p); steps++ {
		at = hops[at].router
	}
	t.offer(&Route{Prefix: p, Source: Balanced, Metric: steps, Hops: []Hop{h}})
}

// routeAndHome returns a router's route to exactly a prefix, and what it would be without steering.
func (n *network) routeAndHome(router int, p netip.Prefix) (r, home *Route) {
	return n.tableTo(router, p).both(p)
}

func (t *table) both(p netip.Prefix) (r, home *Route) {
	r, home = t.routes[p], t.routes[p]
	if h, ok := t.home[p]; ok {
		home = h
	}
	return r, home
}

// Carried returns the bytes that a router has forwarded to each subnet, and to each part, from the
// counters of its entries.
func (a *App) Carried(ctx context.Context, dpid uint64) (map[Traffic]uint64, error) {
	sw, net := a.c.Switch(dpid), a.net.Load()
	if sw == nil || net == nil {
		return nil, controller.ErrGone
	}
	all := openflow.AllFlows()
	all.Table, all.Cookie, all.CookieMask = routeTable, Cookie, apps.CookieMask
	list, err := controller.Ask[openflow.FlowStatsList](ctx, sw, all)
	out := map[Traffic]uint64{}
	for _, f := range list {
		t, ok := trafficOf(&openflow.FlowMod{Table: f.Table, Priority: f.Priority, Match: f.Match})
		if ok = ok && f.Priority > priorityRoute; !ok {
			continue
		}
		if subnet, known := net.subnetOf(t.To); known {
			if t.Part.Index == each { // flows without an entry of their own yet
				t.Part = Part{}
			}
			out[Traffic{subnet, t.Part}] += f.Bytes
		}
	}
	return out, err
}

// subnetOf returns the subnet that an entry leads to: it may be for a single address of it.
func (n *network) subnetOf(p netip.Prefix) (subnet netip.Prefix, known bool) {
	if _, ok := n.owners[p]; ok {
		return p, true
	}
	f := family(p.Addr())
	for bits := p.Bits(); bits > 0; bits-- {
		if subnet, _ = p.Addr().Prefix(bits); n.addresses.lengths[f][bits] && n.owners[subnet] != nil {
			return subnet, true
		}
	}
	return subnet, false
}

// SubnetOf returns a router's smallest subnet that contains an address; false: there is none.
func (a *App) SubnetOf(addr netip.Addr) (netip.Prefix, bool) {
	net := a.net.Load()
	if net == nil || !addr.IsValid() {
		return netip.Prefix{}, false
	}
	return net.subnetOf(netip.PrefixFrom(addr, addr.BitLen()))
}

// Quiet reports whether all routes are installed.
func (a *App) Quiet() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.pending && !a.following
}
