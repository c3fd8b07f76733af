package topology

import (
	"regexp"
	"slices"
	"strings"
)

// Errand is something that root does on the machine because a topology asks for it: run a command,
// a container or a virtual machine, show a directory of the machine in a node, load a configuration
// or put a file into a node, move an interface into one, or listen at a port of the machine.
type Errand struct {
	Node string   `json:"node"`
	Kind string   `json:"kind" doc:"start, stop, at 30s, dirs, config, file, interface, image, vm or port"`
	What string   `json:"what" doc:"The command, the directories, the kind and file of the configuration, the file and where the node has it, the interface, the image, the virtual machine with its files, or the address and port of the machine"`
	Pos  Position `json:"-"`
}

// errandSet holds errands regardless of where they are written.
type errandSet map[Errand]bool

func setOf(errands []Errand) errandSet {
	set := make(errandSet, len(errands))
	for _, e := range errands {
		e.Pos = Position{}
		set[e] = true
	}
	return set
}

func (s errandSet) has(node, kind, what string) bool {
	return s[Errand{Node: node, Kind: kind, What: what}]
}

// IsCommand says whether the errand runs a program.
func (e Errand) IsCommand() bool {
	return !slices.Contains([]string{ErrandDirs, ErrandConfig, ErrandFile, ErrandInterface, ErrandImage, ErrandGuest,
		ErrandPort}, e.Kind)
}

// Kinds of errands; an event's kind is its time.
const (
	errandStart     = "start"
	errandStop      = "stop"
	ErrandDirs      = "dirs"
	ErrandConfig    = "config"
	ErrandFile      = "file"
	ErrandInterface = "interface"
	ErrandImage     = "image"
	ErrandGuest     = "vm"
	ErrandPort      = "port"
)

// setting matches commands that only change settings in a node's own network namespace: formats
// produce them for what a file says and a topology cannot express. They are harmless, whoever wrote
// the file, unless the node is a machine.
var setting = regexp.MustCompile(`^(?:ip neigh replace [0-9a-fA-F.:]+ lladdr [0-9a-fA-F:]+ dev ([\w.@+-]+) nud permanent|` +
	`ip link set dev ([\w.@+-]+) mtu [0-9]+|sysctl -qw (?:net\.ipv4\.[\w.-]+=[\w,.:-]+|'net\.ipv4\.[\w.-]+=[\w ,.:-]+'))$`)

// isSetting says whether a command is a harmless setting. In a node that is a machine itself, only
// settings of the lab's devices are.
func (n *Node) isSetting(command string) bool {
	match := setting.FindStringSubmatch(command)
	if match == nil || !n.Native {
		return match != nil
	}
	number, ok := strings.CutPrefix(match[1]+match[2], n.Name+"-eth")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// startOf splits a node's start command into the settings with which it begins, and the rest.
func startOf(n *Node) (settings, rest string) {
	lines := strings.SplitAfter(n.Start, "\n")
	i := 0
	for i < len(lines) && n.isSetting(strings.TrimSuffix(lines[i], "\n")) {
		i++
	}
	settings, rest = strings.Join(lines[:i], ""), strings.Join(lines[i:], "")
	if rest == "" {
		return settings, ""
	}
	return strings.TrimSuffix(settings, "\n"), rest
}

// HostsAsMachines treats all hosts as machines, whose network namespace is not the lab's alone,
// until undo is called: where hosts are placed at machines, it is not known yet which.
func (t *Topology) HostsAsMachines() (undo func()) {
	was := map[*Node]bool{}
	for _, n := range t.Nodes {
		was[n] = n.Native
		n.Native = n.Native || n.Kind == Host
	}
	return func() {
		for n, native := range was {
			n.Native = native
		}
	}
}

// Errands lists what root does for a topology and has not already done for the topology before,
// which may be nil.
func (t *Topology) Errands(before *Topology) (out []Errand) {
	add := func(node, kind, what string, pos Position) {
		if what != "" {
			out = append(out, Errand{node, kind, what, pos})
		}
	}
	for _, n := range t.Nodes {
		_, start := startOf(n)
		add(n.Name, errandStart, n.where(start), n.Pos)
		add(n.Name, errandStop, n.where(n.Stop), n.Pos)
		for _, d := range n.Dirs {
			add(n.Name, ErrandDirs, d.errand(), n.Pos)
		}
		for _, c := range n.Config {
			add(n.Name, ErrandConfig, c.errand(), n.Pos)
		}
		for _, f := range n.Files {
			add(n.Name, ErrandFile, f.errand(), n.Pos)
		}
		add(n.Name, ErrandImage, n.Container.errand(), n.Pos)
		add(n.Name, ErrandGuest, n.guestErrand(), n.Pos)
		for _, p := range n.Ports {
			add(n.Name, ErrandPort, p.Listen().String(), n.Pos)
		}
	}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if e.External() && e.Network == "" {
				add(l.Ends[1-i].Node, ErrandInterface, e.Interface, l.Pos)
			}
		}
	}
	nodes := byName(t)
	for _, e := range t.Schedule {
		add(e.Action.Node, e.errandKind(), nodes[e.Action.Node].where(e.Action.Run), e.Pos)
	}
	if before == nil {
		return out
	}
	had := setOf(before.Errands(nil))
	return slices.DeleteFunc(out, func(e Errand) bool { return had.has(e.Node, e.Kind, e.What) })
}

