package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// A word of a command line is a file of some kind, a generator, or the name of a lab or of
// something in one. If a command gets a word of another kind than it takes, the error says what the
// word is, and which command takes it.

type kind int

const (
	topologyFile kind = iota
	script            // a program in Python, which may also be read as a topology
	experimentFile
	resultFile
	machinesFile
	foreignFile // a file of somebody else's
	generator
	labName
	inLab // a node or link of a lab
)

// files are the kinds that can be read as a topology.
var files = []kind{topologyFile, script, generator}

// takes lists the kinds that commands take as their first argument, by their names without trivet.
// Other commands take nodes and links, or nothing.
var takes = map[string][]kind{
	"": {}, "mn": {},
	"up": files, "apply": files, "validate": files, "convert": files,
	"inspect": append(files, labName), "graph": append(files, labName),
	"run": {script}, "down": {labName}, "resume": {labName}, "verify": {labName},
	"bench run": {experimentFile}, "bench explain": {experimentFile},
	"bench report": {resultFile}, "bench compare": {resultFile},
	"bench new":      nil, // any new name
	"rack bootstrap": {machinesFile}, "rack provision": {machinesFile}, "rack check": {machinesFile},
	"rack selftest": {machinesFile}, "rack update": {machinesFile}, "rack reboot": {machinesFile},
	"rack shutdown": {machinesFile},
}

// given is the kind of a word, and a command for it.
type given struct {
	kind    kind
	is, use string
	lab     string // its name, or that of the lab that was made of it, or has it
}

// whatIs returns all meanings that a word can have.
func whatIs(word string) (all []given) {
	labs, _ := lab.List()
	if g := whatFile(word); g != nil {
		all = append(all, *g)
	}
	for _, s := range labs {
		if s.Name == word {
			all = append(all, given{labName, "a lab that is " + string(s.Status), "trivet inspect " + word, word})
		}
		if s.Topology == nil {
			continue
		}
		if s.Topology.NodesByName()[word] != nil {
			all = append(all,
				given{inLab, "a node of lab " + s.Name, "trivet shell --lab " + s.Name + " " + word, s.Name})
		}
		if slices.Contains(linkNames(s.Topology, word), word) {
			all = append(all, given{inLab, "a link of lab " + s.Name, "trivet inspect " + s.Name, s.Name})
		}
	}
	name, _, _ := strings.Cut(word, ",")
	if slices.ContainsFunc(topology.Generators(), func(g topology.GeneratorInfo) bool { return g.Name == name }) {
		all = append(all, given{generator, "a generator", "sudo trivet up " + word, ""})
	}
	path, _ := filepath.Abs(word)
	for i, g := range all {
		for _, s := range labs {
			if g.kind == generator && s.Source == word || g.kind < generator && s.File() == path {
				all[i].lab = s.Name
			}
		}
	}
	return all
}

// whatFile determines the kind of a file by its ending or, if that is not enough, by its content.
func whatFile(file string) *given {
	file = formats.File(file)
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > formats.MaxSize {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	format, _ := formats.ForFile(file, data)
	first, _, _ := bytes.Cut(data, []byte("\n"))
	interpreter, interpreted := bytes.CutPrefix(first, []byte("#!"))
	switch {
	case isScript(file), interpreted && bytes.Contains(interpreter, []byte("python")):
		return &given{script, "a Python program", "sudo trivet run " + file, ""}
	case interpreted:
		use := "run it by itself, or in a node:  trivet exec NODE -- " + file
		return &given{foreignFile, "a program for " + strings.TrimSpace(string(interpreter)), use, ""}
	case filepath.Ext(file) == ".yaml" || filepath.Ext(file) == ".yml":
		return whatYAML(file, data)
	case format != nil:
		return &given{topologyFile, "a topology (" + format.Title + ")", "sudo trivet up " + file, ""}
	}
	if _, err := result.Read(bytes.NewReader(data)); err == nil {
		return &given{resultFile, "a result of trivet bench", "trivet bench report " + file, ""}
	}
	if json.Valid(data) && bytes.ContainsAny(data[:1], "{[") {
		return &given{foreignFile, "data (JSON)", "a topology in JSON ends in .mn", ""}
	}
	return nil
}

// whatYAML determines the kind of a YAML file by its keys.
func whatYAML(file string, data []byte) *given {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	keys := mappingKeys(doc.Content[0])
	within := mappingKeys(keys["topology"])
	switch {
	case keys["probes"] != nil:
		return &given{experimentFile, "an experiment", "sudo trivet bench run " + file, ""}
	case keys["machines"] != nil:
		return &given{machinesFile, "a list of machines", "sudo trivet up TOPOLOGY --on " + file, ""}
	case within["nodes"] != nil || within["links"] != nil:
		return &given{topologyFile, "a topology (containerlab)", "sudo trivet up " + file, ""}
	case keys["nodes"] != nil || keys["links"] != nil || keys["emu"] != nil:
		return &given{topologyFile, "a topology", "sudo trivet up " + file, ""}
	}
	return nil
}

// mappingKeys returns the values of a mapping by key; none for other nodes.
func mappingKeys(n *yaml.Node) map[string]*yaml.Node {
	keys := map[string]*yaml.Node{}
	if n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			keys[n.Content[i].Value] = n.Content[i+1]
		}
	}
	return keys
}

