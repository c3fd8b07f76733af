package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	_ "trivet.dev/trivet/topology/formats/all" // registers the formats
)

// source says where a topology comes from and what the command line overrides.
type source struct {
	nodes       string
	topo        string
	datapath    string
	controller  []string
	controllers int
	ipv6        string
	routes      string
	name        string

	command *cobra.Command // the command that has the flags
	file    string         // as given, with its arguments
	dir     string         // of the file
}

func (s *source) flags(cmd *cobra.Command) {
	s.command = cmd
	f := cmd.Flags()
	f.StringVar(&s.name, "name", "", "what to call it (default: after the file or generator)")
	f.StringVar(&s.nodes, "nodes", "", "router: generate routers instead of switches")
	f.StringVar(&s.topo, "topo", "", "which topology of a Mininet file that has several, and its arguments: mytopo,3")
	f.StringVar(&s.datapath, "datapath", "", "what forwards: "+describeDatapaths())
	f.StringSliceVar(&s.controller, "controller", nil,
		"what decides: trivet (the default), none (switches learn by themselves), "+
			strings.Join(topology.ControllerPrograms, ", ")+", or addresses like tcp:127.0.0.1:6653")
	f.StringVar(&s.ipv6, "ipv6", "", "off, link-local, assigned or auto")
	f.StringVar(&s.routes, "routes", "", "computed: gateways and static routes that the file does not give are added (the default, except for Mininet scripts); as-written: they are not")
	f.IntVar(&s.controllers, "controllers", 0,
		"how many processes Trivet's controller is: 1, or a cluster of up to "+strconv.Itoa(topology.MaxMembers)+
			" (default: as the file says, else 1)")
	completeFlag(cmd, "nodes", "router")
	completeFlag(cmd, "datapath", datapaths()...)
	completeFlag(cmd, "controller", append([]string{"trivet", "none"}, topology.ControllerPrograms...)...)
	completeFlag(cmd, "ipv6", "off", "assigned", "auto")
	completeFlag(cmd, "routes", "computed", "as-written")
	cmd.ValidArgsFunction = completeSources
}

func datapaths() (names []string) {
	for _, k := range topology.Datapaths() {
		names = append(names, string(k.Name))
	}
	return names
}

// describeDatapaths lists the datapaths. A remark in parentheses applies to all since the previous
// remark.
func describeDatapaths() string {
	var out []string
	for _, k := range topology.Datapaths() {
		if out = append(out, string(k.Name)); k.Help != "" {
			out[len(out)-1] += " (" + k.Help + ")"
		}
	}
	return strings.Join(out, ", ")
}

// load reads a topology from a file or makes one with a generator. It returns warnings; errors are
// topology.Problems. Arguments are passed on to a file that is a program.
func (s *source) load(what string, args ...string) (*topology.Topology, topology.Problems, error) {
	what = formats.File(what)
	s.file = strings.Join(append([]string{what}, args...), " ")
	t, problems, err := s.read(what, args)
	if failed := cmp.Or(err, problems.Err()); failed != nil && s.command != nil {
		if wrong := wrongWord(s.command, what, args); wrong != nil {
			return nil, nil, wrong
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if problems.Err() != nil && t != nil && len(t.Nodes) > 0 { // the part that could be read may have further errors
		problems = append(problems, topology.Validate(t)...)
	}
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	if s.name != "" {
		t.Name = s.name
	}
	if s.routes != "" {
		t.Routes = topology.RoutesMode(s.routes)
	}
	if s.ipv6 != "" {
		t.IPv6 = topology.IPv6(s.ipv6)
	}
	return t, append(problems.Warnings(), s.mistaken(what, args)...), nil
}

func (s *source) read(what string, args []string) (*topology.Topology, topology.Problems, error) {
	if isFile(what) {
		if path, err := filepath.Abs(what); err == nil {
			s.dir = filepath.Dir(path)
		}
		t, problems := formats.ReadFile(what, s.options(args))
		if s.nodes == "" || problems.Err() != nil {
			return t, problems, nil
		}
		if s.nodes != string(topology.Router) {
			return nil, nil, fmt.Errorf("--nodes %s: a file's switches can only be turned into routers: --nodes router",
				s.nodes)
		}
		if err := t.MakeRouters(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", what, err)
		}
		return t, problems, nil
	}
	t, err := topology.Generate(what, topology.GenerateOptions{Nodes: topology.Kind(s.nodes)})
	if err != nil {
		err = cmp.Or(withEnding(what), err)
	}
	return t, nil, err
}

// withEnding suggests the file that a name without its ending may mean.
func withEnding(what string) error {
	for _, f := range formats.All() {
		for _, ending := range f.Extensions {
			if _, err := os.Stat(what + ending); err == nil {
				return fmt.Errorf("there is no generator %q; did you mean the file %s?", what, what+ending)
			}
		}
	}
	return nil
}

func (s *source) options(args []string) formats.Options {
	return formats.Options{Topo: s.topo, Args: args, Waiting: func(what string) { fmt.Fprintln(os.Stderr, what) }}
}

// changes says whether the command line overrides anything in what is read.
func (s *source) changes() bool {
	return s.nodes+s.topo+s.datapath+s.ipv6+s.routes+s.name != "" || len(s.controller) > 0 || s.controllers > 0
}

// isFile distinguishes a file from a generator: it exists, or it looks like a file name.
func isFile(what string) bool {
	if _, err := os.Stat(what); err == nil {
		return true
	}
	name, _, _ := strings.Cut(what, ",")
	return strings.ContainsAny(name, "./")
}

// resolve validates a topology and fills in what is left open.
func (s *source) resolve(t *topology.Topology) (*topology.Topology, topology.Problems, error) {
	d := lab.Defaults
	d.OverrideDatapath, d.OverrideController, d.OverrideMembers = topology.Datapath(s.datapath), s.controller,
		s.controllers
	if s.controllers == 0 && s.command != nil && s.command.Flags().Changed("controllers") {
		return nil, nil, fmt.Errorf("--controllers 0: write a number from 1 to %d, or --controller none",
			topology.MaxMembers)
	}
	if s.datapath != "" && !slices.Contains(datapaths(), s.datapath) {
		return nil, nil, fmt.Errorf("--datapath %s: choose one of embedded, ovs, bridge (for switches), kernel, frr, bird (for routers)", s.datapath)
	}
	r, problems := topology.Resolve(t, d)
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	r.DirsFrom(s.dir)
	return r, problems.Warnings(), lab.Supported(r)
}
