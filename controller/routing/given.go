package routing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/routing/rib"
)

// SetProgram replaces the routes of a program, by datapath id. Each program is a source of its own,
// by its name. Routes have the given distance; 0: the default of programs. Without routes the
// source is removed. Routes last until they are replaced, across changes of the configuration.
func (a *App) SetProgram(name string, distance rib.Distance, routes map[uint64][]StaticRoute) {
	given := map[uint64][]StaticRoute{}
	for dpid, list := range routes {
		for _, s := range list {
			s.Program, s.Distance = name, cmp.Or(distance, rib.Program)
			given[dpid] = append(given[dpid], s)
		}
	}
	a.mu.Lock()
	if a.programs = maps.Clone(a.programs); a.programs == nil {
		a.programs = map[string]map[uint64][]StaticRoute{}
	}
	a.digest = ""
	if a.programs[name] = given; len(given) == 0 {
		delete(a.programs, name)
	}
	a.mu.Unlock()
	a.poke("routes of the program "+name+" were changed", time.Now())
}

// given returns the configuration with the routes given by users and programs; mu must be held.
func (a *App) given() Config {
	c := a.config
	if len(a.static)+len(a.programs) > 0 {
		c.Routers = slices.Clone(c.Routers)
	}
	for dpid, routes := range a.static {
		if i, ok := a.addresses.index[dpid]; ok {
			c.Routers[i].Static = routes
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.programs)) {
		for dpid, routes := range a.programs[name] {
			if i, ok := a.addresses.index[dpid]; ok {
				c.Routers[i].Static = slices.Concat(c.Routers[i].Static, routes)
			}
		}
	}
	return c
}
