// Package formats reads topologies from files and writes them.
//
// Each format is a package below this one and registers itself in its init function; import
// trivet.dev/trivet/topology/formats/all for all of them.
package formats

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// MaxSize is the maximum size in bytes of a file that is read.
const MaxSize = 16 << 20

// Format is one file format.
type Format struct {
	Name  string // its name in commands: "trivet", "miniedit", "mininet", "clab", "c3edge", "graphml", "kathara"
	Title string // its name in text: "MiniEdit .mn"
	// ".yaml"; files are written with the first; ".clab.yml" is this format's whatever is in the
	// file.
	Extensions []string
	Directory  string // the file by which a directory is a topology, if it may be one: "lab.conf"

	// Detect says whether data looks like this format; nil if the extension alone decides.
	Detect func(data []byte) bool

	// Read returns the topology as written, and every problem found in the file itself (syntax,
	// unknown keys, invalid values); warnings concern what was read but cannot be honoured. It does
	// not validate the topology: Resolve does. If a problem is an error, the topology may be nil.
	Read func(file string, data []byte, opts Options) (*topology.Topology, topology.Problems)

	// Write returns the file, and what of the topology the format cannot hold. Nil if the format is
	// read-only.
	Write func(t *topology.Topology) (data []byte, losses []Loss, err error)
}

// Options are what a reader may need in addition to the file.
type Options struct {
	// Topo names the topology to read if a file has several, with its arguments in the syntax of
	// mn: "mytopo,3,loss=1".
	Topo string
	// Args are the command line arguments of a file that is a program.
	Args []string
	// Waiting, if set, is called with what a reader is waiting for, if that takes more than a
	// moment.
	Waiting func(what string)
}

// Loss is a part of a topology that a format cannot hold.
type Loss struct {
	Subject string `json:"subject"` // "link s1-s2", "host h1", "topology"
	Field   string `json:"field"`   // "jitter"
	Value   string `json:"value,omitempty"`
}

func (l Loss) String() string {
	s := l.Subject + ": " + l.Field
	if l.Value != "" {
		s += " (" + l.Value + ")"
	}
	return s
}

var registry []*Format

// Register adds a format to those that are known; formats call it from init.
func Register(f *Format) {
	registry = append(registry, f)
	slices.SortFunc(registry, func(a, b *Format) int { return cmp.Compare(a.Name, b.Name) })
}

// All returns the formats, by name.
func All() []*Format { return registry }

// ByName returns the format of that name.
func ByName(name string) (*Format, error) {
	var names []string
	for _, f := range registry {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("there is no format %q; there are %s", name, strings.Join(names, ", "))
}

// ForFile returns the format of a file by its extension and, where several formats share it, by its
// content.
func ForFile(file string, data []byte) (*Format, error) {
	base := strings.ToLower(filepath.Base(file))
	ext := filepath.Ext(base)
	var byExtension, fallback *Format
	var claim []*Format // those with this extension, whatever the content
	var known []string
	for _, f := range registry {
		known = append(known, f.Extensions[0])
		if slices.ContainsFunc(f.Extensions,
			func(e string) bool { return len(e) > len(ext) && strings.HasSuffix(base, e) }) {
			return f, nil
		}
		if !slices.Contains(f.Extensions, ext) {
			continue
		}
		claim = append(claim, f)
		switch {
		case f.Detect == nil:
			fallback = f
		case data != nil && f.Detect(data):
			byExtension = f
		}
	}
	if f := cmp.Or(byExtension, fallback); f != nil {
		return f, nil
	}
	if len(claim) == 1 { // its reader can best say what is wrong
		return claim[0], nil
	}
	return nil, fmt.Errorf("%s: a file ending in %q is of no known format; known are %s", file, ext,
		strings.Join(known, ", "))
}

// File returns the topology's file if name is a directory: the file in it that makes it a topology
// of some format. Any other name is returned as it is.
func File(name string) string {
	for _, f := range registry {
		if f.Directory == "" {
			continue
		}
		inside := filepath.Join(name, f.Directory)
		if info, err := os.Stat(inside); err == nil && info.Mode().IsRegular() {
			return inside
		}
	}
	return name
}

// ReadFile reads a topology from a file of any format.
func ReadFile(file string, opts Options) (*topology.Topology, topology.Problems) {
	data, err := readLimited(file)
	if err != nil {
		return nil, topology.Problems{{Pos: topology.Position{File: file}, Message: err.Error()}}
	}
	f, err := ForFile(file, data)
	if err != nil {
		return nil, topology.Problems{{Message: err.Error()}}
	}
	t, problems := f.Read(file, data, opts)
	if t == nil {
		return nil, problems
	}
	problems = append(problems, ReadConfig(file, t, nil)...)
	if t.Format = f.Name; t.Name == "" {
		base := filepath.Base(file)
		t.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	return t, problems
}

// Own is the name of Trivet's own format.
const Own = "trivet"

func readLimited(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case os.IsNotExist(err):
		return nil, fmt.Errorf("no such file")
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("is not a regular file")
	case info.Size() > MaxSize:
		return nil, fmt.Errorf("is larger than %d MiB, which no topology needs", MaxSize>>20)
	}
	return os.ReadFile(file)
}
