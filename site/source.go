package site

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// A Source is a way to specify machines. Each has a file of its own.
type Source struct {
	// Knows reports whether the source can read what is given.
	Knows func(g *Given) bool

	// Read adds the given machines to a list that has the defaults, and reports errors in them.
	Read func(g *Given, l *List, p *topology.Problems)
}

// Given is the argument that specifies machines, and the files that it names, if any.
type Given struct {
	Argument string
	Files    []File
	missing  error // why a file cannot be read
}

// File is a file that a source may read.
type File struct {
	Name string
	Data []byte
}

// sources are tried in this order.
var sources = []*Source{ansible, racks, machineLists, names}

// RegisterSource adds a source, which is tried before the built-in ones: the last two of those
// accept any file and any argument. It must be called in an init function.
func RegisterSource(s *Source) { sources = append([]*Source{s}, sources...) }

// Read returns the machines that an argument specifies: a file, names separated by commas, or
// several Ansible inventories.
func Read(argument string) (*List, error) {
	g := &Given{Argument: argument}
	names := strings.Split(argument, ",")
	if slices.ContainsFunc(names, func(s string) bool { return !looksLikeFile(s) }) {
		names = []string{argument}
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err == nil {
			g.Files = append(g.Files, File{name, data})
		} else if looksLikeFile(name) {
			g.Files, g.missing = nil, err
			break
		}
	}
	return g.read()
}

// Parse reads a file of machines from any source.
func Parse(file string, data []byte) (*List, error) {
	return (&Given{Argument: file, Files: []File{{file, data}}}).read()
}

// read uses the first source that knows what is given.
func (g *Given) read() (*List, error) {
	i := slices.IndexFunc(sources, func(s *Source) bool { return s.Knows(g) })
	if i < 0 {
		return nil, g.missing
	}
	l := &List{Carrier: carriers[0].Word, Keep: topology.Duration(keep), VLANs: usualVLANs}
	var p topology.Problems
	sources[i].Read(g, l, &p)
	if p.Err() == nil && len(l.Machines) == 0 && l.Provided == nil {
		file := g.Argument
		if len(g.Files) > 0 {
			file = g.Files[0].Name
		}
		p.Add(topology.Position{File: file, Line: 1}, "add one:  machines: {m1: user@host}", "it names no machine")
	}
	l.check(&p)
	return l, p.Err()
}

// inYAML returns a source that reads one YAML file; knows is called with nil if the file is not
// YAML.
func inYAML(knows func(root *yamlfile.Value) bool,
	read func(l *List, root *yamlfile.Value, p *topology.Problems)) *Source {
	return &Source{
		Knows: func(g *Given) bool {
			if len(g.Files) != 1 {
				return false
			}
			root, _ := yamlfile.Dialect{}.Parse(g.Files[0].Name, g.Files[0].Data)
			return knows(root)
		},
		Read: func(g *Given, l *List, p *topology.Problems) {
			root, problems := yamlfile.Dialect{}.Parse(g.Files[0].Name, g.Files[0].Data)
			if *p = append(*p, problems...); root != nil {
				read(l, root, p)
			}
		},
	}
}

func looksLikeFile(s string) bool {
	return strings.Contains(s, "/") || slices.Contains([]string{".yaml", ".yml", ".ini", ".json"}, filepath.Ext(s))
}
