package learning

import (
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// router is an app that handles all packets of the datapaths that it routes for.
type router interface {
	controller.App
	Routes(dpid uint64) bool
	MAC(dpid uint64, port uint32) (openflow.MAC, bool)
}

func init() {
	apps.Register(apps.Spec{Name: "learning", Cookie: Cookie, Order: 60,
		New: func(f apps.Facilities) (controller.App, error) {
			if f.Topology.Learning == topology.Reactive {
				var only func(uint64) bool
				if r := apps.Get[router](f); r != nil {
					only = func(dpid uint64) bool { return !r.Routes(dpid) }
				}
				a := NewReactive(apps.Get[*discovery.App](f), only)
				a.share(f)
				return a, nil
			}
			a := New(apps.Get[*discovery.App](f), nil)
			if r := apps.Get[router](f); r != nil {
				a.only = func(dpid uint64) bool { return !r.Routes(dpid) }
				a.routers = r.MAC
			}
			a.share(f)
			a.Spread(spreads(f))
			return a, nil
		},
		Configure: func(a controller.App, f apps.Facilities) error {
			if a, ok := a.(*App); ok && !a.reactive {
				a.Spread(spreads(f))
			}
			return nil
		},
	})
}

// share makes the app part of a cluster, if there is one.
func (a *App) share(f apps.Facilities) {
	if f.Member != "" {
		a.Share(f.Member, f.Store)
	}
}

func spreads(f apps.Facilities) bool { return f.Topology.Balancing() == topology.BalanceLoad }