// corrected replaces a command's error if its word is of another kind than the command takes.
func corrected(cmd *cobra.Command, args []string, err error) error {
	var shown exitCode
	if err == nil || errors.As(err, &shown) {
		return err
	}
	if on := cmd.Flags().Lookup("on"); on != nil && on.Changed {
		if g := whatFile(on.Value.String()); g != nil && g.kind != machinesFile {
			return fmt.Errorf("--on %s: that is %s; --on takes a list of machines, or their names for ssh",
				on.Value, g.is)
		}
	}
	if len(args) == 0 {
		return err
	}
	if wrong := wrongWord(cmd, args[0], args[1:]); wrong != nil {
		if isUsage(err) {
			return usageError{wrong}
		}
		return wrong
	}
	return err
}

// wrongWord returns the error for a word of another kind than a command takes; it names the command
// for it. rest are the words after it.
func wrongWord(cmd *cobra.Command, word string, rest []string) error {
	name := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
	want, listed := takes[name]
	if listed && want == nil {
		return nil
	}
	if !listed {
		want = []kind{inLab}
	}
	all := whatIs(word)
	if len(all) == 0 || slices.ContainsFunc(all, func(g given) bool { return slices.Contains(want, g.kind) }) {
		return nil
	}
	g := all[0]
	aLabs := slices.Equal(want, []kind{labName})
	ofLabs := aLabs || !listed && cmd.HasParent() // commands for labs that are up
	use := g.use
	switch {
	case ofLabs && g.kind <= generator && g.lab != "":
		return fmt.Errorf("%s is %s; lab %s is made of it:  %s", word, g.is, g.lab, onLab(cmd, g.lab))
	case ofLabs && g.kind == labName, aLabs && g.kind == inLab:
		use = onLab(cmd, g.lab)
	case g.kind == labName && (name == "up" || name == "apply"):
		use = "trivet apply --lab " + word + " FILE"
	case g.kind == labName && name == "validate":
		use = "trivet verify " + word
	case g.kind == labName && (name == "run" || name == "mn"):
		use = "trivet cli --lab " + word
	case g.kind == inLab && !cmd.HasParent() && len(rest) > 0:
		use = fmt.Sprintf("trivet exec --lab %s %s -- %s", g.lab, word, strings.Join(rest, " "))
	case name == "mn" && g.kind == script:
		use += ", or for what it defines  sudo trivet mn --custom " + word + " --topo NAME"
	case name == "mn" && g.kind == generator:
		use = "sudo trivet mn --topo " + word
	}
	between := ":  "
	if g.kind == foreignFile {
		between = "; "
	}
	return errors.New(word + " is " + g.is + between + use)
}

// onLab returns a command line for a lab.
func onLab(cmd *cobra.Command, name string) string {
	if slices.Contains(takes[cmd.Name()], labName) {
		return cmd.CommandPath() + " " + name
	}
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace(cmd.CommandPath() + " --lab " + name + " " + arguments)
}

// theLab removes the name of a lab that is up from the arguments of a command that shows either a
// lab or what a file or generator would become. Flags that override what is read mean the latter.
func (a *app) theLab(s *source, args []string) []string {
	if len(args) != 1 || s.changes() {
		return args
	}
	if info, err := os.Stat(args[0]); err == nil && info.Mode().IsRegular() {
		return args
	}
	if _, err := lab.Load(args[0]); err != nil {
		return args
	}
	a.lab = args[0]
	return nil
}

// definesTopologies matches a Mininet file for --custom, which is no program by itself.
var (
	definesTopologies = regexp.MustCompile(`(?m)^topos\s*=`)
	makesNetwork      = regexp.MustCompile(`\b(Mininet\w*|Lab|Containernet|MiniEdit)\s*\(`)
)

// onlyDefines says whether a program only defines topologies for mn, and makes no network.
func onlyDefines(file string) bool {
	data, err := os.ReadFile(file)
	return err == nil && definesTopologies.Match(data) && !makesNetwork.Match(data)
}

// what answers requests of the Python packages, which have their own command line.
func (a *app) what() *cobra.Command {
	return &cobra.Command{
		Use: "what-is COMMAND WORD", Hidden: true, Args: cobra.ExactArgs(2),
		Short: "Say what a word is that is of another kind than a command takes",
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, _, err := cmd.Root().Find(args[:1])
			if err != nil {
				return err
			}
			if wrong := wrongWord(asked, args[1], nil); wrong != nil {
				a.say("%s", wrong)
			}
			return nil
		},
	}
}
