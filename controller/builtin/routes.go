package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// UserRoute is a static route that a user has added to a router.
type UserRoute struct {
	Router   string       `json:"router"`
	Prefix   netip.Prefix `json:"prefix"`
	Via      []netip.Addr `json:"via"` // none: packets that match are dropped
	Distance rib.Distance `json:"distance,omitempty"`
	Metric   uint32       `json:"metric,omitempty"`
	Tag      uint32       `json:"tag,omitempty"`
	Created  time.Time    `json:"created"`
}

// routes holds the routers, and the routes of users and programs.
type routes struct {
	// One change at a time; not a mutex, because a change may take 10 s and whoever waits may give
	// up.
	changing *semaphore.Weighted

	mu     sync.Mutex                // guards what follows
	sorted []routing.Router          // by name, with their configured routes
	byDPID map[uint64]routing.Router // the same, by datapath id
	added  []UserRoute               // by users

	programs map[string]ProgramRoutes // by name

	users store.Rows[routeRow]   // as stored
	given store.Rows[programRow] // those of programs
}

// load reads the routes of users and programs from a store.
func (r *routes) load(s store.Store) error {
	r.users, r.given = store.Rows[routeRow]{Store: s, Prefix: "user/route/"}, store.Rows[programRow]{Store: s,
		Prefix: "program/"}
	rows, err := r.users.All(context.Background())
	if err != nil {
		return err
	}
	for _, row := range rows {
		u, err := row.route()
		if err != nil {
			return err
		}
		r.added = append(r.added, u)
	}
	return r.loadPrograms()
}

// configure replaces the routers by those of a topology.
func (r *routes) configure(t *topology.Topology) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sorted = routing.ConfigOf(t).Routers
	r.byDPID = make(map[uint64]routing.Router, len(r.sorted))
	slices.SortFunc(r.sorted, func(a, b routing.Router) int { return CompareNames(a.Name, b.Name) })
	for _, x := range r.sorted {
		r.byDPID[x.DPID] = x
	}
}

// of returns the routes that users have added to a router.
func (r *routes) of(router string) (out []topology.Route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.added {
		if u.Router == router {
			out = append(out, u.static()...)
		}
	}
	return out
}

// static returns the route as a topology has it: one entry for each next hop.
func (u *UserRoute) static() (out []topology.Route) {
	x := topology.Route{To: u.Prefix, Distance: u.Distance, Metric: u.Metric, Tag: u.Tag, Discard: len(u.Via) == 0}
	if x.Discard {
		return []topology.Route{x}
	}
	for _, x.Via = range u.Via {
		out = append(out, x)
	}
	return out
}

// Routers returns the routers by name, with their configured static routes.
func (c *Controller) Routers() []routing.Router {
	c.routes.mu.Lock()
	defer c.routes.mu.Unlock()
	return slices.Clone(c.routes.sorted)
}

// Router returns the router with a datapath id, if there is one.
func (c *Controller) Router(dpid uint64) (r routing.Router, is bool) {
	c.routes.mu.Lock()
	defer c.routes.mu.Unlock()
	r, is = c.routes.byDPID[dpid]
	return r, is
}

// UserRoutes returns the routes that users have added.
func (c *Controller) UserRoutes() []UserRoute {
	c.routes.mu.Lock()
	defer c.routes.mu.Unlock()
	out := slices.Clone(c.routes.added)
	slices.SortFunc(out, func(a, b UserRoute) int {
		return cmp.Or(CompareNames(a.Router, b.Router), cmp.Compare(a.Prefix.String(), b.Prefix.String()))
	})
	return out
}

// SourceOf returns where a route comes from, for display: the protocol's name, or that of a
// program.
func SourceOf(x *routing.Route) string {
	switch x.Source {
	case routing.Spoken:
		return x.Name
	case routing.Program:
		return x.Source.String() + " " + x.Name
	}
	return x.Source.String()
}

// ErrNoRoute is returned where no such route has been added.
var ErrNoRoute = errors.New("no such route was added")

// AddRoute gives a router a static route, replacing one that a user has added for the same prefix.
// It returns when the router has it, when ctx ends, or after 10 s. The route is kept in the store.
func (c *Controller) AddRoute(ctx context.Context, u UserRoute) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	router, err := c.router(u.Router)
	if err != nil {
		return err
	}
	if err := c.checkRoute(router, u); err != nil {
		return err
	}
	u.Created = time.Now()
	if err := c.routes.users.Put(ctx, u.key(), rowOf(u)); err != nil {
		return err
	}
	return c.changeRoutes(ctx, router, func(list []UserRoute) []UserRoute {
		return append(slices.DeleteFunc(list, u.same), u)
	})
}

