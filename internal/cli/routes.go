package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

func (a *app) routes() *cobra.Command {
	var add, remove string
	var all, follow bool
	cmd := &cobra.Command{
		Use:   "routes [ROUTER [PREFIX]] [--add 'PREFIX via ADDRESS' | --delete PREFIX]",
		Short: "List routes of routers, add and delete static ones of routing nodes",
		Long: "List the routes that a router uses, or all routers: of a Linux router those that its kernel has, whoever has put them there.\n" +
			"Of routing nodes there is more: with a prefix, those that it has from all sources to exactly that one, and\n" +
			"why one is used. The least distance counts, then the least metric. A static route that you add takes precedence over those that the\n" +
			"controller finds, unless it has a larger distance, and is kept until you delete it. Several next hops share the traffic: 'PREFIX via\n" +
			"A,B'; 'PREFIX discard' drops. An address that another route leads to may be a next hop, too. With --all, all that routers have from\n" +
			"all sources, as FRR's 'show ip route' writes it; with --follow, what routers use, and then each change of it.",
		Example: "  trivet routes r1\n  trivet routes r1 10.9.0.0/16\n  trivet routes r1 --add '10.9.0.0/16 via 10.0.1.9'\n" +
			"  trivet routes r1 --add '10.9.0.0/16 via 10.0.2.9 distance 200'\n  trivet routes r1 --delete 10.9.0.0/16",
		Args: cobra.MaximumNArgs(2),
	}
	k := controllerFlags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on to show what changes, until Ctrl-C")
	f.StringVar(&add, "add", "", "add a static route to the router")
	f.StringVar(&remove, "delete", "", "delete the static route to that prefix, one that you added")
	f.BoolVar(&all, "all", false, "list the routes of all sources, also those that are not used")
	cmd.MarkFlagsMutuallyExclusive("add", "delete", "all", "follow")
	cmd.ValidArgsFunction = a.completeSwitches(k, "router")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := first(args)
		if name == "" && (f.Changed("add") || f.Changed("delete")) {
			return errors.New("name the router:  trivet routes r1 --add '10.9.0.0/16 via 10.0.1.9'")
		}
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		of, err := a.kernelsOf(ctx, k)
		if err != nil {
			return err
		}
		if of != nil && (of.isLinuxRouter(name) || !of.controlled(of.t.Nodes...)) {
			if f.Changed("add") || f.Changed("delete") || follow {
				const how = "a Linux router's kernel has its routes:  trivet exec %s -- ip route add 10.9.0.0/16 via 10.0.1.9  " +
					"(to follow them: ip monitor route)"
				return fmt.Errorf(how, cmp.Or(name, "r1"))
			}
			return a.listKernelRoutes(ctx, of, args)
		}
		switch {
		case follow:
			return a.followRoutes(cmd.Context(), c, args)
		case f.Changed("add"):
			return a.addRoute(ctx, c, name, add)
		case f.Changed("delete"):
			return a.deleteRoute(ctx, c, name, remove)
		}
		if all {
			return a.listAll(ctx, c, args)
		}
		if len(args) == 2 {
			return a.compareRoutes(ctx, c, name, args[1])
		}
		return a.listRoutes(ctx, c, of, name)
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
	return a.answer(r, "added   %s  %s", r.Router, text)
}

func (a *app) deleteRoute(ctx context.Context, c *api.Client, router, text string) error {
	prefix, err := parsePrefix(text)
	if err == nil {
		err = c.DeleteRoute(ctx, router, prefix.String())
	}
	if err != nil {
		return err
	}
	return a.answer(map[string]any{"router": router, "prefix": prefix}, "deleted   %s  %s", router, prefix)
}

var blanksAtCommas = regexp.MustCompile(`\s*,\s*`)

