package openstack

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"golang.org/x/sync/errgroup"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
)

// routersOf lists the routers that ports are wanted for.
func routersOf(want []*site.Port) (out []*site.Router) {
	for _, p := range want {
		if p.Router != nil && !slices.Contains(out, p.Router) {
			out = append(out, p.Router)
		}
	}
	return out
}

// makeRouters makes the routers whose ports exist already, adds these as interfaces, and sets the
// routes. Routers are enabled last: Neutron does not report when its agent has set routes, but the
// agent sets everything together when a router comes up, and only then do its ports become active.
func (b *building) makeRouters(ctx context.Context, want []*site.Port) error {
	all := routersOf(want)
	if len(all) == 0 {
		return nil
	}
	b.say(words.Plural(len(all), "router"))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, r := range all {
		g.Go(func() error {
			made, err := b.make(ctx, routers, "node-"+r.Node, map[string]any{"admin_state_up": false})
			if err != nil {
				return err
			}
			for _, p := range want {
				if p.Router == r {
					if err := b.joinRouter(ctx, made, p); err != nil {
						return err
					}
				}
			}
			return explained("set the routes of the router "+made.Name,
				b.updateRouter(ctx, made.ID, map[string]any{"admin_state_up": true, "routes": routesOf(r)}))
		})
	}
	return g.Wait()
}

// joinRouter adds a port to a router as an interface.
func (b *building) joinRouter(ctx context.Context, r thing, p *site.Port) error {
	return once(ctx, fmt.Sprintf("give the router %s its port of %s", r.Name, p.Link), func(ctx context.Context) error {
		_, err := b.neutron.Put(ctx, b.neutron.ServiceURL("routers", r.ID, "add_router_interface"),
			map[string]any{"port_id": p.At.ID}, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
		return err
	}, func() (bool, error) {
		there, err := b.list(ctx, ports, url.Values{"id": {p.At.ID}, "device_id": {r.ID}})
		return len(there) > 0, err
	})
}

// routesOf returns a router's routes in Neutron's form; they replace all existing ones.
func routesOf(r *site.Router) []map[string]any {
	routes := []map[string]any{}
	for _, rt := range r.Routes {
		routes = append(routes, map[string]any{"destination": rt.To.String(), "nexthop": rt.Via.String()})
	}
	return routes
}

// updateRouter changes attributes of a router. It is idempotent.
func (a *account) updateRouter(ctx context.Context, id string, to map[string]any) error {
	_, err := a.neutron.Put(ctx, a.neutron.ServiceURL("routers", id), map[string]any{"router": to}, nil,
		&gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
	return err
}

// emptyRouter removes a router's routes and interfaces, whose ports are deleted with them. Its
// external gateway port is deleted with the router.
func (a *account) emptyRouter(ctx context.Context, id string) error {
	if err := a.updateRouter(ctx, id,
		map[string]any{"routes": routesOf(&site.Router{})}); gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	} else if err != nil {
		return explained("take the routes from the router "+id, err)
	}
	at, err := a.list(ctx, ports,
		url.Values{"device_id": {id},
			"device_owner": {"network:router_interface", "network:router_interface_distributed",
				"network:ha_router_replicated_interface"}})
	if err != nil {
		return err
	}
	for _, p := range at {
		_, err := a.neutron.Put(ctx, a.neutron.ServiceURL("routers", id, "remove_router_interface"),
			map[string]any{"port_id": p.ID}, nil,
			&gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return explained("take an interface from the router "+id, err)
		}
	}
	return nil
}
