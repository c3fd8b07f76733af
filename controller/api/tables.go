package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/user"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
)

// question requests statistics of type B from a switch.
func question[B openflow.MultipartBody](ctx context.Context, s *controller.Switch,
	body openflow.MultipartBody) (b B, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	b, err = controller.Ask[B](ctx, s, body)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", askTime)
	}
	return b, err
}

// atOnce is the number of switches asked at the same time.
const atOnce = 32

// askAll asks the switch called name, or all, and calls each with the answers, one at a time, in
// the order of the switches' names. It returns the switches that have not answered.
func askAll[B openflow.MultipartBody](ctx context.Context, v *view, name string, body openflow.MultipartBody,
	each func(dpid uint64, b B)) (silent []string, err error) {
	switches := v.c.AllSeen() // a standby reads other members' switches, too
	if name != "" {
		one, err := v.find(name)
		if err != nil {
			return nil, err
		}
		switches = []*controller.Switch{one}
	}
	slices.SortFunc(switches, func(a, b *controller.Switch) int {
		return builtin.CompareNames(v.switchName(a.DPID()), v.switchName(b.DPID()))
	})
	answers, errs := make([]B, len(switches)), make([]error, len(switches))
	room := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, s := range switches {
		room <- struct{}{}
		group.Go(func() {
			answers[i], errs[i] = question[B](ctx, s, body)
			<-room
		})
	}
	group.Wait()
	silent = []string{}
	for i, s := range switches {
		if errs[i] != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", v.switchName(s.DPID()), errs[i]))
			continue
		}
		each(s.DPID(), answers[i])
	}
	return silent, ctx.Err()
}

func (v *view) flows(ctx context.Context, name string) (out Flows, err error) {
	out.Flows, out.Pending = []Flow{}, []Flow{}
	out.Silent, err = askAll(ctx, v, name, openflow.AllFlows(), func(dpid uint64, list openflow.FlowStatsList) {
		slices.SortStableFunc(list, func(a, b openflow.FlowStats) int {
			return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority))
		})
		for i := range list {
			out.Flows = append(out.Flows, v.flow(dpid, &list[i]))
		}
	})
	for _, f := range v.c.User.Flows() {
		if n := v.switchName(f.Switch); v.c.Seen(f.Switch) == nil && (name == "" || name == n) {
			out.Pending = append(out.Pending, v.userFlow(f))
		}
	}
	return out, err
}

// flow describes an entry as the switch reports it.
func (v *view) flow(dpid uint64, f *openflow.FlowStats) Flow {
	out := Flow{Switch: v.switchName(dpid), Table: f.Table, Priority: f.Priority, Match: f.Match.String(),
		Actions: openflow.FormatInstructions(f.Instructions), App: apps.Of(f.Cookie), Cookie: fmt.Sprintf("%#x",
			f.Cookie),
		Packets: counter(f.Packets), Bytes: counter(f.Bytes), Seconds: f.Duration.Time().Seconds(),
		IdleTimeout: f.IdleTimeout, HardTimeout: f.HardTimeout}
	out.Readable = v.readable(dpid, entryText(out.Match, out.Actions))
	if f.Cookie&apps.CookieMask == user.Cookie {
		out.ID = int64(f.Cookie &^ apps.CookieMask)
	}
	return out
}

// userFlow describes an entry as it was requested.
func (v *view) userFlow(f user.Flow) Flow {
	s := openflow.FlowStats{Table: f.Flow.Table, Priority: f.Flow.Priority, Match: f.Flow.Match,
		Instructions: f.Flow.Instructions,
		Cookie:       user.Cookie | uint64(f.ID), IdleTimeout: f.Flow.IdleTimeout, HardTimeout: f.Flow.HardTimeout}
	return v.flow(f.Switch, &s)
}

// entryText puts match and actions on one line.
func entryText(match, actions string) string {
	return strings.TrimPrefix(match+" actions="+actions, " ")
}

func (v *view) groups(ctx context.Context, name string) (out Groups, err error) {
	out.Groups = []Group{}
	counts := map[place]openflow.GroupStats{}
	ask := openflow.GroupStatsRequest{Group: openflow.GroupAll}
	out.Silent, err = askAll(ctx, v, name, ask, func(dpid uint64, list openflow.GroupStatsList) {
		for _, s := range list {
			counts[place{dpid, s.Group}] = s
		}
	})
	if err != nil {
		return out, err
	}
	_, err = askAll(ctx, v, name, openflow.NoBody(openflow.MultipartGroupDesc),
		func(dpid uint64, list openflow.GroupDescList) {
			for _, g := range list {
				out.Groups = append(out.Groups, v.group(dpid, g, counts[place{dpid, g.Group}]))
			}
		})
	return out, err
}

func (v *view) group(dpid uint64, g openflow.GroupDesc, s openflow.GroupStats) Group {
	out := Group{Switch: v.switchName(dpid), ID: g.Group, Type: g.Kind.String(), Packets: counter(s.Packets),
		Bytes:   counter(s.Bytes),
		Seconds: s.Duration.Time().Seconds(), Buckets: []Bucket{}}
	for i, b := range g.Buckets {
		text := openflow.FormatActions(b.Actions)
		x := Bucket{Actions: text, Readable: v.readable(dpid, text), Weight: b.Weight}
		if i < len(s.Buckets) {
			x.Packets = counter(s.Buckets[i].Packets)
		}
		out.Buckets = append(out.Buckets, x)
	}
	return out
}

