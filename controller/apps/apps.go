// Package apps is the register of the apps that Trivet's own controller can have. Each registers
// itself, in init, by a Spec; controller/builtin makes a controller of those that the program has.
// docs/controller.md, "Writing an app", has an example.
//
// An app that is an http.Handler answers below /v1/controller/apps/<name>/ of the controller's API,
// where all may ask who may ask that. What stands before the slash is cut off the paths that it
// sees.
package apps

import (
	"cmp"
	"math"
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/topology"
)

// CookieMask is the bits of a flow entry's cookie that say whose the entry is. The others are the
// app's.
const CookieMask = 0xffff_ffff << 32

// Spec is what an app says of itself.
type Spec struct {
	Name string // as the app's Name

	// Cookie, in the bits of CookieMask, is that of the app's flow entries; 0: it has none. It must
	// not change: switches and databases hold it. Those of Trivet's own apps are 0x7472_0001 to
	// 0x7472_00ff.
	Cookie uint64

	// Order is when the app is asked; those of Trivet's own apps are in docs/controller.md. 0:
	// after all others. Of equal ones the names decide.
	Order int

	Always bool   // a controller has it, whichever it is told to have: others stand on it
	Needs  []Need // they are made before it

	New func(Facilities) (controller.App, error)

	// Configure tells the app that the topology is another; nil: it does not mind.
	Configure func(controller.App, Facilities) error
}

// Need is another app without which an app is of no use.
type Need struct {
	App string
	For string // what it does for the app: "installs its routes"
}

// Facilities are what a controller has for its apps.
type Facilities struct {
	// Topology, which is resolved, is what is known of the network in advance; it may be empty. It
	// must not be changed.
	Topology *topology.Topology
	Wired    bool // the cables are as the topology has them

	Member   string           // of a cluster, which has the Store in common: its name; empty: the controller is alone
	Store    store.Store      // for what has to outlive the controller; without a file it lives as long as that
	Database *database.DB     // for what is seen, to be looked up later; nil: nothing is
	Apps     []controller.App // that have been made; see Get

	// Capacity is how much leaves by a port's link, bit/s; 0: it is not known.
	Capacity func(dpid uint64, port uint32) float64
	// CapacityIn is the same for what comes to the port.
	CapacityIn func(dpid uint64, port uint32) float64

	Routes func(router string) []topology.Route // that users have added to a router
}

// Get returns the app of a type, as a need is; nil: the controller has not made it.
func Get[A controller.App](f Facilities) (app A) {
	for _, a := range f.Apps {
		if app, is := a.(A); is {
			return app
		}
	}
	return app
}

var registered []*Spec // in their order

// Register makes an app known. It is to be called in init, and panics where another has its name or
// cookie, or the cookie has other bits.
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

// Names are those of all apps, in their order.
func Names() (out []string) {
	for _, s := range registered {
		out = append(out, s.Name)
	}
	return out
}

// Of names the app that a flow entry with that cookie is of; "" is none of them.
func Of(cookie uint64) string {
	for _, s := range registered {
		if s.Cookie != 0 && s.Cookie == cookie&CookieMask {
			return s.Name
		}
	}
	return ""
}
