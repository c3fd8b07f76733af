// Package routerd knows the routing daemons that a router in a namespace can run, FRR and BIRD:
// where their programs are, and what they read to do what a topology says.
//
// They are the distribution's programs, started directly: services of their packages are not
// needed.
package routerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/topology"
)

// Family is the daemons of one project.
type Family struct {
	Name    string // "FRR"
	Package string // of Debian and Ubuntu: "frr"
	User    string // as whom the programs run; "": root

	// Home is a directory that comes with the package. A node has its own in its place: root's,
	// with all that its programs read. What they write is in RunDir, a directory in there.
	Home string
	// Client asks the programs; ClientArgs tell it where they are.
	Client     string
	ClientArgs []string

	dirs     []string // where the programs are
	names    []string // all there are
	programs func(f *Family, n *topology.Node, r *topology.OSPFRouter) []Program
	refuses  func(r *topology.OSPFRouter, problems *topology.Problems) // nil: nothing
}

// Program is one daemon of a node.
type Program struct {
	Name  string   // also of its log
	Args  []string // they name files by Home
	Files map[string]string
	Ready string // in RunDir; it is there when the program answers

	// Reload says that the program reads its files again on SIGHUP, and keeps its neighbours.
	// Another may be led from one text of its file (<Name>.conf) to another by arguments of the
	// client.
	Reload bool
	Update func(old, new string) (args []string)
}

// RunDir is the directory below Home that belongs to the user of the programs.
const RunDir = "run"

func (f *Family) run(name string) string { return filepath.Join(f.Home, RunDir, name) }

// Of returns the daemons that a datapath names, or nil.
func Of(d topology.Datapath) *Family {
	switch d {
	case topology.FRR:
		return frr
	case topology.BIRD:
		return bird
	}
	return nil
}

// All returns the families there are.
func All() []*Family { return []*Family{frr, bird} }

// Path returns where a program is.
func (f *Family) Path(name string) (string, error) {
	for _, dir := range f.dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", lack.New(f.Name+" is not installed", ": ", "apt install "+f.Package)
}

// ClientPath returns where the client is.
func (f *Family) ClientPath() (string, error) {
	path, err := exec.LookPath(f.Client)
	if err != nil {
		return f.Path(f.Client)
	}
	return filepath.EvalSymlinks(path)
}

// Installed says what is missing of the family's programs.
func (f *Family) Installed() error {
	for _, name := range f.names {
		if _, err := f.Path(name); err != nil {
			return err
		}
	}
	if _, err := f.ClientPath(); err != nil {
		return err
	}
	if _, err := os.Stat(f.Home); err != nil {
		return fmt.Errorf("%s is not installed the way its package does it: %w", f.Name, err)
	}
	return nil
}

// Programs returns what a node runs. The router is nil where it does not speak OSPF.
func (f *Family) Programs(n *topology.Node, r *topology.OSPFRouter) []Program {
	return f.programs(f, n, r)
}

// Lacks says what is missing of the families of a topology's routers.
func Lacks(t *topology.Topology) error {
	seen := map[*Family]bool{}
	var errs []error
	for _, n := range t.Nodes {
		if f := Of(n.Datapath); f != nil && n.Kind == topology.Router && !seen[f] {
			seen[f] = true
			errs = append(errs, f.Installed())
		}
	}
	return errors.Join(errs...)
}

// Refuses says what the daemons of a topology's routers cannot do of what it asks for.
func Refuses(t *topology.Topology) (problems topology.Problems) {
	for _, r := range topology.OSPFOf(t) {
		if f := Of(r.Node.Datapath); f != nil && f.refuses != nil {
			f.refuses(&r, &problems)
		}
	}
	return problems
}

// auths are all kinds of authentication that a router is to use.
func auths(r *topology.OSPFRouter) (out []topology.OSPFAuthType) {
	for _, i := range r.Interfaces {
		out = append(out, i.Auth.Type)
	}
	for _, v := range r.VirtualLinks {
		out = append(out, v.Auth.Type)
	}
	return out
}

// redistributes returns the router's setting for a source, if it announces it.
func redistributes(r *topology.OSPFRouter, source string) (topology.OSPFRedistribute, bool) {
	i := slices.IndexFunc(r.Redistribute, func(d topology.OSPFRedistribute) bool { return d.Source == source })
	if i < 0 {
		return topology.OSPFRedistribute{}, false
	}
	return r.Redistribute[i], true
}

func seconds(d time.Duration) int { return int(d / time.Second) }
