package builtin

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/lists"
)

// followRoutes applies, until the controller closes, the changes of users' and programs' routes
// that are made at other members of the cluster.
func (c *Controller) followRoutes() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-c.closed
		cancel()
	}()
	if c.Routing == nil {
		return
	}
	tell := func(sync func(context.Context, string) error) func(string) {
		return func(key string) {
			if err := sync(ctx, key); err != nil && ctx.Err() == nil {
				c.log.Error("changes of routes at other members are no longer applied", "key", key, "error", err)
			}
		}
	}
	go store.FollowKeys(ctx, c.routes.users.Store, c.routes.users.Prefix, c.routes.keysOfUsers, tell(c.syncRoute))
	go store.FollowKeys(ctx, c.routes.given.Store, c.routes.given.Prefix, c.routes.keysOfPrograms, tell(c.syncProgram))
}

func (r *routes) keysOfUsers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lists.Map(r.added, func(u UserRoute) string { return r.users.Prefix + u.key() })
}

func (r *routes) keysOfPrograms() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.programs {
		keys = append(keys, r.given.Prefix+name)
	}
	return keys
}

// syncRoute brings a user's route up to date with the store.
func (c *Controller) syncRoute(ctx context.Context, key string) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	e, err := c.routes.users.Store.Get(ctx, key)
	if err != nil {
		return err
	}
	this := func(u UserRoute) bool { return c.routes.users.Prefix+u.key() == key }
	c.routes.mu.Lock()
	i := slices.IndexFunc(c.routes.added, this)
	var now UserRoute
	switch {
	case e.Gone() && i < 0:
		c.routes.mu.Unlock()
		return nil
	case e.Gone():
		now = c.routes.added[i]
		c.routes.added = slices.DeleteFunc(c.routes.added, this)
	default:
		var row routeRow
		if err = json.Unmarshal(e.Value, &row); err == nil {
			now, err = row.route()
		}
		if err != nil || i >= 0 && reflect.DeepEqual(rowOf(c.routes.added[i]), rowOf(now)) {
			c.routes.mu.Unlock()
			return err
		}
		c.routes.added = append(slices.DeleteFunc(c.routes.added, this), now)
	}
	c.routes.mu.Unlock()
	if router, err := c.router(now.Router); err == nil { // else it is kept for when it is in the topology
		c.Routing.SetStatic(router.DPID, router.StaticWith(c.routes.of(router.Name)))
	}
	return nil
}

// syncProgram brings a program's routes up to date with the store.
func (c *Controller) syncProgram(ctx context.Context, key string) error {
	if err := c.routes.changing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.routes.changing.Release(1)
	e, err := c.routes.given.Store.Get(ctx, key)
	if err != nil {
		return err
	}
	now := ProgramRoutes{Name: strings.TrimPrefix(key, c.routes.given.Prefix)}
	if !e.Gone() {
		var row programRow
		if err := json.Unmarshal(e.Value, &row); err != nil {
			return err
		}
		if now, err = row.program(); err != nil {
			return err
		}
	}
	c.routes.mu.Lock()
	before := c.routes.programs[now.Name]
	same := reflect.DeepEqual(before.row(), now.row())
	if c.routes.programs[now.Name] = now; len(now.Routes) == 0 {
		delete(c.routes.programs, now.Name)
	}
	c.routes.mu.Unlock()
	if !same {
		c.giveProgram(now)
	}
	return nil
}
