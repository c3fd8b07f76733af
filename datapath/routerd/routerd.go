// Package routerd knows the routing daemons that a router in a namespace can run, FRR and BIRD:
// where their programs are, and what they read to do what a topology says.
//
// They are the distribution's programs, started directly: the services of their packages are not
// needed.
package routerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// Family is the set of daemons of one project.
type Family struct {
	Name    string // "FRR"
	Package string // of Debian and Ubuntu: "frr"
	User    string // the user that the programs run as, with few of root's rights

	// Home is the directory of the package's configuration. A node sees a directory of its own in
	// its place, which belongs to root and contains all files that the programs read. They write to
	// RunDir, a directory in it.
	Home string
	// Logs is the directory in which the package's programs may write logs that a configuration
	// asks for; "" if there is none.
	Logs string
	// Client asks the programs; ClientArgs tell it where they are.
	Client     string
	ClientArgs []string

	dirs     []string // where to look for the programs
	names    []string // of the programs that every router runs
	programs func(f *Family, n *topology.Node, spoken Spoken) []Program
}

// Program is one daemon of a node.
type Program struct {
	Name  string   // also of its log
	Args  []string // they name files below Home
	Files map[string]string
	Ready string // in RunDir; it exists once the program answers

	// Reload says that the program rereads its files on SIGHUP, and keeps its neighbours. For
	// others, Update returns arguments of the client that change one version of the file
	// (<Name>.conf) into another.
	Reload bool
	Update func(old, new string) (args []string)
}

// RunDir is the directory below Home that belongs to the user of the programs.
const RunDir = "run"

func (f *Family) run(name string) string { return filepath.Join(f.Home, RunDir, name) }

// Of returns the daemons that a datapath names, or nil.
func Of(d topology.Datapath) *Family {
	switch d {
	case topology.FRR, topology.VM:
		return frr
	case topology.BIRD:
		return bird
	}
	return nil
}

// All returns the families there are.
func All() []*Family { return []*Family{frr, bird} }

// IDs returns the user that the programs run as, and that user's group.
func (f *Family) IDs() (uid, gid int, err error) {
	u, err := user.Lookup(f.User)
	if err != nil {
		return 0, 0, lack.New(fmt.Sprintf("the user %s, whom %s runs as, is not there", f.User, f.Name), ": ",
			"adduser --system --group "+f.User)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid, nil
}

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

// Missing lists the daemons of routing protocols that are not installed.
func (f *Family) Missing() []string {
	return lists.Filter(f.daemonsOf(protocols), func(name string) bool {
		_, err := f.Path(name)
		return err != nil
	})
}

// ClientPath returns where the client is.
func (f *Family) ClientPath() (string, error) {
	path, err := exec.LookPath(f.Client)
	if err != nil {
		return f.Path(f.Client)
	}
	return filepath.EvalSymlinks(path)
}

// Installed says what is missing of what each of the family's routers runs, whatever it speaks.
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
	_, _, err := f.IDs()
	return err
}

// Programs returns the programs that a node runs to speak these protocols: see SpokenIn.
func (f *Family) Programs(n *topology.Node, spoken Spoken) []Program {
	return f.programs(f, n, spoken)
}

// Names returns the names of the programs that a node runs.
func (f *Family) Names(n *topology.Node) []string {
	if f == frr && n.OwnRouting() != "" {
		return frrNames(f, n)
	}
	spoken := slices.DeleteFunc(slices.Clone(protocols), func(p Protocol) bool { return n.Protocols[p.Name] == nil })
	return append(slices.Clone(f.names), f.daemonsOf(spoken)...)
}

// Lacks says which programs a topology's routers need and this machine does not have.
func Lacks(t *topology.Topology) error {
	type program struct {
		*Family
		name string
	}
	installed, lacking := map[*Family]error{}, map[program]bool{}
	var errs []error
	for _, n := range t.Nodes {
		f := Of(n.Datapath)
		if f == nil || n.Kind != topology.Router {
			continue
		}
		if _, known := installed[f]; !known {
			installed[f] = f.Installed()
			errs = append(errs, installed[f])
		}
		if installed[f] != nil {
			continue
		}
		for _, name := range f.Names(n) {
			lacks, known := lacking[program{f, name}]
			if !known {
				_, err := f.Path(name)
				lacks = err != nil
				lacking[program{f, name}] = lacks
			}
			switch {
			case lacks && n.OwnRouting() != "":
				errs = append(errs, fmt.Errorf("router %s: its configuration needs %s, which %s does not have on this machine",
					n.Name, name, f.Name))
			case lacks:
				errs = append(errs, lack.New(fmt.Sprintf("router %s needs %s, which is not installed", n.Name, name),
					": ", "apt install "+f.Package))
			}
		}
	}
	return errors.Join(errs...)
}

func seconds(d time.Duration) int { return int(d / time.Second) }
