package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
)

func (a *app) routes() *cobra.Command {
	var add, remove string
	cmd := &cobra.Command{
		Use:   "routes [ROUTER] [--add 'PREFIX via ADDRESS' | --delete PREFIX]",
		Short: "List routes of routing nodes, add and delete static ones",
		Long: "List the routes of a routing node, or of all. A static route that you add takes precedence over those that the controller\n" +
			"finds, and is kept until you delete it. Several next hops share the traffic: 'PREFIX via A,B'.",
		Example: "  trivet routes r1\n  trivet routes r1 --add '10.9.0.0/16 via 10.0.1.9'\n  trivet routes r1 --delete 10.9.0.0/16",
		Args:    cobra.MaximumNArgs(1),
	}
	k := controllerFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&add, "add", "", "add a static route to the router")
	f.StringVar(&remove, "delete", "", "delete the static route to that prefix, one that you added")
	cmd.MarkFlagsMutuallyExclusive("add", "delete")
	cmd.ValidArgsFunction = a.completeSwitches(k, "router")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		if name == "" && (f.Changed("add") || f.Changed("delete")) {
			return errors.New("name the router:  trivet routes r1 --add '10.9.0.0/16 via 10.0.1.9'")
		}
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		switch {
		case f.Changed("add"):
			return a.addRoute(ctx, c, name, add)
		case f.Changed("delete"):
			return a.deleteRoute(ctx, c, name, remove)
		}
		return a.listRoutes(ctx, c, name)
	}
	return cmd
}

func (a *app) addRoute(ctx context.Context, c *api.Client, router, text string) error {
	r, err := parseRoute(router, text)
	if err == nil {
		err = c.AddRoute(ctx, r)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	a.say("added   %s  %s via %s", r.Router, r.Prefix, joined(r.Via))
	return nil
}

func (a *app) deleteRoute(ctx context.Context, c *api.Client, router, text string) error {
	prefix, err := parsePrefix(text)
	if err == nil {
		err = c.DeleteRoute(ctx, router, prefix.String())
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"router": router, "prefix": prefix})
	}
	a.say("deleted   %s  %s", router, prefix)
	return nil
}

// parseRoute reads "10.9.0.0/16 via 10.0.1.9,10.0.2.9".
func parseRoute(router, text string) (r api.RouteRequest, err error) {
	to, via, found := strings.Cut(text, " via ")
	if !found {
		return r, fmt.Errorf("%q is not a route; write '10.9.0.0/16 via 10.0.1.9'", text)
	}
	r.Router = router
	if r.Prefix, err = parsePrefix(to); err != nil {
		return r, err
	}
	for hop := range strings.SplitSeq(via, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || address.Zone() != "" {
			return r, fmt.Errorf("%q is not a next hop's address", strings.TrimSpace(hop))
		}
		r.Via = append(r.Via, address)
	}
	return r, nil
}

// parsePrefix reads a prefix, the word "default" for IPv4's default route, or a single address.
func parsePrefix(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if text == "default" {
		text = "0.0.0.0/0"
	}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a prefix; write 10.9.0.0/16, an address, or default", text)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%v has host bits set; the prefix is %v", p, p.Masked())
	}
	return p, nil
}

func (a *app) listRoutes(ctx context.Context, c *api.Client, name string) error {
	routes, err := c.Routes(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(routes)
	}
	rows := [][]string{{"ROUTER", "PREFIX", "NEXT HOP", "INTERFACE", "METRIC", "SOURCE"}}
	used := map[string]bool{}
	for _, r := range routes.Routes {
		source := r.Source
		if r.User {
			source += " (added)"
			used[r.Router+" "+r.Prefix.String()] = true
		}
		first := []string{r.Router, r.Prefix.String()}
		if r.Drop {
			rows = append(rows, append(first, "drop", "–", fmt.Sprint(r.Metric), source))
		}
		for _, h := range r.Hops {
			rows = append(rows, append(first, nextHop(h), h.Interface, fmt.Sprint(r.Metric), source))
			first = []string{"", ""}
		}
	}
	for _, u := range routes.Added {
		if !used[u.Router+" "+u.Prefix.String()] {
			rows = append(rows, []string{u.Router, u.Prefix.String(), joined(u.Via), "–", "–", "static (added), not in use"})
		}
	}
	if len(rows) == 1 {
		a.say("the controller routes for no routers (to have some:  trivet up --nodes router …)")
		return nil
	}
	a.table(rows)
	return nil
}

// nextHop shows the neighbour's address and name.
func nextHop(h api.Hop) string {
	switch {
	case !h.Via.IsValid():
		return "–"
	case h.Router == "":
		return h.Via.String()
	}
	return h.Via.String() + " " + h.Router
}
