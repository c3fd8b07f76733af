package builtin

import (
	"context"
	"slices"
	"time"

	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/topology"
)

// rewatch is when the store is looked at anew that could not tell all that has happened.
const rewatch = time.Second

// followRoutes takes the routes that users and programs have given to other members of a cluster,
// until the controller closes.
func (c *Controller) followRoutes() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-c.closed
		cancel()
	}()
	for ctx.Err() == nil {
		c.reloadRoutes()
		_, users, err := c.routes.users.Store.Watch(ctx, c.routes.users.Prefix)
		if err == nil {
			var programs <-chan []store.Event
			if _, programs, err = c.routes.given.Store.Watch(ctx, c.routes.given.Prefix); err == nil {
				c.reloadRoutes() // what has changed before the watch
				c.hearRoutes(users, programs)
			}
		}
		select {
		case <-time.After(rewatch):
		case <-ctx.Done():
		}
	}
}

// hearRoutes reads all routes anew after each change, until one of the two ends: there are few.
func (c *Controller) hearRoutes(users, programs <-chan []store.Event) {
	for {
		var open bool
		select {
		case _, open = <-users:
		case _, open = <-programs:
		}
		if !open {
			return
		}
		c.reloadRoutes()
	}
}

// reloadRoutes takes the routes that are in the store, and gives them to routers that have others.
func (c *Controller) reloadRoutes() {
	c.routes.changing.Lock()
	defer c.routes.changing.Unlock()
	fresh := routes{programs: map[string]ProgramRoutes{}}
	if err := fresh.load(c.routes.users.Store); err != nil {
		c.log.Error("routes of users cannot be read", "error", err)
		return
	}
	before := map[string][]topology.Route{}
	for _, r := range c.Routers() {
		before[r.Name] = c.routes.of(r.Name)
	}
	c.routes.mu.Lock()
	old := c.routes.programs
	c.routes.added, c.routes.programs = fresh.added, fresh.programs
	c.routes.mu.Unlock()
	if c.Routing == nil {
		return
	}
	for _, r := range c.Routers() {
		if now := c.routes.of(r.Name); !slices.Equal(now, before[r.Name]) {
			c.Routing.SetStatic(r.DPID, r.StaticWith(now))
		}
	}
	for name, p := range fresh.programs {
		if !p.same(old[name]) {
			c.giveProgram(p)
		}
	}
	for name, p := range old {
		if _, is := fresh.programs[name]; !is {
			c.Routing.SetProgram(name, p.Distance, map[uint64][]routing.StaticRoute{})
		}
	}
}

// same says whether a program's routes are those of another time.
func (p ProgramRoutes) same(q ProgramRoutes) bool {
	return p.Distance == q.Distance && slices.EqualFunc(p.Routes, q.Routes, func(x, y UserRoute) bool {
		return x.same(y) && x.Distance == y.Distance && x.Metric == y.Metric && x.Tag == y.Tag && slices.Equal(x.Via, y.Via)
	})
}
