package routing

import (
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/topology"
)

func init() {
	apps.Register(apps.Spec{Name: "routing", Cookie: Cookie, Order: 50,
		New: func(f apps.Facilities) (controller.App, error) {
			a, err := New(apps.Get[*discovery.App](f), configOf(f))
			if err == nil && f.Member != "" {
				a.Share(f.Member, f.Store)
			}
			return a, err
		},
		Configure: func(a controller.App, f apps.Facilities) error { return a.(*App).Configure(configOf(f)) },
	})
}

// configOf returns the configuration of a topology's routing nodes, with the routes that users have
// added.
func configOf(f apps.Facilities) Config {
	c := ConfigOf(f.Topology)
	for i := range c.Routers {
		r := &c.Routers[i]
		r.Static = r.StaticWith(f.Routes(r.Name))
	}
	return c
}

// StaticWith returns the static routes of a router's configuration, and those in added.
func (r *Router) StaticWith(added []topology.Route) []StaticRoute {
	out := slices.Clone(r.Static)
	for _, x := range added {
		out = append(out, StaticOf(x))
	}
	return out
}
