package lab

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/topology"
)

// Links between switches need no devices, and even where a link has some, packets may bypass them,
// until somebody names a device: in a command in a switch, or to a tool on the machine, as with
// Mininet, where switches' ports are devices of the machine.

// ToolRequest is what the stand-in for a tool (target/local/tools.go) asks the daemon.
type ToolRequest struct {
	Namespace uint64   `json:"namespace" doc:"The number of the network namespace that it is in"`
	Words     []string `json:"words" doc:"The tool's arguments"`
	All       bool     `json:"all,omitempty" doc:"These ask for all devices"`
	Queues    bool     `json:"queues,omitempty" doc:"Say what waits at delay lines"`
}

// ToolAnswer tells the stand-in what to do.
type ToolAnswer struct {
	Side   ToolSide    `json:"side" doc:"Where it is"`
	Node   string      `json:"node,omitempty" doc:"On the machine: the switch that has the device that is named, or any if all are asked for; none: they are the machine's own"`
	Away   bool        `json:"away,omitempty" doc:"The node is at another site"`
	Queues []LineQueue `json:"queues,omitempty"`
}

// ToolSide says in which kind of namespace a tool was called.
type ToolSide string

const (
	OnMachine  ToolSide = "machine"
	InSwitches ToolSide = "switches" // in the namespace of the switches
	InHost     ToolSide = "host"     // in a node with devices of its own
	Elsewhere  ToolSide = "elsewhere"
)

// registerTools adds the requests of stand-ins for tools to the API.
func registerTools(api huma.API, d *daemon) {
	huma.Post(api, "/v1/tool", func(ctx context.Context, in *body[ToolRequest]) (*body[ToolAnswer], error) {
		a, err := d.tool(in.Body)
		return &body[ToolAnswer]{a}, problem(err)
	}, summary("Of a tool that is asked about network devices: where those are that its arguments name, which are made if there are none"))
}

// Tool asks what the stand-in for a tool is to do.
func (c *Client) Tool(ctx context.Context, r ToolRequest) (ToolAnswer, error) {
	return call[ToolAnswer](ctx, c, "POST", "/v1/tool", r)
}

func (d *daemon) tool(r ToolRequest) (a ToolAnswer, err error) {
	if err := d.isUp(); err != nil {
		return a, err
	}
	t := d.target().Topology()
	// Arguments with slashes are files.
	names := namesIn(slices.DeleteFunc(slices.Clone(r.Words), func(w string) bool { return strings.Contains(w, "/") }))
	var hosts []string
	for _, e := range namedEnds(t, names, r.Queues && r.All) {
		if !e.forwards && !slices.Contains(hosts, e.node) {
			hosts = append(hosts, e.node)
		}
	}
	machine, switches, host := d.target().NamespaceOf(r.Namespace, hosts)
	a.Side = Elsewhere
	of := func(node string) bool { return node == host }
	switch {
	case host != "":
		a.Side = InHost
	case machine || switches:
		if a.Side = InSwitches; machine {
			a.Side = OnMachine
		}
		if a.Node, err = d.name(names, r.All); err != nil {
			return a, err
		}
		a.Away = a.Node != "" && d.partOf(a.Node) != nil
		forwards := map[string]bool{}
		for _, n := range t.Nodes {
			forwards[n.Name] = n.IsDatapath()
		}
		of = func(node string) bool { return forwards[node] }
	}
	if r.Queues {
		d.changing.Lock()
		defer d.changing.Unlock()
		a.Queues = d.target().LineQueues(of)
		if !r.All {
			a.Queues = slices.DeleteFunc(a.Queues, func(q LineQueue) bool { return !names[q.Direction.From.Interface] })
		}
	}
	return a, nil
}

// namesIn returns what can be names of devices in the words of a command, of which one may be a
// text for a shell: s1-eth1,s1-eth2, -is1-eth1, --interface=s1-eth1.
func namesIn(words []string) map[string]bool {
	out := map[string]bool{}
	for _, w := range words {
		for _, name := range strings.FieldsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("_.@+-", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') &&
				(r < 'A' || r > 'Z')
		}) {
			out[name] = true
			if len(name) > 2 && name[0] == '-' { // the value of an option of one letter
				out[name[2:]] = true
			}
		}
	}
	return out
}

