package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"trivet.dev/trivet/routing/rib"
)

// fewRoutes is how many given routes of a router are asked for one by one.
const fewRoutes = 100

// Place is a prefix at a router.
type Place struct {
	Router uint64 // its datapath id
	Prefix netip.Prefix
}

// Update says which route a router uses from now on, which is not to be changed; Gone: none.
type Update = rib.Update[Place, *Route]

// Feed tells which routes some routers use: all of them first, then what changes, when it is in the
// flow tables. Make it with App.Subscribe or App.Redistributed.
type Feed struct {
	app  *App
	self string // see Subscribe
	into string // see Redistributed
	wake func()
	told *rib.Feed[Place, *Route]

	mu      sync.Mutex // of what follows, and while something is told
	routers []uint64
}

// Subscribe returns a feed of the routes of no routers yet. To a protocol, self, it tells only of
// prefixes to which a router has a route that is not this protocol's: connected, given, or by
// another protocol; then it needs no whole tables. wake is called when there is something to take;
// it must be quick, and must not call the app.
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

// Of chooses the routers. Routes of those that are not among them any more are told to be gone.
func (f *Feed) Of(routers []uint64) {
	f.mu.Lock()
	f.routers = slices.Clone(routers)
	f.mu.Unlock()
	f.publish()
}

// Into is what the routes are redistributed into; "": they are those that are used.
func (f *Feed) Into() string { return f.into }

// Take returns what has changed since it was called last: one Update for each prefix.
func (f *Feed) Take() []Update { return f.told.Take() }

// publish tells what routers use in the network as it was seen last.
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

// routesOf returns what the feed tells of a router.
func (f *Feed) routesOf(n *network, router int) map[netip.Prefix]*Route {
	switch {
	case f.into != "":
		return n.redistributed(router, f.into)
	case f.self != "":
		return n.usedBeside(router, f.self)
	}
	return n.table(router).routes
}

// usedBeside returns the routes that a router uses to prefixes to which it has others than those of
// a protocol.
func (n *network) usedBeside(router int, protocol string) map[netip.Prefix]*Route {
	find := func(p netip.Prefix) *table { return n.tableTo(router, p) }
	if len(n.routers[router].Static) > fewRoutes { // each of which would be gone through for each
		all := n.table(router)
		find = func(netip.Prefix) *table { return all }
	}
	out := map[netip.Prefix]*Route{}
	add := func(p netip.Prefix) {
		r, home := find(p).both(p)
		if r != nil && r.Source == Balanced {
			r = home // that its traffic is kept off a busy link is no news
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

// sameRoute says whether two routes are used in the same way.
func sameRoute(a, b *Route) bool {
	sameHop := func(a, b Hop) bool {
		return a.Port == b.Port && a.Via == b.Via && a.For == b.For && a.src == b.src && a.dst == b.dst
	}
	return a.Source == b.Source && a.Name == b.Name && a.Rank() == b.Rank() && a.Tag == b.Tag && a.Drop == b.Drop && slices.EqualFunc(a.Hops, b.Hops, sameHop)
}
