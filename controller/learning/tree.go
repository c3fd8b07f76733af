package learning

import (
	"cmp"
	"slices"
	"time"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/internal/disjoint"
)

// end is a port of a switch.
type end struct {
	dpid uint64
	port uint32
}

func (e end) compare(f end) int {
	return cmp.Or(cmp.Compare(e.dpid, f.dpid), cmp.Compare(e.port, f.port))
}

// graph is the network as known. Its vertices are the switches, by datapath id, then foreign
// networks, each of which joins any number of ports, and last the unknown: whatever is behind ports
// that lead to switches not connected. The unknown is assumed to be connected and to forward, so
// that no loop is made through it.
type graph struct {
	vertices int
	edges    []*arc
	at       [][]*arc // by vertex
	leaves   []leaf   // ports without links
	inLink   map[end]bool

	segments []*segment
	index    map[uint64]int // of switches' vertices

	unseen bool      // something that forwards leads to the unknown
	dark   bool      // switches with hosts are disconnected, or reconnected but not discovered yet
	lost   time.Time // when the first of them was disconnected; zero: before this run
}

// arc joins two vertices.
type arc struct {
	u, v     int
	ends     []*endState // one at each switch
	forwards bool        // it may be forwarding now: none of its ends is known to be closed
	fixed    bool        // it cannot be changed: its switches are disconnected, or it leads to the unknown
	usable   bool        // it can be made to forward
	tree     bool        // it is to forward
}

type endState struct {
	end
	table *table
	phase phase
	away  bool
}

// leaf is a port without a link.
type leaf struct {
	*endState
	vertex int
	want   phase
}

// build makes the graph from discovery's links and the tables' ports.
func (a *App) build(tables []*table, ports []discovery.Port, links []discovery.Link, now time.Time) *graph {
	g := &graph{vertices: len(tables), inLink: map[end]bool{}}
	index := make(map[uint64]int, len(tables))
	for i, t := range tables {
		index[t.dpid] = i
	}
	segments := segmentsOf(links)
	g.segments, g.index = segments, index
	unknown := len(tables) + len(segments)
	for i, s := range segments {
		a.addSegment(g, s, len(tables)+i, unknown, tables, index)
	}
	g.vertices = unknown + 1
	for _, p := range ports {
		i, ok := index[p.Switch]
		if at := (end{p.Switch, p.Number}); ok && !g.inLink[at] {
			g.addPort(tables[i], i, at, p.Kind, unknown, now)
		}
	}
	if a.agreement == nil {
		g.addUnknown(tables, unknown, now)
	}
	g.sort()
	return g
}

// addUnknown adds edges for ports that lead, or may lead, to the unknown.
func (g *graph) addUnknown(tables []*table, unknown int, now time.Time) {
	for i, t := range tables {
		g.addAway(t, i, unknown, now)
	}
	for _, e := range g.edges {
		g.unseen = g.unseen || e.v == unknown && e.forwards
	}
	for i, t := range tables {
		g.addHosts(t, i, unknown, now)
	}
}

// sort orders the edges by their first ends.
func (g *graph) sort() {
	slices.SortFunc(g.edges, func(x, y *arc) int {
		return cmp.Or(x.first().compare(y.first()), cmp.Compare(x.u, y.u), cmp.Compare(x.v, y.v))
	})
	g.at = make([][]*arc, g.vertices)
	for _, e := range g.edges {
		g.at[e.u] = append(g.at[e.u], e)
		g.at[e.v] = append(g.at[e.v], e)
	}
}

func (e *arc) first() end {
	if len(e.ends) == 0 {
		return end{}
	}
	return e.ends[0].end
}

// segment is a set of ports that links join: two, or more by foreign switches.
type segment struct {
	ends     []end
	indirect bool
}

// segmentsOf merges links that share a port.
func segmentsOf(links []discovery.Link) []*segment {
	of := map[end]*segment{}
	for _, l := range links {
		x, y := end{l.From, l.FromPort}, end{l.To, l.ToPort}
		s, other := of[x], of[y]
		if s == nil {
			s = &segment{ends: []end{x}}
			of[x] = s
		}
		if other == nil {
			other = &segment{ends: []end{y}}
			of[y] = other
		}
		if s != other {
			if len(s.ends) < len(other.ends) {
				s, other = other, s
			}
			s.ends = append(s.ends, other.ends...)
			s.indirect = s.indirect || other.indirect
			for _, e := range other.ends {
				of[e] = s
			}
		}
		s.indirect = s.indirect || l.Indirect
	}
	var out []*segment
	for e, s := range of {
		slices.SortFunc(s.ends, end.compare)
		if s.ends[0] == e {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y *segment) int { return x.ends[0].compare(y.ends[0]) })
	return out
}

// addSegment adds a segment's edges: a single one if it is a cable between two learning switches;
// otherwise the segment becomes a vertex, joined to each port.
func (a *App) addSegment(g *graph, s *segment, vertex, unknown int, tables []*table, index map[uint64]int) {
	var known []*endState
	unseen, shared := 0, s.indirect || len(s.ends) > 2
	for _, at := range s.ends {
		g.inLink[at] = true
		switch i, ok := index[at.dpid]; {
		case !a.only(at.dpid):
			shared = true // not a single cable between learning switches
		case !ok: // remembered, and not reconnected: it may be forwarding on any port
			unseen++
			g.dark, g.lost = true, time.Time{}
		default:
			known = append(known, tables[i].end(at))
		}
	}
	if unseen == 0 {
		for _, e := range known {
			e.table.known(e.port)
		}
	}
	switch {
	case len(known) == 0:
	case shared:
		for _, e := range known {
			g.add(index[e.dpid], vertex, false, e)
		}
		if unseen > 0 {
			g.edges = append(g.edges, &arc{u: vertex, v: unknown, forwards: true, fixed: true, usable: true})
		}
	case unseen > 0:
		g.add(index[known[0].dpid], unknown, true, known[0])
	case len(known) == 2:
		g.add(index[known[0].dpid], index[known[1].dpid], false, known...)
	}
}

