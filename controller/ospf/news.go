package ospf

import (
	"maps"
	"sync"

	"trivet.dev/trivet/controller/discovery"
)

// news is where what joins the routers may have changed. In a network of ten thousand routers a
// link that fails concerns two: only around the ports that are named here is looked again. It has a
// lock of its own, as those who tell hold theirs.
type news struct {
	mu    sync.Mutex
	any   bool
	all   bool // anything may be different
	ports map[place]bool
}

// everywhere takes note that anything may be different.
func (n *news) everywhere() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.any, n.all = true, true
}

// at takes note of ports; of none it is that something else than ports is different.
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

// is says whether there are any.
func (n *news) is() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.any
}

// take returns them, and there are none any more.
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

// widen adds to ports those that they are joined to by segments, and says whether that is enough to
// look at: it is not while routers do not know all their ports yet.
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

// look asks discovery what joins the routers: around some ports if that will do, which are all that
// they are joined to now, or were joined to.
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