// A namedEnd is an end of a link whose device was named.
type namedEnd struct {
	link     int
	node     string
	forwards bool // it is a switch, or its devices are among the switches'
}

// namedEnds finds the ends of links whose devices names contains; all finds every end.
func namedEnds(t *topology.Topology, names map[string]bool, all bool) (out []namedEnd) {
	if len(names) == 0 && !all {
		return nil
	}
	var nodes map[string]*topology.Node
	for i, l := range t.Links {
		for end, e := range l.Ends {
			if e.Node == "" || !all && !names[l.DeviceAt(end)] {
				continue
			}
			if nodes == nil {
				nodes = t.NodesByName()
			}
			if n := nodes[e.Node]; n != nil {
				out = append(out, namedEnd{i, e.Node, n.IsDatapath()})
			}
		}
	}
	return out
}

// naming returns a topology in which the links whose devices at switches are in names (all: every
// link of switches) have devices, and a switch whose device was named, or "". If no link has to
// change, it returns t itself. A switch may also have a device by its own name.
func naming(t *topology.Topology, names map[string]bool, all bool,
	here func(node string) bool) (*topology.Topology, string) {
	node, out := "", t
	for _, e := range namedEnds(t, names, all) {
		if !e.forwards {
			continue
		}
		node = cmp.Or(node, e.node)
		if out.Links[e.link].Named || !here(e.node) {
			continue
		}
		if out == t {
			copied := *t
			out, copied.Links = &copied, slices.Clone(t.Links)
		}
		out.Links[e.link] = out.Links[e.link].Clone()
		out.Links[e.link].Named = true
	}
	for i := 0; node == "" && i < len(t.Nodes); i++ {
		if n := t.Nodes[i]; n.Kind == topology.Switch && n.Datapath != topology.Embedded &&
			names[topology.DeviceName(n.Name)] {
			node = n.Name
		}
	}
	return out, node
}

// name gives links devices as naming does, for the rest of the lab's life, and returns such a
// switch.
func (d *daemon) name(names map[string]bool, all bool) (node string, err error) {
	here := func(node string) bool { return d.partOf(node) == nil }
	was := d.target().Topology()
	is, node := naming(was, names, all, here)
	if is == was {
		return node, nil
	}
	err = d.change(0, func(ctx context.Context) error {
		was := d.target().Topology()
		is, found := naming(was, names, all, here) // it may have changed meanwhile
		if node = found; is == was {
			return nil
		}
		return d.target().Apply(ctx, is, func(string, int, int) {})
	})
	if err != nil {
		return node, fmt.Errorf("give links the devices that are named: %w", err)
	}
	return node, d.follow()
}

// nameFor gives links the devices that a command in a node names, if the node is a switch. The
// command is run in any case: it reports itself what is missing.
func (d *daemon) nameFor(node string, command []string) {
	if n := d.target().Topology().Node(node); n == nil || !n.IsDatapath() {
		return
	}
	if _, err := d.name(namesIn(command), false); err != nil {
		slog.Warn("a command names devices that are not there", "node", node, "error", err)
	}
}

// nameAhead gives links the devices that start commands in switches name, and those that had
// devices before.
func nameAhead(t, before *topology.Topology) *topology.Topology {
	var words []string
	for _, n := range t.Nodes {
		if n.IsDatapath() {
			words = append(words, n.Start)
		}
	}
	named, _ := naming(t, namesIn(words), false, func(string) bool { return true })
	if !slices.ContainsFunc(before.Links, func(l *topology.Link) bool { return l.Named }) {
		return named
	}
	had := topology.LinksByKey(before)
	out := *named
	out.Links = slices.Clone(named.Links)
	for i, key := range topology.LinkKeys(&out) {
		if was := had[key]; was != nil && was.Named && !out.Links[i].Named {
			out.Links[i] = out.Links[i].Clone()
			out.Links[i].Named = true
		}
	}
	return &out
}
