package user

import (
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
)

func init() {
	apps.Register(apps.Spec{Name: "user", Cookie: Cookie, Order: 30, Always: true,
		New: func(f apps.Facilities) (controller.App, error) {
			a, err := New(f.Store)
			if err == nil && f.Member != "" {
				a.Share()
			}
			return a, err
		}})
}
