package ospf

import (
	"maps"
	"sync"

	"trivet.dev/trivet/controller/discovery"
)

// news records where what joins the routers may have changed. In a network of ten thousand routers
// a failed link concerns two: only the surroundings of these ports are examined again. It has its
// own lock, because callers hold theirs.
type news struct {
	mu    sync.Mutex
	any   bool
	all   bool // anything may have changed
	ports map[place]bool
}

// everywhere records that anything may have changed.
func (n *news) everywhere() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.any, n.all = true, true
}

// at records ports; without ports: something other than ports has changed.
func (n *news) at(ports ...place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.any = true
	if n.ports == nil {
		n.ports = map[place]bool{}
	}
	for _, p := range ports {
		n.ports[p] = true
	}
}

// is reports whether there are any changes.
func (n *news) is() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.any
}

// take returns the changes and clears them.
func (n *news) take() (any, all bool, ports map[place]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	any, all, ports = n.any, n.all, n.ports
	if ports == nil {
		ports = map[place]bool{}
	}
	n.any, n.all, n.ports = false, false, nil
	return any, all, ports
}

// widen adds the ports joined to the given ones by segments, and reports whether these suffice: not
// while some routers' ports are unclassified.
func (n *network) widen(ports map[place]bool) bool {
	if !n.started || n.unsettled > 0 {
		return false
	}
	for p := range n.portsAt(maps.Clone(ports)) {
		if p.segment != nil {
			for _, m := range p.segment.members {
				ports[place{m.router.DPID, m.Port}] = true
			}
		}
	}
	return true
}

// look reads from discovery what joins the routers; if possible only around some ports: all ports
// that they are, or were, joined to.
func (a *App) look(all bool, ports map[place]bool) joined {
	j := joined{router: a.routing.Routes, connected: func(dpid uint64) bool { return a.c.Switch(dpid) != nil }}
	j.only = ports
	for known := -1; !all && known < len(j.only); {
		a.mu.Lock()
		enough := a.net.widen(j.only)
		a.mu.Unlock()
		known = len(j.only)
		at := make([]discovery.Port, 0, known)
		for p := range j.only {
			at = append(at, discovery.Port{Switch: p.dpid, Number: p.port})
		}
		j.ports, j.links, all = nil, nil, !enough
		if enough {
			var ok bool
			j.ports, j.links, ok = a.discovery.Around(at, j.router)
			all = !ok
		}
		for _, p := range j.ports {
			j.only[place{p.Switch, p.Number}] = true
		}
	}
	if all {
		j.only = nil
		j.ports, j.links = a.discovery.Snapshot()
	}
	return j
}
