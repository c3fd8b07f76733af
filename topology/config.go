package topology

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"trivet.dev/trivet/internal/words"
)

// ConfigFile is a part of a node's own configuration: in the words of the tool that has it, as a
// topology has none for it. It is in a file of its own beside the topology's, or in that itself.
type ConfigFile struct {
	Kind string `json:"kind" doc:"One of ConfigKinds"`
	File string `json:"file,omitempty"` // as the topology's file names it; "": the text is there
	Text string `json:"text,omitempty"` // what is in it, once ReadConfig has read it
}

// Limits on files with configurations: none needs more, and a lab's state holds them all.
const (
	MaxConfigFile = 1 << 20
	MaxConfig     = 16 << 20 // of all files of a topology
)

// ConfigKind is a kind of configuration that nodes can have. What reads it from running nodes, and
// loads it into them, is a Config of package datapath.
type ConfigKind struct {
	Name string
	Help string // what it is, and the program whose words it is in
	Of   func(*Node) bool
	Who  string // which nodes have it, in words
}

// configKinds are in the order in which they are loaded.
var configKinds = []ConfigKind{
	{"ovs", "settings of Open vSwitch, as ovs-vsctl set has them", func(n *Node) bool { return n.Datapath == OVS }, "switches with datapath ovs"},
	{"flows", "flow entries, as ovs-ofctl add-flows reads them", (*Node).IsDatapath, "switches and routing nodes"},
	{"iptables", "the rules of IPv4, as iptables-save writes them", hasFirewall, "hosts and Linux routers"},
	{"ip6tables", "the rules of IPv6, as ip6tables-save writes them", hasFirewall, "hosts and Linux routers"},
	{"nft", "other tables, as nft list ruleset writes them", hasFirewall, "hosts and Linux routers"},
	{ConfigFRR, "the router's own configuration of FRR, as in frr.conf", runs(FRR), "routers with datapath frr"},
	{ConfigDaemons, "which of FRR's daemons run, as in /etc/frr/daemons; those that frr needs when missing", runs(FRR), "routers with datapath frr"},
	{ConfigBIRD, "the router's own configuration of BIRD, as in bird.conf", runs(BIRD), "routers with datapath bird"},
}

// hasFirewall says whether a node has a kernel's rules for packets to itself.
func hasFirewall(n *Node) bool {
	return n.Made().Open()
}

// ConfigKinds returns all kinds, in the order in which they are loaded.
func ConfigKinds() []ConfigKind { return slices.Clone(configKinds) }

func configKind(name string) (k ConfigKind, ok bool) {
	i := slices.IndexFunc(configKinds, func(k ConfigKind) bool { return k.Name == name })
	if i < 0 {
		return k, false
	}
	return configKinds[i], true
}

// ConfigOf returns the text of a kind that a node has; "" is none.
func (n *Node) ConfigOf(kind string) string {
	for _, c := range n.Config {
		if c.Kind == kind {
			return c.Text
		}
	}
	return ""
}

func (c ConfigFile) String() string {
	if c.Text == "" {
		return c.Kind
	}
	sum := sha256.Sum256([]byte(c.Text))
	return fmt.Sprintf("%s (%s, %x)", c.Kind, words.Plural(strings.Count(c.Text, "\n"), "line"), sum[:4])
}

// errand describes what root does for it.
func (c ConfigFile) errand() string { return c.Kind + " of " + cmp.Or(c.File, "the topology's file") }

// Position is that of a line of the file, or of the text if it has no file of its own.
func (c ConfigFile) Position(line int) Position {
	return Position{File: cmp.Or(c.File, "config: "+c.Kind), Line: line}
}

// ReadConfig sets the texts of all configurations, and of all files that nodes are given, to what
// is in their files; read returns what is in one, with its permissions, and refuses one that is not
// below the topology's own directory.
func (t *Topology) ReadConfig(read func(file string) (text []byte, mode uint32, err error)) (problems Problems) {
	total := 0
	get := func(n *Node, what, file, text string) (string, uint32, bool) {
		data, mode, err := []byte(text), uint32(TextMode), error(nil)
		if file != "" {
			data, mode, err = read(file)
		}
		if total += len(data); err == nil && total > MaxConfig {
			err = fmt.Errorf("all configurations and files of a topology together may have %d MiB", MaxConfig>>20)
		}
		if err != nil {
			problems.Add(n.Pos, "write it, or leave it out", "%s %s: %s: %s: %s", n.Kind, n.Name, what, clip(file), err)
		}
		return string(data), mode, err == nil
	}
	for _, n := range t.Nodes {
		n.Config, n.Files = slices.Clone(n.Config), slices.Clone(n.Files) // nodes of a range share them
		for i, c := range n.Config {
			if text, _, ok := get(n, "config: "+c.Kind, c.File, c.Text); ok {
				n.Config[i].Text = withEnd(strings.ReplaceAll(text, "\r\n", "\n"))
			}
		}
		for i, f := range n.Files {
			if text, mode, ok := get(n, "files: "+clip(f.Path), f.File, f.Text); ok {
				n.Files[i].Text, n.Files[i].Mode = text, mode
			}
		}
		if total > MaxConfig {
			return problems
		}
	}
	return problems
}

// withEnd ends a text that has lines with a line end.
func withEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// config checks what can be said of configurations without their tools.
func (v *validator) config(n *Node, bad func(hint, format string, args ...any)) {
	seen := map[string]bool{}
	for _, c := range n.Config {
		kind, ok := configKind(c.Kind)
		switch {
		case !ok:
			var names []string
			for _, k := range configKinds {
				names = append(names, k.Name)
			}
			bad(words.Choose(names), "config: there is no kind %q", clip(c.Kind))
		case seen[c.Kind]:
			bad("write it once", "config: %s is there twice", c.Kind)
		case c.File == "" && c.Text == "" || hasNUL(c.File) || c.File != "" && !filepath.IsLocal(c.File):
			bad("name a file beside the topology's, or below its directory", "config: %s: %q cannot be its file", c.Kind, clip(c.File))
		case len(c.Text) > MaxConfigFile:
			bad("write less", "config: %s: %s has more than %d MiB", c.Kind, clip(c.File), MaxConfigFile>>20)
		case hasNUL(c.Text) || !utf8.ValidString(c.Text):
			bad("write text", "config: %s: %s is not text", c.Kind, clip(c.File))
		case n.Datapath == "" && n.Kind != Host: // that is known once it is resolved
		case !kind.Of(n):
			bad("leave it out", "config: %s is for %s", c.Kind, kind.Who)
		}
		seen[c.Kind] = true
	}
	n.ownRouting(bad)
}
