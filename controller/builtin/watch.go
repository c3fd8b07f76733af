package builtin

import (
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/routing"
)

// Event is a change in the network: a SwitchChange, discovery.LinkChange, discovery.HostChange,
// routing.Rerouted, cluster.Change, or one of an app that is apps.Watched.
type Event struct {
	Time time.Time
	What any
}

// SwitchChange is a switch that has connected or disconnected.
type SwitchChange struct {
	Switch uint64
	Up     bool
}

// Watch calls f for every event from now on, until cancel is called. f must be quick, and must
// call neither an app nor cancel.
func (c *Controller) Watch(f func(Event)) (cancel func()) {
	w := &watcher{f}
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.watchers[w] = true
	return func() {
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		delete(c.hub.watchers, w)
	}
}

type watcher struct{ f func(Event) }

// hub is an app that passes all events to watchers. It is the last in the order: a switch is up
// when the other apps have handled it.
type hub struct {
	controller.Base
	mu       sync.Mutex
	watchers map[*watcher]bool
}

func (h *hub) follow(c *Controller) {
	h.watchers = map[*watcher]bool{}
	c.Discovery.WatchLinks(func(l discovery.LinkChange) { h.tell(l) })
	c.Discovery.WatchHosts(func(x discovery.HostChange) { h.tell(x) })
	each(c, func(a apps.Watched) { a.Watch(h.tell) })
	if c.Routing != nil {
		c.Routing.Watch(func(r routing.Rerouted) { h.tell(r) })
	}
}

func (h *hub) tell(what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := Event{time.Now(), what} // taken under the lock, so that times never decrease
	for w := range h.watchers {
		w.f(e)
	}
}

// Name is "events".
func (h *hub) Name() string { return "events" }

func (h *hub) SwitchUp(s *controller.Switch)   { h.tell(SwitchChange{s.DPID(), true}) }
func (h *hub) SwitchDown(s *controller.Switch) { h.tell(SwitchChange{s.DPID(), false}) }
