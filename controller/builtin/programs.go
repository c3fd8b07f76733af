package builtin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/routing/rib"
)

// ProgramRoutes are the routes that a program gives to routers; they are a source of routes of
// their own.
type ProgramRoutes struct {
	Name     string
	Distance rib.Distance // 0: the default of programs
	Routes   []UserRoute  // their own distances are ignored
}

// SetProgram replaces all routes of a program (none: removes them) and returns when the routers
// have followed, when ctx ends, or after 10 s. A route whose next hop is not reachable yet is used
// as soon as it is. Routes of routers that a later topology lacks wait until it has them again.
// Routes are kept in the store.
func (c *Controller) SetProgram(ctx context.Context, p ProgramRoutes) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	if c.Routing == nil {
		return c.NoRouting()
	}
	if err := c.checkProgram(p); err != nil {
		return err
	}
	return c.putProgram(ctx, p)
}

// DropProgram removes all routes of a program; ErrNoRoute: it has none.
func (c *Controller) DropProgram(ctx context.Context, name string) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	c.routes.mu.Lock()
	_, ok := c.routes.programs[name]
	c.routes.mu.Unlock()
	if c.Routing == nil || !ok {
		return ErrNoRoute
	}
	return c.putProgram(ctx, ProgramRoutes{Name: name})
}

// checkProgram reports a route of the program that no router can use, or that is listed twice.
func (c *Controller) checkProgram(p ProgramRoutes) error {
	type place struct {
		router string
		prefix netip.Prefix
		metric uint32
	}
	routers := c.dpids()
	first := map[place]int{}
	for i, u := range p.Routes {
		err := u.check()
		at := place{u.Router, u.Prefix, cmp.Or(u.Metric, 1)}
		if before, ok := first[at]; ok && err == nil {
			err = fmt.Errorf("route %d is the same; one route has all its next hops", before)
		}
		first[at] = i + 1
		if _, ok := routers[u.Router]; !ok {
			_, err = c.router(u.Router)
		}
		if err != nil {
			return fmt.Errorf("route %d, %s %v: %w", i+1, u.Router, u.Prefix, err)
		}
	}
	return nil
}

// dpids returns the datapath ids of routers by name.
func (c *Controller) dpids() map[string]uint64 {
	out := map[string]uint64{}
	for _, r := range c.Routers() {
		out[r.Name] = r.DPID
	}
	return out
}

// putProgram stores the routes of a program in place of its previous ones, and gives them to the
// routers. changing must be held.
func (c *Controller) putProgram(ctx context.Context, p ProgramRoutes) error {
	if err := c.keepProgram(ctx, p); err != nil {
		return err
	}
	return c.followed(ctx, func() bool {
		c.routes.mu.Lock()
		if c.routes.programs[p.Name] = p; len(p.Routes) == 0 {
			delete(c.routes.programs, p.Name)
		}
		c.routes.mu.Unlock()
		c.giveProgram(p)
		return true
	})
}

// giveProgram gives a program's routes to those of their routers that exist.
func (c *Controller) giveProgram(p ProgramRoutes) {
	routers, routes := c.dpids(), map[uint64][]routing.StaticRoute{}
	for _, u := range p.Routes {
		dpid, ok := routers[u.Router]
		if !ok {
			continue
		}
		for _, x := range u.static() {
			routes[dpid] = append(routes[dpid], routing.StaticOf(x))
		}
	}
	c.Routing.SetProgram(p.Name, p.Distance, routes)
}

// givePrograms gives the routes of all programs to the routers that exist now.
func (c *Controller) givePrograms() {
	if c.Routing == nil {
		return
	}
	_ = c.routes.changing.Acquire(context.Background(), 1) // which does not end
	defer c.routes.changing.Release(1)
	c.routes.mu.Lock()
	programs := slices.Collect(maps.Values(c.routes.programs))
	c.routes.mu.Unlock()
	for _, p := range programs {
		c.giveProgram(p)
	}
}
