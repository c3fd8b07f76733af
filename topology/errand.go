package topology

import (
	"regexp"
	"slices"
	"strings"
)

// Errand is something that root does on the machine because a topology says so: it runs a command, shows a directory of the machine in a
// node, or moves an interface into one.
type Errand struct {
	Node string   `json:"node"`
	Kind string   `json:"kind" doc:"start, stop, at 30s, dirs or interface"`
	What string   `json:"what" doc:"The command, the directories, or the interface"`
	Pos  Position `json:"-"`
}

// same says whether two errands are one, wherever they are written.
func (e Errand) same(o Errand) bool { return e.Node == o.Node && e.Kind == o.Kind && e.What == o.What }

// IsCommand says whether a program runs by it.
func (e Errand) IsCommand() bool { return e.Kind != errandDirs && e.Kind != errandInterface }

const (
	errandStart     = "start"
	errandStop      = "stop"
	errandDirs      = "dirs"
	errandInterface = "interface"
)

// setting is a command that sets something of a node's own network, and nothing else: formats make such of what a
// file says and a topology has no words for. It is harmless, whoever has written the file.
var setting = regexp.MustCompile(`^(ip neigh replace [0-9a-fA-F.:]+ lladdr [0-9a-fA-F:]+ dev [\w.@+-]+ nud permanent|` +
	`ip link set dev [\w.@+-]+ mtu [0-9]+|sysctl -qw (net\.ipv4\.[\w.-]+=[\w,.:-]+|'net\.ipv4\.[\w.-]+=[\w ,.:-]+'))$`)

// startOf splits a node's start command into the settings with which it begins, and the rest.
func startOf(n *Node) (settings, rest string) {
	lines := strings.SplitAfter(n.Start, "\n")
	i := 0
	for i < len(lines) && setting.MatchString(strings.TrimSuffix(lines[i], "\n")) {
		i++
	}
	settings, rest = strings.Join(lines[:i], ""), strings.Join(lines[i:], "")
	if rest == "" {
		return settings, ""
	}
	return strings.TrimSuffix(settings, "\n"), rest
}

// Errands lists what root does for a topology, and had not to do for the one before, if that is not nil.
func (t *Topology) Errands(before *Topology) (out []Errand) {
	add := func(node, kind, what string, pos Position) {
		if what != "" {
			out = append(out, Errand{node, kind, what, pos})
		}
	}
	for _, n := range t.Nodes {
		_, start := startOf(n)
		add(n.Name, errandStart, start, n.Pos)
		add(n.Name, errandStop, n.Stop, n.Pos)
		for _, d := range n.Dirs {
			add(n.Name, errandDirs, d.errand(), n.Pos)
		}
	}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if e.External() {
				add(l.Ends[1-i].Node, errandInterface, e.Interface, l.Pos)
			}
		}
	}
	for _, e := range t.Schedule {
		add(e.Action.Node, e.errandKind(), e.Action.Run, e.Pos)
	}
	if before == nil {
		return out
	}
	had := before.Errands(nil)
	return slices.DeleteFunc(out, func(e Errand) bool { return slices.ContainsFunc(had, e.same) })
}

// errand is empty of a directory that is not of the machine.
func (d PrivateDir) errand() string {
	if d.Source == "" {
		return ""
	}
	return d.Source + " of the machine as " + d.Path
}

func (e Event) errandKind() string { return "at " + e.At.String() }

// Refuse takes errands out of a topology: commands are not run, directories are empty ones, links to interfaces are not made. Where
// a node had another command before, that stays.
func (t *Topology) Refuse(errands []Errand, before *Topology) {
	refused := func(node, kind, what string) bool {
		return slices.ContainsFunc(errands, Errand{Node: node, Kind: kind, What: what}.same)
	}
	for _, n := range t.Nodes {
		var old Node
		if before != nil {
			if o := before.Node(n.Name); o != nil {
				old = *o
			}
		}
		if settings, start := startOf(n); start != "" && refused(n.Name, errandStart, start) {
			if n.Start = settings; old.Start != "" {
				n.Start = old.Start
			}
		}
		if n.Stop != "" && refused(n.Name, errandStop, n.Stop) {
			n.Stop = old.Stop
		}
		for i, d := range n.Dirs {
			if refused(n.Name, errandDirs, d.errand()) {
				n.Dirs[i].Source = ""
			}
		}
	}
	t.Links = slices.DeleteFunc(t.Links, func(l *Link) bool {
		a, b := l.Ends[0], l.Ends[1]
		return a.External() && refused(b.Node, errandInterface, a.Interface) || b.External() && refused(a.Node, errandInterface, b.Interface)
	})
	t.Schedule = slices.DeleteFunc(t.Schedule, func(e Event) bool {
		return e.Action.Node != "" && refused(e.Action.Node, e.errandKind(), e.Action.Run)
	})
}