// parseRoute reads "10.9.0.0/16 via 10.0.1.9,10.0.2.9 distance 200", or "10.9.0.0/16 discard".
func parseRoute(router, text string) (r api.RouteRequest, err error) {
	to, rest, _ := strings.Cut(strings.TrimSpace(blanksAtCommas.ReplaceAllString(text, ",")), " ")
	r.Router = router
	if r.Prefix, err = parsePrefix(to); err != nil {
		return r, err
	}
	before, after, _ := strings.Cut(" "+rest, " via ")
	hops, options, _ := strings.Cut(strings.TrimSpace(after), " ")
	for hop := range strings.SplitSeq(hops, ",") {
		line := r.Prefix.String() + " " + before + " " + options
		if after != "" {
			line = r.Prefix.String() + " via " + hop + " " + options
		}
		x, err := topology.ParseRoute(line)
		if err != nil || x.Device != "" || after != "" && strings.TrimSpace(before) != "" || x.Via.Zone() != "" {
			return r, fmt.Errorf("%q is not a route; write '10.9.0.0/16 via 10.0.1.9', or '10.9.0.0/16 discard'; distance 200, metric 5, tag 7 may follow", text)
		}
		r.Distance, r.Metric, r.Tag = x.Distance, x.Metric, x.Tag
		if x.Via.IsValid() {
			r.Via = append(r.Via, x.Via)
		}
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

func (a *app) listRoutes(ctx context.Context, c *api.Client, of *kernels, name string) error {
	routes, err := c.Routes(ctx, name, "")
	if err != nil {
		return err
	}
	if of != nil {
		more, err := of.routes(ctx, name)
		if err != nil {
			return err
		}
		routes.Routes = append(routes.Routes, more...)
	}
	return a.showRoutes(routes)
}

// listKernelRoutes lists the routes of one Linux router, of all, or those to exactly one prefix.
func (a *app) listKernelRoutes(ctx context.Context, of *kernels, args []string) error {
	name := ""
	if len(args) > 0 {
		if name = args[0]; !of.isLinuxRouter(name) {
			return fmt.Errorf("%s is no router of the lab; they are:  trivet inspect", name)
		}
	}
	list, err := of.routes(ctx, name)
	if err != nil {
		return err
	}
	if len(args) > 1 {
		p, err := parsePrefix(args[1])
		if err != nil {
			return err
		}
		if list = slices.DeleteFunc(list, func(r api.Route) bool { return r.Prefix != p }); len(list) == 0 && !a.json {
			a.say("%s has no route to exactly %s; its other routes:  trivet routes %s", name, p, name)
			return nil
		}
	}
	return a.showRoutes(api.Routes{Routes: list, Added: []builtin.UserRoute{}})
}

func (a *app) showRoutes(routes api.Routes) error {
	if a.json {
		return a.printJSON(routes)
	}
	rows := [][]string{{"ROUTER", "PREFIX", "NEXT HOP", "INTERFACE", "DISTANCE", "METRIC", "SOURCE"}}
	used := map[string]bool{}
	for _, r := range routes.Routes {
		source := r.Source
		if r.User {
			source += " (added)"
			used[r.Router+" "+r.Prefix.String()] = true
		}
		first := []string{r.Router, r.Prefix.String()}
		for i, h := range hopCells(r) {
			if i > 0 {
				first = []string{"", ""}
			}
			distance := fmt.Sprint(r.Distance)
			if r.Kernel {
				distance = "–"
			}
			rows = append(rows, append(slices.Concat(first, h), distance, fmt.Sprint(r.Metric), source))
		}
	}
	for _, u := range routes.Added {
		if !used[u.Router+" "+u.Prefix.String()] {
			via := cmp.Or(joined(u.Via), "drop")
			rows = append(rows,
				[]string{u.Router, u.Prefix.String(), via, "–", fmt.Sprint(cmp.Or(u.Distance, rib.Static)), "–",
					"static (added), not in use"})
		}
	}
	if len(rows) == 1 {
		a.say("the controller routes for no routers (to have some:  trivet up --nodes router …)")
		return nil
	}
	a.table(rows)
	return nil
}

// compareRoutes shows a router's routes to a prefix from all sources.
func (a *app) compareRoutes(ctx context.Context, c *api.Client, name, prefix string) error {
	p, err := parsePrefix(prefix)
	if err != nil {
		return err
	}
	routes, err := c.Routes(ctx, name, p.String())
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(routes)
	}
	if len(routes.Routes) == 0 {
		a.say("%s has no route to exactly %s; its other routes:  trivet routes %s", name, p, name)
		return nil
	}
	rows := [][]string{{"", "SOURCE", "DISTANCE", "METRIC", "TAG", "NEXT HOP", "INTERFACE", ""}}
	for _, r := range routes.Routes {
		mark, source, tag := "", r.Source, "–"
		if r.Used {
			mark = "*"
		}
		if r.User {
			source += " (added)"
		}
		if r.Tag > 0 {
			tag = fmt.Sprint(r.Tag)
		}
		why := r.Why
		if why != "" {
			why = "not used: " + why
		}
		first := []string{mark, source, fmt.Sprint(r.Distance), fmt.Sprint(r.Metric), tag}
		for i, h := range hopCells(r) {
			if i > 0 {
				first, why = []string{mark, "", "", "", ""}, ""
			}
			rows = append(rows, append(slices.Concat(first, h), why))
		}
	}
	a.table(rows)
	return nil
}

// codes are the letters for sources, FRR's if it has the source. Protocols add theirs.
var codes = map[string]string{"connected": "C", "static": "S", "program": "p", "balanced": "b", "shortest path": "s",
	"fallback": "f"}

// listAll shows routers' routes from all sources, in FRR's format.
func (a *app) listAll(ctx context.Context, c *api.Client, args []string) error {
	if len(args) == 2 {
		return errors.New("--all is all prefixes; without it a prefix has its own routes:  trivet routes r1 10.9.0.0/16")
	}
	routes, err := c.AllRoutes(ctx, first(args))
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(routes)
	}
	spoken := ""
	for _, p := range protocols {
		spoken += p.letter + " " + p.name + ", "
	}
	a.say("C connected, S static, %sp program, b balanced, s shortest path, f fallback; > chosen, * in use", spoken)
	router := ""
	for _, r := range routes.Routes {
		if r.Router != router {
			router = r.Router
			a.say("%s:", router)
		}
		for _, line := range frrLines(r) {
			a.say("%s", line)
		}
	}
	return nil
}