func (v *view) addFlow(ctx context.Context, r FlowRequest) (out Flow, err error) {
	s, err := v.find(r.Switch)
	if err != nil {
		return out, err
	}
	m, err := user.Parse(r.Flow)
	if err != nil {
		return out, fmt.Errorf("%s: %w", r.Flow, err)
	}
	if err := checkPorts(s, m); err != nil {
		return out, fmt.Errorf("%s: %w; nothing was changed", r.Flow, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	f, err := v.c.User.Add(ctx, s.DPID(), m)
	if err != nil {
		return out, fmt.Errorf("%s: %w; nothing was changed", v.switchName(s.DPID()), err)
	}
	return v.userFlow(f), nil
}

// checkPorts returns an error if an entry names a port that the switch does not have. A switch
// accepts such an entry, as the port may be added later.
func checkPorts(s *controller.Switch, m *openflow.FlowMod) error {
	ports := s.Ports()
	check := func(number uint32, what string) error {
		if number > openflow.PortMax ||
			slices.ContainsFunc(ports, func(p openflow.Port) bool { return p.Number == number }) {
			return nil // reserved ports are OpenFlow's, and the switch refuses those that do not fit
		}
		names := make([]string, len(ports))
		for i, p := range ports {
			names[i] = fmt.Sprintf("%d (%s)", p.Number, p.Name)
			if p.Number > openflow.PortMax {
				names[i] = openflow.PortName(p.Number)
			}
		}
		return fmt.Errorf("%s: the switch has no port %d; its ports are %s", what, number, strings.Join(names, ", "))
	}
	if number, ok := m.Match.InPort(); ok {
		if err := check(number, fmt.Sprintf("in_port=%d", number)); err != nil {
			return err
		}
	}
	for _, i := range m.Instructions {
		for _, a := range i.Actions {
			if a.Type != openflow.ActionOutput {
				continue
			}
			if err := check(a.Port, fmt.Sprintf("output:%d", a.Port)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *view) deleteFlow(ctx context.Context, id int64) (out Flow, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	f, err := v.c.User.Delete(ctx, id)
	if err != nil {
		return out, fmt.Errorf("entry %d: %w", id, err)
	}
	return v.userFlow(f), nil
}

// routes lists the routes of a router, or of all.
func (v *view) routes(name, prefix string, all bool) (out Routes, err error) {
	out.Routes, out.Added = []Route{}, []builtin.UserRoute{}
	var only netip.Prefix
	if prefix != "" {
		if only, err = netip.ParsePrefix(prefix); err != nil || only != only.Masked() {
			return out, fmt.Errorf("%q is not a prefix; write it as 10.9.0.0/16", prefix)
		}
	}
	added := v.c.UserRoutes()
	users := usersOf(added)
	for _, u := range added {
		if name == "" || name == u.Router {
			out.Added = append(out.Added, u)
		}
	}
	if v.c.Routing == nil {
		return out, v.c.NoRouting()
	}
	var names []string
	found := false
	for _, r := range v.c.Routers() {
		names = append(names, r.Name)
		if name != "" && name != r.Name {
			continue
		}
		found = true
		if only.IsValid() || all {
			for _, x := range v.c.Routing.Candidates(r.DPID, only) {
				out.Routes = append(out.Routes, v.route(r, x, users))
			}
			continue
		}
		for _, x := range v.c.Routing.RoutesOf(r.DPID) {
			out.Routes = append(out.Routes, v.route(r, routing.Candidate{Route: x, Used: true}, users))
		}
	}
	if name != "" && !found {
		return out, builtin.NoSuch("router", name, names)
	}
	return out, nil
}

// redistributed lists the routes that all routers, or one, redistribute into a program or protocol.
func (v *view) redistributed(into, name string) (out Routes, err error) {
	out.Routes, out.Added = []Route{}, []builtin.UserRoute{}
	if v.c.Routing == nil {
		return out, v.c.NoRouting()
	}
	if name != "" {
		if _, err := v.routingNode(name); err != nil {
			return out, err
		}
	}
	users := usersOf(v.c.UserRoutes())
	for _, u := range v.c.Routing.RedistributedNow(into) {
		if r, ok := v.c.Router(u.Key.Router); ok && (name == "" || name == r.Name) {
			out.Routes = append(out.Routes, v.route(r, routing.Candidate{Route: u.Value, Used: true}, users))
		}
	}
	slices.SortStableFunc(out.Routes, func(a, b Route) int { return builtin.CompareNames(a.Router, b.Router) })
	return out, nil
}

// usersOf returns the routes that users have added, as "ROUTER PREFIX".
func usersOf(added []builtin.UserRoute) map[string]bool {
	users := lists.Set(added, func(u builtin.UserRoute) string { return u.Router + " " + u.Prefix.String() })
	return users
}

func (v *view) route(r routing.Router, x routing.Candidate, users map[string]bool) Route {
	route := Route{Router: r.Name, Prefix: x.Prefix, Source: builtin.SourceOf(x.Route), Distance: uint8(x.Distance),
		Metric: x.Metric, Tag: x.Tag,
		Hops: []Hop{}, Drop: x.Drop, Used: x.Used, Why: x.Why, User: x.Source == routing.Static &&
			users[r.Name+" "+x.Prefix.String()]}
	for _, h := range x.Hops {
		hop := Hop{Interface: h.Interface, Via: h.Via, Router: h.Router, For: h.For}
		if f := v.m.ByAddress(h.Via); hop.Router == "" && f != nil {
			hop.Router = f.Node
		}
		route.Hops = append(route.Hops, hop)
	}
	return route
}
