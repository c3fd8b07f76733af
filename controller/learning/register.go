package learning

import (
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
)

// router is an app that decides alone for the datapaths that it routes for.
type router interface {
	controller.App
	Routes(dpid uint64) bool
}

func init() {
	apps.Register(apps.Spec{Name: "learning", Cookie: Cookie, Order: 60, New: func(f apps.Facilities) (controller.App, error) {
		var only func(uint64) bool
		if r := apps.Get[router](f); r != nil {
			only = func(dpid uint64) bool { return !r.Routes(dpid) }
		}
		return New(apps.Get[*discovery.App](f), only), nil
	}})
}
