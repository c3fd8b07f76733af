package ospf

import (
	"net/netip"
	"time"

	"trivet.dev/trivet/controller/routing"
	engine "trivet.dev/trivet/routing/ospf"
)

const (
	maxHeld = 1_000_000 // routes kept; those of further routers are computed each time they are queried
	maxRuns = 256       // calculations kept in the log
)

// Run is a calculation of routes: the graphs of areas are rebuilt, and a router's shortest-path
// tree is computed when its routes are queried.
type Run struct {
	Time     time.Time   `json:"time"`
	Cause    string      `json:"cause" doc:"The first change that led to it"`
	Areas    []engine.ID `json:"areas" doc:"In which something has changed"`
	External bool        `json:"external,omitempty" doc:"External routes have changed"`
	Routers  int         `json:"routers" doc:"In these areas, including those outside of this controller"`
	LSAs     int         `json:"lsas" doc:"In the databases of these areas"`
	Seconds  float64     `json:"seconds" doc:"For the graphs, and the routes of area border routers"`
	Member   string      `json:"member,omitempty" doc:"In events of a lab's cluster: the member that calculated"`
}

// output is the engine's output.
type output struct {
	packets   []packet
	neighbors []NeighborChange
	restarts  []Restart
	runs      []Run // after which routes may differ
}

// poll runs what is due, and returns when it must be called again; zero: after the next event.
func (n *network) poll(now time.Time) (o output, deadline time.Time) {
	if n.domain == nil {
		return o, deadline
	}
	start := time.Now()
	out := n.domain.Poll(now)
	took := time.Since(start)
	for _, d := range out.Datagrams {
		o.packets = append(o.packets, n.dress(now, d)...)
	}
	for _, c := range out.Neighbors {
		n.count(c)
		x := n.neighborChange(now, c)
		o.neighbors = append(o.neighbors, x)
		if c.Reason != "" && c.To == engine.NeighborDown {
			n.log.Warn("ospf: a neighbour was dropped, and is ignored for a while", "router", x.Router, "interface",
				x.Interface, "neighbor", x.Neighbor,
				"reason", x.Reason)
		}
	}
	for _, c := range out.Restarts {
		if n.byID[c.Router.ID()] == nil {
			continue // another member has it by now
		}
		x := n.restartOf(now, c)
		o.restarts = append(o.restarts, x)
		n.log.Info("ospf: "+x.what(), "router", x.Router, "interface", x.Interface, "neighbor", x.Neighbor, "seconds",
			x.Seconds, "reason", x.Reason)
		if x.done() {
			n.dropTables()
		}
	}
	for _, m := range out.Mismatches {
		n.logMismatch(now, m)
	}
	for _, err := range out.Errors {
		n.log.Error("ospf", "error", err)
	}
	if len(out.Changes) > 0 {
		o.runs = append(o.runs, n.ran(now, out.Changes, took))
		n.dropTables()
	}
	if len(out.Changes) > 0 || !n.domain.Pending() {
		n.cause = ""
	}
	return o, out.Deadline
}

// count counts the external neighbours, because of which LSAs are throttled.
func (n *network) count(c engine.NeighborChange) {
	switch engine.NeighborDown {
	case c.From:
		n.outside++
	case c.To:
		n.outside--
	}
	if n.outside > 0 {
		n.domain.SetThrottle(lsaThrottle)
	} else {
		n.domain.SetThrottle(lsaAlone)
	}
}

// ran adds a calculation to the log.
func (n *network) ran(now time.Time, changes []engine.Change, took time.Duration) Run {
	r := Run{Time: now, Cause: n.cause, Areas: []engine.ID{}, Seconds: took.Seconds()}
	for _, c := range changes {
		if c.Kind == engine.ExternalChanged {
			r.External = true
			continue
		}
		r.Areas = append(r.Areas, c.Area)
		routers, all := n.domain.Area(c.Area).Size()
		r.Routers, r.LSAs = r.Routers+routers, r.LSAs+all
	}
	if r.Cause == "" {
		r.Cause = "the age of LSAs"
	}
	if len(n.runs) == maxRuns {
		n.runs = append(n.runs[:0], n.runs[1:]...)
	}
	n.runs = append(n.runs, r)
	return r
}

func (n *network) dropTables() {
	n.tables, n.held, n.networks = map[engine.ID][]routing.Learned{}, 0, nil
}

// routes returns a router's routes, computed when needed.
func (n *network) routes(dpid uint64) []routing.Learned {
	r := n.routers[dpid]
	if r == nil || !n.started {
		return nil
	}
	if t, ok := n.tables[r.ID]; ok {
		return t
	}
	start := time.Now()
	out := learn(r.engine.Routes())
	r.took = time.Since(start)
	if n.held += len(out); n.held <= maxHeld {
		n.tables[r.ID] = out
	}
	return out
}

// routeTo returns the route to one network, from the router's table if there is one; it does not
// compute a whole table.
func (n *network) routeTo(dpid uint64, p netip.Prefix) (routing.Learned, bool) {
	r := n.routers[dpid]
	if r == nil || !n.started {
		return routing.Learned{}, false
	}
	if t, ok := n.tables[r.ID]; ok {
		return routing.Find(t, p)
	}
	found, ok := r.engine.RouteTo(p)
	if !ok {
		return routing.Learned{}, false
	}
	out := learn(&engine.Table{Routes: []engine.Route{found}})
	if len(out) == 0 {
		return routing.Learned{}, false
	}
	return out[0], true
}

// learn converts a table to routes. Networks of the router's own interfaces are left out.
func learn(t *engine.Table) []routing.Learned {
	out := make([]routing.Learned, 0, len(t.Routes))
	sets := map[*engine.NextHop][]routing.LearnedHop{} // shared by routes
	for i := range t.Routes {
		r := &t.Routes[i]
		if r.Discard {
			out = append(out, routing.Learned{Prefix: r.Prefix, Metric: r.Cost, Drop: true})
			continue
		}
		if len(r.NextHops) == 0 {
			continue
		}
		hops, ok := sets[&r.NextHops[0]]
		if !ok || len(hops) != len(r.NextHops) {
			hops = make([]routing.LearnedHop, 0, len(r.NextHops))
			for _, h := range r.NextHops {
				if !h.Addr.IsUnspecified() {
					hops = append(hops, routing.LearnedHop{Port: h.Interface.Index(), Via: h.Addr})
				}
			}
			sets[&r.NextHops[0]] = hops
		}
		if len(hops) > 0 {
			out = append(out, routing.Learned{Prefix: r.Prefix, Metric: metric(r), Tag: r.Tag, Hops: hops})
		}
	}
	return out
}

// metric returns a route's metric. For a type 2 external route it is the external metric.
func metric(r *engine.Route) uint32 {
	if r.Type == engine.External2 {
		return r.Type2
	}
	return r.Cost
}
