package topology

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// TextFile is a text, either in a file of its own next to the topology's or within that.
type TextFile struct {
	File string `json:"file,omitempty"` // as the topology's file names it; "": the text is there
	Text string `json:"text,omitempty"` // its content, once ReadConfig has read it
}

// ParseTextFile reads the name of a file; a value of several lines is the text itself.
func ParseTextFile(s string) TextFile {
	if strings.Contains(s, "\n") {
		return TextFile{Text: s}
	}
	return TextFile{File: filepath.Clean(s)}
}

// Written returns the value from which ParseTextFile reads it.
func (f TextFile) Written() string { return cmp.Or(f.File, withEnd(f.Text)) }

// ConfigFile is a part of a node's own configuration, in the syntax of the tool that reads it:
// settings that a topology cannot express.
type ConfigFile struct {
	Kind string `json:"kind" doc:"One of ConfigKinds"`
	TextFile
}

// Limits on files with configurations: no configuration needs more, and a lab's state contains them
// all.
const (
	MaxConfigFile = 1 << 20
	MaxConfig     = 16 << 20 // of all files of a topology
)

// ConfigKind is a kind of configuration that nodes can have. A Config of package datapath reads it
// from running nodes, and loads it into them.
type ConfigKind struct {
	Name string
	Help string // what it is, and the program whose syntax it has
	Of   func(*Node) bool
	Who  string // which nodes have it, in words
}

// configKinds are in the order in which they are loaded.
var configKinds = []ConfigKind{
	{"ovs", "settings of Open vSwitch, as ovs-vsctl set has them", func(n *Node) bool { return n.Datapath == OVS },
		"switches with datapath ovs"},
	{"flows", "flow entries, as ovs-ofctl add-flows reads them", (*Node).IsDatapath, "switches and routing nodes"},
	{"iptables", "the rules of IPv4, as iptables-save writes them", hasFirewall, "hosts and Linux routers"},
	{"ip6tables", "the rules of IPv6, as ip6tables-save writes them", hasFirewall, "hosts and Linux routers"},
	{"nft", "other tables, as nft list ruleset writes them", hasFirewall, "hosts and Linux routers"},
	{ConfigFRR, "the router's own configuration of FRR, as in frr.conf", runs(FRR, VM),
		"routers with datapath frr or vm"},
	{ConfigDaemons, "which of FRR's daemons run, as in /etc/frr/daemons; those that frr needs when missing",
		runs(FRR, VM), "routers with datapath frr or vm"},
	{ConfigBIRD, "the router's own configuration of BIRD, as in bird.conf", runs(BIRD), "routers with datapath bird"},
}

// hasFirewall says whether a node has firewall rules of the kernel to itself.
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

// ConfigOf returns a node's text of a kind; "" if it has none.
func (n *Node) ConfigOf(kind string) string {
	for _, c := range n.Config {
		if c.Kind == kind {
			return c.Text
		}
	}
	return ""
}

func (c ConfigFile) String() string { return c.brief(c.Kind) }

// brief describes a text by its kind, its length and a digest, but not by its file.
func (f TextFile) brief(what string) string {
	if f.Text == "" {
		return what
	}
	sum := sha256.Sum256([]byte(f.Text))
	return fmt.Sprintf("%s (%s, %x)", what, words.Plural(strings.Count(f.Text, "\n"), "line"), sum[:4])
}

// errand describes what root does with it.
func (c ConfigFile) errand() string { return c.Kind + " of " + c.where() }

func (f TextFile) where() string { return cmp.Or(f.File, "the topology's file") }

// Position returns the position of a line of the file or, if the text is within the topology's
// file, that of the text.
func (c ConfigFile) Position(line int) Position {
	return Position{File: cmp.Or(c.File, "config: "+c.Kind), Line: line}
}

// HasTexts says whether a node has texts, or names files with texts.
func (n *Node) HasTexts() bool {
	return len(n.Config)+len(n.Files) > 0 || n.Guest != nil && n.Guest.UserData != TextFile{}
}

// texts calls each for a node's texts, which from then on are not shared with other nodes of a
// range. mode points to the permissions of a text's file, or is nil.
func (n *Node) texts(each func(what string, f *TextFile, mode *uint32)) {
	n.Config = slices.Clone(n.Config)
	for i := range n.Config {
		each("config: "+n.Config[i].Kind, &n.Config[i].TextFile, nil)
	}
	n.Files = slices.Clone(n.Files)
	for i := range n.Files {
		each("files: "+clip(n.Files[i].Path), &n.Files[i].TextFile, &n.Files[i].Mode)
	}
	if n.Guest != nil && n.Guest.UserData != (TextFile{}) {
		n.Guest = n.Guest.clone()
		each("user_data", &n.Guest.UserData, nil)
	}
}