// DeleteRoute removes a route that a user has added, and returns as AddRoute does; ErrNoRoute:
// there is none.
func (c *Controller) DeleteRoute(ctx context.Context, name string, prefix netip.Prefix) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	this := UserRoute{Router: name, Prefix: prefix}
	c.routes.mu.Lock()
	is := slices.ContainsFunc(c.routes.added, this.same)
	c.routes.mu.Unlock()
	if !is {
		return ErrNoRoute
	}
	if err := c.routes.users.Delete(ctx, this.key()); err != nil {
		return err
	}
	router, err := c.router(name)
	if err != nil { // it is not in the topology any more; its route was kept for when it comes back
		router = routing.Router{Name: name}
	}
	return c.changeRoutes(ctx, router, func(list []UserRoute) []UserRoute { return slices.DeleteFunc(list, this.same) })
}

func (u UserRoute) same(v UserRoute) bool { return u.Router == v.Router && u.Prefix == v.Prefix }

// router returns a router by its name.
func (c *Controller) router(name string) (routing.Router, error) {
	if c.Routing == nil {
		return routing.Router{}, c.NoRouting()
	}
	var names []string
	for _, r := range c.Routers() {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return routing.Router{}, errors.New("the controller routes for no routers (to have some:  trivet up --nodes router …)")
	}
	return routing.Router{}, NoSuch("router", name, names)
}

// NoRouting returns the error of a controller without the app routing.
func (c *Controller) NoRouting() error {
	return errors.New("this controller does not route: its apps are " + strings.Join(c.Apps, ", "))
}

// NoSuch returns the error that there is no node (or other kind of thing) with a name, and lists
// those that exist.
func NoSuch(kind, name string, names []string) error {
	hint := topology.DidYouMean(name, names)
	switch {
	case len(names) == 0:
		hint = "there is none"
	case hint == "":
		slices.SortFunc(names, CompareNames)
		hint = "there are " + strings.Join(names[:min(10, len(names))], ", ")
	}
	return fmt.Errorf("there is no %s %q; %s", kind, name, hint)
}

// check reports why no router could have the route.
func (u *UserRoute) check() error {
	if !u.Prefix.IsValid() {
		return errors.New("it has no prefix; write 10.9.0.0/16")
	}
	if u.Prefix != u.Prefix.Masked() {
		return fmt.Errorf("%v is not a prefix; its host bits must be zero: %v", u.Prefix, u.Prefix.Masked())
	}
	for i, via := range u.Via {
		switch {
		case !via.IsValid() || via.IsUnspecified() || via.IsMulticast() || via.Zone() != "":
			return fmt.Errorf("%v cannot be a next hop; write the address of a neighbour", via)
		case via.Is4() != u.Prefix.Addr().Is4():
			return fmt.Errorf("%v and its next hop %v are of different IP versions", u.Prefix, via)
		case slices.Contains(u.Via[:i], via):
			return fmt.Errorf("the next hop %v is there twice", via)
		}
	}
	return nil
}

// checkRoute reports why the router could never use the route.
func (c *Controller) checkRoute(r routing.Router, u UserRoute) error {
	if err := u.check(); err != nil {
		return err
	}
	var subnets []string
	reaches := make([]bool, len(u.Via))
	for _, f := range r.Interfaces {
		for _, p := range f.Prefixes {
			if p.Masked() == u.Prefix {
				return fmt.Errorf("%v is a subnet of %s itself, at %s", u.Prefix, r.Name, f.Name)
			}
			subnets = append(subnets, p.Masked().String())
			for i, via := range u.Via {
				reaches[i] = reaches[i] || p.Contains(via) && p.Addr() != via
			}
		}
	}
	for i, via := range u.Via {
		if !reaches[i] && !c.leadsTo(r, via) {
			return fmt.Errorf("%v is not a neighbour of %s, and no route but the default one leads to it; its neighbours are in %s", via, r.Name, strings.Join(subnets, ", "))
		}
	}
	return nil
}

// leadsTo reports whether a router has a route to an address, through which another route may
// resolve.
func (c *Controller) leadsTo(r routing.Router, to netip.Addr) bool {
	x := c.Routing.Lookup(r.DPID, to)
	return x != nil && x.Source != routing.Connected && x.Prefix.Bits() > 0 && len(x.Hops) > 0
}

// changeRoutes changes the users' routes, and waits until the router has followed.
func (c *Controller) changeRoutes(ctx context.Context, router routing.Router,
	change func([]UserRoute) []UserRoute) error {
	return c.followed(ctx, func() bool {
		c.routes.mu.Lock()
		c.routes.added = change(c.routes.added)
		c.routes.mu.Unlock()
		return c.Routing != nil && c.Routing.SetStatic(router.DPID, router.StaticWith(c.routes.of(router.Name)))
	})
}

// followed applies a change and, if it changes anything, waits until the routers have followed.
func (c *Controller) followed(ctx context.Context, change func() bool) error {
	if !change() {
		return nil
	}
	ctx, cancel := patience.Installed.Context(ctx)
	defer cancel()
	for !c.Routing.Quiet() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil
		case <-c.closed:
			return nil
		}
	}
	return nil
}