// end returns the state of a port.
func (t *table) end(at end) *endState {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &endState{end: at, table: t, away: t.sw == nil && !t.other}
	if p := t.ports[at.port]; p != nil {
		e.phase = p.phase
	}
	return e
}

// known ends the time for which a port keeps the state read from the switch's tables.
func (t *table) known(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.ports[number]; p != nil {
		p.held = time.Time{}
	}
}

func (g *graph) add(u, v int, fixed bool, ends ...*endState) {
	e := &arc{u: u, v: v, ends: ends, forwards: true, usable: true}
	away := 0
	for _, x := range ends {
		e.forwards = e.forwards && x.phase != closed
		if x.away {
			away++
			e.usable = e.usable && x.phase == open
		}
	}
	if e.fixed = fixed || away == len(ends); e.fixed {
		e.usable = e.forwards
	}
	g.edges = append(g.edges, e)
}

// addPort adds a port without a link. If the switch's tables say that it had one, it leads to the
// unknown for a time.
func (g *graph) addPort(t *table, i int, at end, kind discovery.Kind, unknown int, now time.Time) {
	e := t.end(at)
	if e.away || t.other {
		return
	}
	t.mu.Lock()
	p := t.ports[at.port]
	held := p != nil && now.Before(p.held)
	wasLink := held && p.role.isLink()
	if held && !wasLink && kind != discovery.Open {
		p.held = time.Time{}
	}
	t.mu.Unlock()
	switch {
	case wasLink && kind != discovery.Inner && t.app.agreement == nil:
		g.add(i, unknown, true, e)
	case kind == discovery.Edge, held && !wasLink && kind == discovery.Open && e.phase == open:
		g.leaves = append(g.leaves, leaf{e, i, open})
	default:
		g.leaves = append(g.leaves, leaf{e, i, closed})
	}
}

// addAway adds the links of a switch that was disconnected before they were discovered.
func (g *graph) addAway(t *table, i, unknown int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sw != nil {
		return
	}
	for number, p := range t.ports {
		late := now.Before(p.held) || now.Sub(t.lost) < holdTime
		if p.phase != closed && p.role.inTree() && late && !g.inLink[end{t.dpid, number}] {
			g.add(i, unknown, true)
		}
	}
}

// addHosts adds ports that seem to lead to hosts. If a port is new, it may lead to a switch that is
// not connected, for as long as one may still appear. The ports of a disconnected switch may lead
// to one that connected later, until discovery knows them again.
func (g *graph) addHosts(t *table, i, unknown int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sw == nil && now.Sub(t.lost) >= holdTime {
		return
	}
	hosts, fresh := false, false
	for _, p := range t.ports {
		if p.phase != closed && p.role == edge {
			hosts = hosts || t.sw == nil || now.Before(p.held)
			fresh = fresh || now.Sub(p.opened) < holdTime
		}
	}
	if hosts {
		if !g.dark || t.lost.Before(g.lost) {
			g.lost = t.lost
		}
		g.dark = true
	}
	if t.sw != nil && g.unseen && fresh {
		g.add(i, unknown, true)
	}
}

// plan chooses the edges that are to forward: a breadth-first tree from the lowest datapath id of
// each component. If that conflicts with edges that are unknown or cannot be changed, it instead
// keeps what forwards now and repairs it: a working connection is never cut for a network that is
// only partly known.
func (g *graph) plan() {
	known := true
	for _, e := range g.edges {
		known = known && !(e.v == g.vertices-1 && e.fixed)
	}
	if known && g.breadthFirst() {
		return
	}
	for _, e := range g.edges {
		e.tree = false
	}
	g.mend()
}

// breadthFirst chooses the tree, and reports whether it agrees with the edges that cannot be
// changed.
func (g *graph) breadthFirst() bool {
	seen := make([]bool, g.vertices)
	for root := range seen {
		if seen[root] {
			continue
		}
		seen[root] = true
		for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
			u := queue[0]
			for _, e := range g.at[u] {
				if to := e.u + e.v - u; e.usable && !seen[to] {
					seen[to], e.tree = true, true
					queue = append(queue, to)
				}
			}
		}
	}
	return !slices.ContainsFunc(g.edges, func(e *arc) bool { return e.fixed && e.forwards && !e.tree })
}

// mend keeps the edges that forward, those that cannot be changed first, and adds edges that join
// components.
func (g *graph) mend() {
	parts := disjoint.Sets[int]{}
	for _, e := range g.edges {
		if e.fixed && e.forwards && e.v != g.vertices-1 {
			parts.Join(e.u, e.v)
			e.tree = true
		}
	}
	for _, e := range g.edges {
		if e.forwards && !e.fixed && e.usable {
			e.tree = parts.Join(e.u, e.v)
		}
	}
	for _, e := range g.edges {
		if e.forwards && e.v == g.vertices-1 { // to or from the unknown
			parts.Join(e.u, e.v)
		}
	}
	for _, e := range g.edges {
		if !e.forwards && e.usable && !e.fixed {
			e.tree = parts.Join(e.u, e.v)
		}
	}
}
