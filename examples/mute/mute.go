// Package mute is an app that silences hosts: PUT of an Ethernet address drops what comes from it,
// DELETE no more.
package mute

import (
	"net/http"
	"sync"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/openflow"
)

const cookie = 0x7472_0100 << 32 // of this app's entries, and no other's

func init() {
	apps.Register(apps.Spec{Name: "mute", Cookie: cookie, New: func(apps.Facilities) (controller.App, error) {
		return &app{muted: map[openflow.MAC]bool{}, rules: map[*controller.Switch]*controller.Rules{}}, nil
	}})
}

type app struct {
	controller.Base
	mu    sync.Mutex // of what follows: switches and requests come at the same time
	muted map[openflow.MAC]bool
	rules map[*controller.Switch]*controller.Rules
}

func (*app) Name() string { return "mute" }

func (a *app) SwitchUp(s *controller.Switch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rules[s] = s.Rules(cookie, apps.CookieMask, nil) // begins with what the switch has
	a.install(s)
}

func (a *app) install(s *controller.Switch) {
	var drops []*openflow.FlowMod // entries without instructions
	for mac := range a.muted {
		drops = append(drops, openflow.NewFlowMod(openflow.FlowAdd, 1000, openflow.NewMatch(openflow.EthSrc(mac))))
	}
	if a.rules[s].Replace(drops, nil) != nil { // sends what differs; the error is that the switch is gone
		delete(a.rules, s)
	}
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) { // below /v1/controller/apps/mute/
	mac, err := openflow.ParseMAC(r.URL.Path[1:])
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && r.Method == http.MethodPut {
		a.muted[mac] = true
	} else if err == nil && r.Method == http.MethodDelete {
		delete(a.muted, mac)
	} else {
		http.Error(w, "PUT or DELETE an Ethernet address", http.StatusBadRequest)
	}
	for s := range a.rules {
		a.install(s)
	}
}
