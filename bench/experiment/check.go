package experiment

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	_ "trivet.dev/trivet/topology/formats/all" // a topology may be a file of any format
	"trivet.dev/trivet/topology/formats/trivet"
)

// Resolve makes the topology of a lab: Read's result, resolved by Complete.
func (l *Lab) Resolve(dir string, d topology.Defaults) (*topology.Topology, topology.Problems) {
	t, problems := l.Read(dir)
	if t == nil {
		return nil, problems
	}
	t, more := l.Complete(t, d)
	return t, append(problems, more...)
}

// Read reads or generates the topology of a lab, and applies the lab's settings of links and of
// IPv6. Files are relative to dir. If a problem is an error, the topology is nil.
func (l *Lab) Read(dir string) (*topology.Topology, topology.Problems) {
	t, problems := l.source(dir)
	if t == nil || problems.Err() != nil {
		return nil, problems
	}
	if err := l.changeLinks(t); err != nil {
		problems.Add(topology.Position{}, "", "%s", err)
		return nil, problems
	}
	if v := l.Options["ipv6"]; v != "" {
		t.IPv6 = topology.IPv6(v)
	}
	return t, problems
}

// Complete resolves the topology of a lab with its datapath and controller; d applies where neither
// the topology nor the lab says anything. If a problem is an error, the result is nil.
func (l *Lab) Complete(t *topology.Topology, d topology.Defaults) (*topology.Topology, topology.Problems) {
	if v := l.Options["controller"]; v != "" {
		d.OverrideController = []string{v}
	}
	if v := l.Options["datapath"]; v != "" {
		d.OverrideDatapath = topology.Datapath(v)
	}
	return topology.Resolve(t, d)
}

func (l *Lab) changeLinks(t *topology.Topology) error {
	for _, words := range l.Links {
		change, err := topology.ParseLinkChange(strings.Fields(words))
		if err != nil {
			return fmt.Errorf("links: %w", err)
		}
		for _, link := range t.Links {
			change.Apply(link)
		}
	}
	for _, text := range l.Changes {
		if err := changeLink(t, text); err != nil {
			return fmt.Errorf("change: %w", err)
		}
	}
	return nil
}

func (l *Lab) source(dir string) (*topology.Topology, topology.Problems) {
	switch {
	case l.Generate != "":
		t, err := topology.Generate(l.Generate, topology.GenerateOptions{Nodes: topology.Kind(l.Nodes)})
		if err != nil {
			return nil, topology.Problems{{Message: err.Error()}}
		}
		return t, nil
	case l.File != "":
		t, problems := l.files.get(l.file(dir), l.Topo)
		if path, err := filepath.Abs(l.file(dir)); err == nil && t != nil {
			t.DirsFrom(filepath.Dir(path))
		}
		if t != nil && l.Commands == "false" {
			if l.onMachines(dir) {
				defer t.HostsAsMachines()()
			}
			t.Refuse(t.Errands(nil), nil)
		}
		return t, problems
	}
	t, problems := trivet.Read("", l.Topology)
	for i := range problems { // positions in the JSON mean nothing to the user
		problems[i].Pos = topology.Position{}
	}
	return t, problems
}

func changeLink(t *topology.Topology, text string) error {
	a, err := topology.ParseAction(text)
	if err != nil {
		return err
	}
	found := linksBetween(t, a.Ends)
	if len(found) == 0 {
		return fmt.Errorf("there is no link %s -- %s", a.Ends[0], a.Ends[1])
	}
	for _, link := range found {
		a.Change.Apply(link)
	}
	return nil
}

func linksBetween(t *topology.Topology, ends [2]string) (out []*topology.Link) {
	is := func(e topology.Endpoint, name string) bool {
		return name == e.Node || name == e.Interface && name != ""
	}
	for _, link := range t.Links {
		a, b := link.Ends[0], link.Ends[1]
		if is(a, ends[0]) && is(b, ends[1]) || is(a, ends[1]) && is(b, ends[0]) {
			out = append(out, link)
		}
	}
	return out
}

// Dir is the directory to which the experiment's file names are relative.
func (e *Experiment) Dir() string { return filepath.Dir(e.File) }

// Key identifies a lab: cells with the same key can use the same lab.
func (l *Lab) Key() string {
	b, _ := json.Marshal(l)
	return string(b)
}

// Check makes the topology of every lab, and reports what only topologies show: missing files,
// topologies with errors, probes and events with nodes or links that do not exist. It reads files;
// d is as for Lab.Resolve.
func (p *Plan) Check(d topology.Defaults) topology.Problems {
	c := checker{plan: p, defaults: d, topologies: map[string]*topology.Topology{}, told: map[string]bool{}}
	for i := range p.Cells {
		cell := &p.Cells[i]
		if t := c.topology(cell); t != nil {
			c.probes(cell, t)
			c.events(cell, t)
		}
	}
	return c.problems
}

