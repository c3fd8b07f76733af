package ospf

import (
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/routing"
)

func init() {
	apps.Register(apps.Spec{Name: "ospf", Order: 40, // before routing, which queries its routes when a port changes
		Needs: []apps.Need{{App: "routing", For: "installs its routes"}},
		New: func(f apps.Facilities) (controller.App, error) {
			a, err := New(apps.Get[*discovery.App](f), apps.Get[*routing.App](f), ConfigOf(f.Topology))
			if err == nil && f.Member != "" {
				err = a.Share()
			}
			return a, err
		},
		Configure: func(a controller.App, f apps.Facilities) error { return a.(*App).Configure(ConfigOf(f.Topology)) },
	})
}