// NameTexts replaces a * in names of files with texts by the node's name.
func (n *Node) NameTexts() {
	n.texts(func(_ string, f *TextFile, _ *uint32) { f.File = strings.ReplaceAll(f.File, "*", n.Name) })
}

// TextsFrom makes names of files with texts relative to another directory; dir is the topology's
// directory as seen from there. A file that is not below the other directory is replaced by its
// text, which ReadConfig has read; lost is called for texts that the topology cannot contain
// unchanged.
func (t *Topology) TextsFrom(dir string, lost func(n *Node, what, value string)) {
	for _, n := range t.Nodes {
		n.texts(func(what string, f *TextFile, mode *uint32) {
			there := filepath.Join(dir, f.File)
			switch {
			case f.File == "":
			case filepath.IsLocal(there):
				f.File = there
			case f.Text == "":
				lost(n, what, f.File)
				f.File = ""
			default:
				if mode != nil && *mode != TextMode {
					lost(n, what, fmt.Sprintf("the permissions %o of %s", *mode, f.File))
				}
				if mode != nil && !strings.HasSuffix(f.Text, "\n") {
					lost(n, what, "that the last line of "+f.File+" has no end")
				}
				f.File, f.Text = "", withEnd(f.Text)
			}
		})
		n.Config = slices.DeleteFunc(n.Config, func(c ConfigFile) bool { return c.TextFile == TextFile{} })
		n.Files = slices.DeleteFunc(n.Files, func(f NodeFile) bool { return f.TextFile == TextFile{} })
	}
}

// ReadConfig reads all texts (configurations, files that nodes are given, user data of virtual
// machines) from their files. read returns a file's content and permissions, and refuses files
// outside the topology's own directory.
func (t *Topology) ReadConfig(read func(file string) (text []byte, mode uint32, err error)) (problems Problems) {
	total := 0
	for _, n := range t.Nodes {
		n.texts(func(what string, f *TextFile, mode *uint32) {
			if total > MaxConfig {
				return
			}
			text, is, err := []byte(f.Text), uint32(TextMode), error(nil)
			if f.File != "" {
				text, is, err = read(f.File)
			}
			if total += len(text); err == nil && total > MaxConfig {
				err = fmt.Errorf("all configurations and files of a topology together may have %d MiB", MaxConfig>>20)
			}
			switch {
			case err != nil:
				problems.Add(n.Pos, "write it, or leave it out", "%s %s: %s: %s: %s", n.Kind, n.Name, what,
					clip(f.File), err)
			case mode == nil:
				f.Text = withEnd(strings.ReplaceAll(string(text), "\r\n", "\n"))
			default:
				f.Text, *mode = string(text), is
			}
		})
	}
	return problems
}

// withEnd adds a final line end to a text of several lines.
func withEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// valid says whether a text, or its file, is acceptable.
func (f TextFile) valid(what string, bad func(hint, format string, args ...any)) bool {
	switch {
	case f.File == "" && f.Text == "" || hasNUL(f.File) || f.File != "" && !filepath.IsLocal(f.File):
		bad("name a file beside the topology's, or below its directory", "%s: %q cannot be its file", what,
			clip(f.File))
	case len(f.Text) > MaxConfigFile:
		bad("write less", "%s: %s has more than %d MiB", what, clip(f.where()), MaxConfigFile>>20)
	case hasNUL(f.Text) || !utf8.ValidString(f.Text):
		bad("write text", "%s: %s is not text", what, clip(f.where()))
	default:
		return true
	}
	return false
}

// config checks configurations as far as possible without their tools.
func (v *validator) config(n *Node, bad func(hint, format string, args ...any)) {
	seen := map[string]bool{}
	for _, c := range n.Config {
		kind, ok := configKind(c.Kind)
		switch {
		case !ok:
			names := lists.Map(configKinds, func(k ConfigKind) string { return k.Name })
			bad(words.Choose(names), "config: there is no kind %q", clip(c.Kind))
		case seen[c.Kind]:
			bad("write it once", "config: %s is there twice", c.Kind)
		case !c.valid("config: "+c.Kind, bad):
		case n.Datapath == "" && n.Kind != Host: // its datapath is known only after Resolve
		case !kind.Of(n):
			bad("leave it out", "config: %s is for %s", c.Kind, kind.Who)
		}
		seen[c.Kind] = true
	}
	n.ownRouting(bad)
}
