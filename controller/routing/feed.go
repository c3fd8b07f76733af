package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"trivet.dev/trivet/routing/rib"
)

// fewRoutes is the number of given routes up to which a router's are queried one by one.
const fewRoutes = 100

// Place is a prefix at a router.
type Place struct {
	Router uint64 // datapath id
	Prefix netip.Prefix
}

// Update says which route a router now uses, which must not be changed; Gone: none.
type Update = rib.Update[Place, *Route]

// Feed reports the routes that some routers use: all of them first, then changes once they are in
// the flow tables. Make it with App.Subscribe or App.Redistributed.
type Feed struct {
	app  *App
	self string // see Subscribe
	into string // see Redistributed
	wake func()
	told *rib.Feed[Place, *Route]

	mu      sync.Mutex // guards what follows, and serializes reports
	routers []uint64
}

// Subscribe returns a feed that covers no routers yet (see Of). For a protocol, named by self, it
// reports only prefixes to which a router has a route that is not this protocol's: connected,
// given, or from another protocol; so whole tables are not needed. wake is called when there is
// something to take; it must be quick, and must not call the app.
func (a *App) Subscribe(self string, wake func()) *Feed {
	return a.subscribed(&Feed{app: a, self: self, wake: wake})
}

func (a *App) subscribed(f *Feed) *Feed {
	f.told = rib.NewFeed[Place](sameRoute)
	a.mu.Lock()
	a.feeds = append(slices.Clone(a.feeds), f)
	a.mu.Unlock()
	return f
}

// Close ends the feed.
func (f *Feed) Close() {
	f.app.mu.Lock()
	f.app.feeds = slices.DeleteFunc(slices.Clone(f.app.feeds), func(o *Feed) bool { return o == f })
	f.app.mu.Unlock()
}

// Of chooses the routers. Routes of routers no longer among them are reported as gone.
func (f *Feed) Of(routers []uint64) {
	f.mu.Lock()
	f.routers = slices.Clone(routers)
	f.mu.Unlock()
	f.publish()
}

// Into returns the target of redistribution; "": the feed is of routes in use.
func (f *Feed) Into() string { return f.into }

// Take returns the changes since the last call: one Update per prefix.
func (f *Feed) Take() []Update { return f.told.Take() }

// publish reports what routers use in the latest network.
func (f *Feed) publish() {
	f.mu.Lock()
	if n := f.app.net.Load(); n != nil {
		f.tell(n)
	}
	waits := f.told.Waits()
	f.mu.Unlock()
	if waits {
		f.wake()
	}
}

func (f *Feed) tell(n *network) {
	now := map[Place]bool{}
	routers := f.routers
	if f.into != "" {
		routers = n.redistributors(f.into)
	}
	for _, dpid := range routers {
		i, ok := n.index[dpid]
		if !ok {
			continue
		}
		used := f.routesOf(n, i)
		for _, p := range slices.SortedFunc(maps.Keys(used), netip.Prefix.Compare) {
			at := Place{dpid, p}
			now[at] = true
			f.told.Set(at, used[p])
		}
	}
	gone := slices.DeleteFunc(f.told.Keys(), func(at Place) bool { return now[at] })
	slices.SortFunc(gone, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Router, b.Router), a.Prefix.Compare(b.Prefix))
	})
	for _, at := range gone {
		f.told.Drop(at)
	}
}

// routesOf returns the routes that the feed reports for a router.
func (f *Feed) routesOf(n *network, router int) map[netip.Prefix]*Route {
	switch {
	case f.into != "":
		return n.redistributed(router, f.into)
	case f.self != "":
		return n.usedBeside(router, f.self)
	}
	return n.table(router).routes
}

// usedBeside returns the routes that a router uses to those prefixes to which it has any route not
// of a protocol.
func (n *network) usedBeside(router int, protocol string) map[netip.Prefix]*Route {
	find := func(p netip.Prefix) *table { return n.tableTo(router, p) }
	if len(n.routers[router].Static) > fewRoutes { // for each of which all would be searched
		all := n.table(router)
		find = func(netip.Prefix) *table { return all }
	}
	out := map[netip.Prefix]*Route{}
	add := func(p netip.Prefix) {
		r, home := find(p).both(p)
		if r != nil && r.Source == Balanced {
			r = home // steering does not change what is announced
		}
		if r != nil {
			out[p] = r
		}
	}
	for _, f := range n.routers[router].Interfaces {
		for _, p := range f.Prefixes {
			add(p.Masked())
		}
	}
	for _, s := range n.routers[router].Static {
		if !s.Fallback {
			add(s.To)
		}
	}
	for _, s := range n.protocols[router] {
		if s.Name == protocol {
			continue
		}
		for _, l := range s.Routes(n.routers[router].DPID) {
			add(l.Prefix)
		}
	}
	return out
}

// sameRoute reports whether two routes are used in the same way.
func sameRoute(a, b *Route) bool {
	sameHop := func(a, b Hop) bool {
		return a.Port == b.Port && a.Via == b.Via && a.For == b.For && a.src == b.src && a.dst == b.dst
	}
	return a.Source == b.Source && a.Name == b.Name && a.Rank() == b.Rank() && a.Tag == b.Tag && a.Drop == b.Drop &&
		slices.EqualFunc(a.Hops, b.Hops, sameHop)
}
