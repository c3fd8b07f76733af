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

// ProgramRoutes are routes that a program gives to routers, as a source of its own.
type ProgramRoutes struct {
	Name     string
	Distance rib.Distance // 0: that of programs
	Routes   []UserRoute  // their distances do not count
}

// SetProgram replaces the routes of a program, all or, if one is none, none, and returns when
// routers have followed; at the latest when ctx ends, or after 10 s. One to whose next hop nothing
// leads is used as soon as something does; those of routers that are not in a later topology wait
// until they are in one again. They are kept in the store.
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

// DropProgram takes all routes of a program back; ErrNoRoute: it has none.
func (c *Controller) DropProgram(ctx context.Context, name string) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	c.routes.mu.Lock()
	_, is := c.routes.programs[name]
	c.routes.mu.Unlock()
	if c.Routing == nil || !is {
		return ErrNoRoute
	}
	return c.putProgram(ctx, ProgramRoutes{Name: name})
}

// checkProgram says which of a program's routes is none of any router, or is there twice.
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
		if before, is := first[at]; is && err == nil {
			err = fmt.Errorf("route %d is the same; one route has all its next hops", before)
		}
		first[at] = i + 1
		if _, is := routers[u.Router]; !is {
			_, err = c.router(u.Router)
		}
		if err != nil {
			return fmt.Errorf("route %d, %s %v: %w", i+1, u.Router, u.Prefix, err)
		}
	}
	return nil
}

// dpids are the datapath ids of routers, by name.
func (c *Controller) dpids() map[string]uint64 {
	out := map[string]uint64{}
	for _, r := range c.Routers() {
		out[r.Name] = r.DPID
	}
	return out
}

// putProgram keeps the routes of a program in place of those that it has had, and gives them to the
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

// giveProgram gives a program's routes to those of their routers that there are.
func (c *Controller) giveProgram(p ProgramRoutes) {
	routers, routes := c.dpids(), map[uint64][]routing.StaticRoute{}
	for _, u := range p.Routes {
		dpid, is := routers[u.Router]
		if !is {
			continue
		}
		for _, x := range u.static() {
			routes[dpid] = append(routes[dpid], routing.StaticOf(x))
		}
	}
	c.Routing.SetProgram(p.Name, p.Distance, routes)
}

// givePrograms gives the routes of all programs to the routers that there are now.
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
