// Package apps is the registry of the built-in controller's apps. Each registers a Spec in init;
// controller/builtin makes a controller of those that are linked into the program.
// docs/controller.md, "Writing an app", has an example.
//
// Optional interfaces of apps: Unfinished, if an app may not yet have carried out a change;
// Watched, if its events are shown to users; Careful, if a switch must sometimes not be taken over
// by another member of the cluster.
//
// An app that is an http.Handler serves /v1/controller/apps/<name>/ of the controller's API, to
// whoever may use that API. The prefix is stripped from request paths.
package apps

import (
	"cmp"
	"math"
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// CookieMask selects the bits of a flow entry's cookie that identify its app. The app is free to
// use the others.
const CookieMask = 0xffff_ffff << 32

// Spec describes an app.
type Spec struct {
	Name string // as the app's Name

	// Cookie identifies the app's flow entries, within CookieMask; 0: it has none. It must never
	// change: switches and databases hold it. Trivet's own apps use 0x7472_0001 to 0x7472_00ff.
	Cookie uint64

	// Order is the app's position among those that see an event; docs/controller.md has those of
	// Trivet's own apps. 0: after all others. Ties are broken by name.
	Order int

	Always bool   // included whatever apps were chosen, because others depend on it
	Needs  []Need // made before it

	New func(Facilities) (controller.App, error)

	// Configure tells the app that the topology has changed; nil: it does not matter to the app.
	Configure func(controller.App, Facilities) error
}

// Need is an app that another one cannot work without.
type Need struct {
	App string
	For string // what it does for the app: "installs its routes"
}

// Facilities are what a controller provides to its apps.
type Facilities struct {
	// Topology, which is resolved, is the network as known in advance; it may be empty. It must not
	// be changed.
	Topology *topology.Topology
	Wired    bool // cabling is known to match the topology

	Member   string           // this member's name in a cluster, whose members share the Store; empty: no cluster
	Store    store.Store      // for what must outlive the controller; without a database file it does not
	Database *database.DB     // for observations to be looked up later; nil: none are kept
	Apps     []controller.App // those made so far; see Get

	// Capacity returns the rate of the link at a port in the outgoing direction, bit/s; 0: unknown.
	Capacity func(dpid uint64, port uint32) float64
	// CapacityIn is the same for the incoming direction.
	CapacityIn func(dpid uint64, port uint32) float64

	Routes func(router string) []topology.Route // static routes that users have added to a router
}

// Unfinished is an app that says what it has yet to do before traffic can flow, or nothing.
type Unfinished interface{ Missing() []string }

// Watched is an app that calls f with each of its events, whose types the API knows. f must be
// quick, and must not call the app.
type Watched interface{ Watch(f func(event any)) }

// Careful is an app that says whether another member of the cluster may take a switch over now.
type Careful interface{ MayRestart(dpid uint64) bool }

// Get returns the app of a type, for example one that is needed; nil: the controller does not have
// it.
func Get[A controller.App](f Facilities) (app A) {
	for _, a := range f.Apps {
		if app, ok := a.(A); ok {
			return app
		}
	}
	return app
}

var registered []*Spec // in their order

// Register adds an app. Call it in init. It panics if the name or cookie is taken, or the cookie
// has bits outside CookieMask.
func Register(s Spec) {
	s.Order = cmp.Or(s.Order, math.MaxInt)
	if s.Cookie&^CookieMask != 0 {
		panic("the cookie of the app " + s.Name + " has bits that are not in apps.CookieMask")
	}
	for _, other := range registered {
		if s.Name == other.Name || s.Cookie != 0 && s.Cookie == other.Cookie {
			panic("the apps " + other.Name + " and " + s.Name + " have the same name or cookie")
		}
	}
	registered = append(registered, &s)
	slices.SortFunc(registered, func(a, b *Spec) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
}

// All returns the apps in the order in which they are asked.
func All() []*Spec { return slices.Clone(registered) }

// Names returns the names of all apps, in their order.
func Names() []string {
	return lists.Map(registered, func(s *Spec) string { return s.Name })
}

// Of returns the name of the app that a flow entry's cookie identifies; "": none.
func Of(cookie uint64) string {
	for _, s := range registered {
		if s.Cookie != 0 && s.Cookie == cookie&CookieMask {
			return s.Name
		}
	}
	return ""
}