// followRoutes shows the routes that a router uses, and what changes, until ctx ends.
func (a *app) followRoutes(ctx context.Context, c *api.Client, args []string) error {
	if len(args) != 1 {
		return errors.New("name the router:  trivet routes r1 --follow")
	}
	reason := ""
	err := c.Events(ctx, api.EventQuery{Routes: args}, func(name string, data []byte) error {
		switch name {
		case "end":
			var e api.EndEvent
			err := json.Unmarshal(data, &e)
			reason = e.Reason
			return err
		case "route":
			var e api.RouteEvent
			if err := json.Unmarshal(data, &e); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(e)
			}
			lines := []string{"    " + e.Prefix.String() + " gone"}
			if !e.Gone {
				lines = frrLines(e.Route)
			}
			for _, line := range lines {
				a.say("%s  %s", e.Time.Local().Format("15:04:05.000"), line)
			}
		}
		return nil
	})
	if err == nil && reason != "" {
		err = errors.New(reason)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// frrLines returns a route in the format of FRR's show ip route, a line for each next hop.
func frrLines(r api.Route) (out []string) {
	source, _, _ := strings.Cut(r.Source, " ")
	code := cmp.Or(codes[r.Source], codes[source], "?")
	chosen, inUse, why := " ", " ", ""
	if r.Used {
		chosen, inUse = ">", "*"
	}
	if r.Why != "" {
		why = ", not used: " + r.Why
	}
	head := fmt.Sprintf("%s%s%s %s", code, chosen, inUse, r.Prefix)
	if r.Source != "connected" {
		head += fmt.Sprintf(" [%d/%d]", r.Distance, r.Metric)
	}
	if strings.HasPrefix(r.Source, "program ") {
		why = ", of " + strings.TrimPrefix(r.Source, "program ") + why
	}
	if r.Tag > 0 {
		why = fmt.Sprintf(", tag %d", r.Tag) + why
	}
	if r.Drop || len(r.Hops) == 0 {
		return []string{head + " unreachable (blackhole)" + why}
	}
	for i, h := range r.Hops {
		if i > 0 {
			head = "  " + inUse + strings.Repeat(" ", len(head)-3)
		}
		way := "is directly connected"
		if h.Via.IsValid() {
			way = "via " + nextHop(h)
		}
		out = append(out, head+" "+way+", "+cmp.Or(h.Interface, "unknown")+why)
		why = ""
	}
	return out
}

// hopCells shows the next hops of a route and their interfaces.
func hopCells(r api.Route) (out [][]string) {
	for _, h := range r.Hops {
		out = append(out, []string{nextHop(h), cmp.Or(h.Interface, "–")})
	}
	if r.Drop || len(out) == 0 {
		out = append(out, []string{"drop", "–"})
	}
	return out
}

// nextHop shows the neighbour's address and name, and the address in the route if that differs.
func nextHop(h api.Hop) string {
	text := "–"
	if h.Via.IsValid() {
		text = strings.TrimSpace(h.Via.String() + " " + h.Router)
	}
	if h.For.IsValid() {
		text += ", the way to " + h.For.String()
	}
	return text
}
