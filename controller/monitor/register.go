package monitor

import (
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
)

func init() {
	apps.Register(apps.Spec{Name: "monitor", Order: 10, Always: true,
		New: func(f apps.Facilities) (controller.App, error) {
			o := Options{Capacity: f.Capacity, AppOf: apps.Of}
			if f.Database != nil {
				o.Store = f.Database
			}
			return New(o), nil
		}})
}
