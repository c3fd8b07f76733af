package graphml

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// reader makes a topology from a graph.
type reader struct {
	problems topology.Problems
	t        *topology.Topology
	names    namer
	switches map[string]*topology.Node // by the graph's ids
	sites    map[*topology.Node]site
}

// Read makes a topology from a GraphML file.
func Read(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
	g, problems := parse(file, data)
	if g == nil {
		return nil, problems
	}
	r := &reader{problems: problems, t: &topology.Topology{Pos: topology.Position{File: file, Line: 1, Column: 1}},
		names: namer{}, switches: map[string]*topology.Node{}, sites: map[*topology.Node]site{}}
	if len(g.nodes) == 0 {
		r.problems.Add(r.t.Pos, `write <graph><node id="0"/>…`, "the graph has no nodes")
	}
	withHost := r.nodes(g.nodes)
	r.hosts(withHost)
	for _, e := range g.edges {
		r.edge(e)
	}
	r.draw()
	return r.t, r.problems
}

// nodes makes the switches and returns those that get a host.
func (r *reader) nodes(things []*thing) (withHost []*topology.Node) {
	var external, hyper []*topology.Node
	for _, t := range things {
		if t.id == "" {
			continue
		}
		if first := r.switches[t.id]; first != nil {
			r.problems.Add(t.pos, "give each node an id of its own",
				"there is already a node with the id %q, at line %d", formats.Clip(t.id), first.Pos.Line)
			continue
		}
		label := cmp.Or(t.data["label"], "n"+t.id)
		n := r.t.AddNode(topology.Switch, r.names.take(label))
		n.Pos = t.pos
		if n.Name != t.data["label"] {
			n.Foreign = map[string]any{name: map[string]any{"label": t.data["label"]}}
		}
		r.switches[t.id] = n
		if s, ok := r.site(t, n); ok {
			r.sites[n] = s
		}
		switch {
		case t.data["hyperedge"] == "1":
			hyper = append(hyper, n)
		case t.data["Internal"] == "0":
			external = append(external, n)
		default:
			withHost = append(withHost, n)
		}
	}
	r.note(external, "external: part of other networks")
	r.note(hyper, "hyperedges: links with more than two ends")
	return withHost
}

// note warns about all nodes of one type at once.
func (r *reader) note(nodes []*topology.Node, what string) {
	if len(nodes) == 0 {
		return
	}
	names := lists.Map(nodes[:min(len(nodes), 5)], func(n *topology.Node) string { return n.Name })
	if len(nodes) > len(names) {
		names = append(names, "…")
	}
	r.problems.Warn(nodes[0].Pos, "", "%d nodes (%s) are %s; they are switches without a host", len(nodes),
		strings.Join(names, ", "), what)
}

// hosts gives each switch its host, at the switch's first port.
func (r *reader) hosts(switches []*topology.Node) {
	for i, s := range switches {
		h := r.t.AddNode(topology.Host, r.names.take(fmt.Sprintf("h%d", i+1)))
		h.Pos = s.Pos
		r.t.AddLink(s.Name, h.Name).Pos = s.Pos
	}
}

func (r *reader) edge(t *thing) {
	a, b := r.switches[t.source], r.switches[t.target]
	for _, end := range []struct {
		id string
		n  *topology.Node
	}{{t.source, a}, {t.target, b}} {
		if end.n == nil {
			r.problems.Add(t.pos, `write source="…" and target="…" with ids of nodes`,
				"the edge ends at a node %q, which is not in the graph", formats.Clip(end.id))
		}
	}
	switch {
	case a == nil || b == nil:
		return
	case a == b:
		r.problems.Warn(t.pos, "", "the edge from %s to itself is left out", a.Name)
		return
	}
	l := r.t.AddLink(a.Name, b.Name)
	l.Pos = t.pos
	l.Bandwidth = r.bandwidth(t)
	if from, ok := r.sites[a]; ok {
		if to, ok := r.sites[b]; ok {
			l.Delay = from.delay(to)
		}
	}
}

var speedUnits = map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

// bandwidth is LinkSpeedRaw in bit/s, or else LinkSpeed in LinkSpeedUnits.
func (r *reader) bandwidth(t *thing) topology.Rate {
	speed, unit := t.data["LinkSpeedRaw"], 1.0
	if speed == "" {
		speed = t.data["LinkSpeed"]
		var ok bool
		if unit, ok = speedUnits[strings.ToUpper(t.data["LinkSpeedUnits"])]; !ok {
			r.problems.Warn(t.pos, "",
				"the edge from %s to %s has a speed in the unknown unit %q; the link is unlimited",
				formats.Clip(t.source), formats.Clip(t.target), formats.Clip(t.data["LinkSpeedUnits"]))
			return 0
		}
	}
	if speed == "" {
		return 0
	}
	v, err := strconv.ParseFloat(speed, 64)
	if bits := math.Round(v * unit); err == nil && bits >= 1 && bits <= 1e15 {
		return topology.Rate(bits)
	}
	r.problems.Warn(t.pos, "", "the edge from %s to %s has the speed %q, which is not a number; the link is unlimited",
		formats.Clip(t.source), formats.Clip(t.target), formats.Clip(speed))
	return 0
}