// where identifies a command for comparison: one that was allowed inside a container or a virtual
// machine is not allowed on the machine.
func (n *Node) where(command string) string {
	if n == nil || command == "" || n.Inside() == "" {
		return command
	}
	return "in the " + n.Inside() + ": " + command
}

// errand describes the errand; "" if the directory does not show one of the machine's.
func (d PrivateDir) errand() string {
	if d.Source == "" {
		return ""
	}
	what := d.Source + " of the machine as " + d.Path
	if d.ReadOnly {
		what += ", read-only"
	}
	return what
}

func (e Event) errandKind() string { return "at " + e.At.String() }

// Refuse removes errands from a topology: commands are not run, directories are empty, links to
// interfaces are not made, configurations not loaded, files not given, containers and virtual
// machines become ordinary nodes, and ports are not opened. A node that had another command before
// keeps that.
func (t *Topology) Refuse(errands []Errand, before *Topology) {
	refused := setOf(errands)
	had := map[string]*Node{}
	if before != nil {
		had = byName(before)
	}
	for _, n := range t.Nodes {
		old := had[n.Name]
		if old == nil {
			old = &Node{}
		}
		if settings, start := startOf(n); start != "" && refused.has(n.Name, errandStart, n.where(start)) {
			if n.Start = settings; old.Start != "" {
				n.Start = old.Start
			}
		}
		if n.Stop != "" && refused.has(n.Name, errandStop, n.where(n.Stop)) {
			n.Stop = old.Stop
		}
		for i, d := range n.Dirs {
			if refused.has(n.Name, ErrandDirs, d.errand()) {
				n.Dirs[i].Source, n.Dirs[i].ReadOnly = "", false
			}
		}
		n.Ports = slices.DeleteFunc(n.Ports,
			func(p Port) bool { return refused.has(n.Name, ErrandPort, p.Listen().String()) })
		n.Config = slices.DeleteFunc(n.Config,
			func(c ConfigFile) bool { return refused.has(n.Name, ErrandConfig, c.errand()) })
		n.Files = slices.DeleteFunc(n.Files,
			func(f NodeFile) bool { return refused.has(n.Name, ErrandFile, f.errand()) })
	}
	t.Links = slices.DeleteFunc(t.Links, func(l *Link) bool {
		a, b := l.Ends[0], l.Ends[1]
		return a.External() && refused.has(b.Node, ErrandInterface, a.Interface) ||
			b.External() && refused.has(a.Node, ErrandInterface, b.Interface)
	})
	nodes := byName(t)
	t.Schedule = slices.DeleteFunc(t.Schedule, func(e Event) bool {
		return e.Action.Node != "" &&
			refused.has(e.Action.Node, e.errandKind(), nodes[e.Action.Node].where(e.Action.Run))
	})
	for _, n := range t.Nodes {
		if n.Contained() && refused.has(n.Name, ErrandImage, n.Container.errand()) ||
			n.Guest != nil && refused.has(n.Name, ErrandGuest, n.guestErrand()) {
			t.refuseInside(n, had[n.Name])
		}
	}
}

// refuseInside keeps the container or the virtual machine that a node had, or makes it an ordinary
// node, without the commands that were to run inside.
func (t *Topology) refuseInside(n, old *Node) {
	if old != nil && old.Inside() != "" {
		n.Container, n.Guest, n.Files = old.Container.clone(), old.Guest.clone(), slices.Clone(old.Files)
		return
	}
	n.Container, n.Guest, n.Files, n.Start, n.Stop = Container{}, nil, nil, "", ""
	t.Schedule = slices.DeleteFunc(t.Schedule,
		func(e Event) bool { return e.Action.Node == n.Name && e.Action.Run != "" })
}