type checker struct {
	plan       *Plan
	defaults   topology.Defaults
	problems   topology.Problems
	topologies map[string]*topology.Topology // by lab
	told       map[string]bool
}

// add reports a problem once, with the first cell that has it.
func (c *checker) add(pos topology.Position, cell *Cell, hint, message string) {
	if key := pos.String() + message; !c.told[key] {
		c.told[key] = true
		if len(cell.Levels) > 0 {
			message += " (" + cell.ID + ")"
		}
		c.problems.Add(pos, hint, "%s", message)
	}
}

func (c *checker) topology(cell *Cell) *topology.Topology {
	key := cell.Lab.Key()
	if t, known := c.topologies[key]; known {
		return t
	}
	t, problems := cell.Lab.Resolve(c.plan.Experiment.Dir(), c.defaults)
	for _, p := range problems {
		if !p.Warning {
			if p.Pos.Line == 0 {
				if p.Pos.File != "" {
					p.Message = p.Pos.File + ": " + p.Message
				}
				p.Pos = c.plan.Experiment.topology.Pos
			}
			c.add(p.Pos, cell, p.Hint, "topology: "+p.Message)
		}
	}
	c.topologies[key] = t
	return t
}

func (c *checker) probes(cell *Cell, t *topology.Topology) {
	for _, p := range slices.Concat(cell.Groups...) {
		if p.kind.Controller &&
			!decides(t, func(controller string) bool { return controller != topology.ControllerNone }) {
			c.add(p.pos, cell, "write lab: {controller: trivet}", p.Kind+": the lab has no controller")
		}
		for _, o := range p.kind.Options {
			if name := p.Options[o.Name]; o.Type == Node && name != "" {
				c.node(p.pos, cell, t, o.Name, name)
			}
			if n := t.Node(p.Options[o.Name]); n != nil && (o.Name == "from" || o.Name == "to") {
				c.end(p, cell, t, o.Name, n)
			}
		}
	}
}

// end checks a node that a probe sends from or to: it needs an address and, unless it only answers,
// has to run programs.
func (c *checker) end(p Probe, cell *Cell, t *topology.Topology, what string, n *topology.Node) {
	switch {
	case n.Kind == topology.Controller || !addressed(t, n):
		c.add(p.pos, cell, "take a host, or a router", fmt.Sprintf("%s: %s has no address", what, n.Name))
	case n.IsDatapath() && !(what == "to" && p.kind.Answered):
		c.add(p.pos, cell, "take a host, or give it datapath kernel or frr",
			fmt.Sprintf("%s: %s forwards by a flow table and cannot run programs, as %s needs", what, n.Name, p.Kind))
	}
}

// addressed says whether a node has an address.
func addressed(t *topology.Topology, n *topology.Node) bool {
	return len(n.Loopback) > 0 || slices.ContainsFunc(t.Links, func(l *topology.Link) bool {
		return slices.ContainsFunc(l.Ends[:],
			func(e topology.Endpoint) bool { return e.Node == n.Name && len(e.Addresses) > 0 })
	})
}

// decides says whether a switch or router has a controller for which such returns true.
func decides(t *topology.Topology, such func(controller string) bool) bool {
	return slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return slices.ContainsFunc(n.Controllers, such) })
}

func (c *checker) node(pos topology.Position, cell *Cell, t *topology.Topology, what, name string) {
	if t.Node(name) != nil {
		return
	}
	names := lists.Map(t.Nodes, func(n *topology.Node) string { return n.Name })
	c.add(pos, cell, topology.DidYouMean(name, names), fmt.Sprintf("%s: there is no node %s", what, formats.Clip(name)))
}

func (c *checker) events(cell *Cell, t *topology.Topology) {
	for _, e := range cell.Schedule {
		switch {
		case cell.Lab.Options["target"] == Mininet && e.Action.Node == "":
			c.add(e.pos, cell, "write at 5s: h1 run COMMAND",
				fmt.Sprintf("schedule: %s: target: mininet: a schedule can only run commands in nodes", e.What))
		case e.Kill == "controller":
			if !decides(t, t.IsControllerProgram) {
				c.add(e.pos, cell, "write lab: {controller: os-ken}",
					"schedule: the lab runs no controller that is a process of its own")
			}
		case e.Kill != "":
			c.node(e.pos, cell, t, "schedule", e.Kill)
		case e.Action.Node != "":
			c.node(e.pos, cell, t, "schedule", e.Action.Node)
		case len(linksBetween(t, e.Action.Ends)) == 0:
			c.add(e.pos, cell, "",
				fmt.Sprintf("schedule: there is no link %s -- %s", e.Action.Ends[0], e.Action.Ends[1]))
		}
	}
}
