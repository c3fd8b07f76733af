package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

func (a *app) up() *cobra.Command {
	var s source
	var c consent
	var on string
	wait := patience.Ready.Duration()
	cmd := &cobra.Command{
		Use:   "up FILE [ARGUMENT...]|GENERATOR",
		Short: "Bring a topology up",
		Long: "Bring a topology up, from a file (Trivet YAML, MiniEdit .mn, Mininet .py, containerlab .clab.yml, Kathará lab.conf\n" +
			"or its directory, C3-Edge YAML, GraphML) or from a generator:\n\n" + generatorHelp() +
			"\nIt returns when traffic can flow. If it fails, nothing is left.",
		Example: "  sudo trivet up examples/campus.yaml\n  sudo trivet up tree,2,3 --datapath bridge\n  sudo trivet up ring,4 --nodes router",
		Args:    scriptArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("lab") {
				return usagef("--lab is for labs that are up; the name of a new one is  --name %s", a.lab)
			}
			return a.runUp(cmd.Context(), &s, c, args, on, wait)
		},
	}
	s.flags(cmd)
	c.flags(cmd)
	cmd.Flags().StringVar(&on, "on", lab.OnThisMachine, "where: on this machine only (local), or also on others: a file that lists them, their names for ssh, with commas, or openstack")
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for controllers")
	return cmd
}

func generatorHelp() string {
	var b strings.Builder
	for _, g := range topology.Generators() {
		fmt.Fprintf(&b, "  %-28s %s\n", g.Name+g.Arguments, g.Description)
	}
	return b.String()
}

func needRoot(command string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return fmt.Errorf("trivet %s makes namespaces and network devices, which needs root:  sudo %s", command,
		strings.Join(os.Args, " "))
}

func (a *app) runUp(ctx context.Context, s *source, c consent, args []string, on string,
	wait time.Duration) (failed error) {
	what := formats.File(args[0])
	t, warnings, err := s.load(what, args[1:]...)
	if err != nil {
		return err
	}
	r, more, err := s.resolve(t)
	if err != nil {
		return err
	}
	if err := needRoot("up"); err != nil {
		return err
	}
	here := *r
	if on != lab.OnThisMachine {
		here.Site = topology.Head // the other machines check for themselves
	}
	if err := lab.Installed(&here, lab.Owner()); err != nil {
		return err
	}
	name := lab.CleanName(r.Name)
	if s.name != "" && name != s.name {
		return fmt.Errorf("--name %s: a lab's name has at most 40 letters, digits, dots, dashes and underscores, and begins with a letter or digit; write  --name %s", s.name, name)
	}
	plain, given := name, s.name != ""
	if !given {
		name = lab.OwnName(plain)
	}
	if err := a.free(name, given); err != nil {
		return err
	}
	from, err := os.Getwd()
	if err != nil {
		return err
	}
	var machines *site.List
	if on != lab.OnThisMachine {
		if machines, err = site.Read(on); err != nil {
			return err
		}
	}
	if machines == nil {
		if err := local.NoNetworks(r); err != nil {
			return fmt.Errorf("%w; nothing was made", err)
		}
	}
	if t, err = a.agreed(ctx, c, s, t, nil, machines != nil && machines.TakesHosts()); err != nil {
		return err
	}
	if c.leave { // links to interfaces were removed
		if r, more, err = s.resolve(t); err != nil {
			return err
		}
	}
	if err := r.ReadKeys(os.ReadFile); err != nil {
		return err
	}
	state := lab.State{Name: name, Status: lab.Starting, Version: version.Version, Source: what, From: from,
		Target: lab.OnThisMachine,
		Owner:  lab.Owner(), Created: time.Now(), Wait: topology.Duration(wait), Topology: r}
	where := "local"
	if machines != nil {
		want, err := sites.PortsWanted(machines, t, r)
		if err != nil {
			return err
		}
		if machines.Provided != nil {
			if err := a.provide(ctx, machines, name, want); err != nil {
				return err
			}
			defer func() {
				if failed != nil && !exitsWithALab(failed) {
					failed = errors.Join(failed, a.release(ctx, machines.Provided))
				}
			}()
		}
		if err := sites.Spread(ctx, &state, machines); err != nil {
			return fmt.Errorf("%w\nnothing was changed", err)
		}
		if len(want) > 0 {
			if err := a.connect(ctx, &state, s, t); err != nil {
				return err
			}
		}
		r = state.Topology
		if where = words.Plural(len(sites.Used(machines, r)), "other site") + " over SSH"; len(machines.Machines) == 0 {
			where = "on this machine"
		}
		if devices := sites.Devices(r, machines); devices != "" {
			where = strings.TrimPrefix(where, "0 other sites over SSH")
			where = strings.TrimPrefix(where+", "+devices+" as switches", ", ")
		}
	}
	a.say("%s  %s", name, describe(r, where))
	if state.Sites != nil && len(state.Sites.Machines) > 0 {
		a.sumUpSites(&state)
	}
	if plain != r.Name {
		a.say("the lab is called %s: %q cannot be a lab's name (--name chooses another)", name, r.Name)
	}
	a.sayOwn(plain, name)
	for _, w := range append(warnings, more...) {
		a.say("%s", w)
	}
	if errands := r.Errands(nil); len(errands) > 0 {
		a.say("runs as root: %s (trivet validate %s lists them)", countErrands(errands), s.file)
	}
	for _, l := range r.Links {
		for _, e := range l.Ends {
			if e.External() && e.Network == "" {
				a.say("takes the machine's interface %s until the lab is down", e.Interface)
			}
		}
	}
	if local.LongPaths(r) {
		a.say("hosts get TTL and hop limit 255: paths cross up to %d routers", r.RouterHops)
	}
	if machines != nil && machines.Provided != nil {
		a.sayPorts(machines)
	}
	err = a.start(ctx, state)
	if own := lab.OwnName(plain); errors.Is(err, lab.ErrTaken) && !given && own != name { // meanwhile
		state.Name = own
		a.sayOwn(plain, own)
		return a.start(ctx, state)
	}
	return err
}

// exitsWithALab says whether up ends with a lab that is up, despite an exit code other than 0.
func exitsWithALab(err error) bool {
	var code exitCode
	return errors.As(err, &code) && code == exitController
}

// sayOwn explains why a lab has another name than its topology.
func (a *app) sayOwn(plain, name string) {
	if name != plain {
		a.say("the lab is called %s: another user has one called %s (--name chooses another)", name, plain)
	}
}

// beside is where text for the user goes: to standard error if standard output is JSON.
func (a *app) beside() io.Writer {
	if a.json {
		return a.err
	}
	return a.out
}

// say prints for the user.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.beside(), harmlessText(fmt.Sprintf(format, args...)))
}

// answer prints a value for scripts or, for the user, a sentence.
func (a *app) answer(v any, format string, args ...any) error {
	if a.json {
		return a.printJSON(v)
	}
	a.say(format, args...)
	return nil
}

// free says why a name for a lab cannot be used.
func (a *app) free(name string, given bool) error {
	s, err := lab.Load(name)
	switch {
	case errors.Is(err, lab.ErrNone):
		return nil
	case err != nil:
		return err
	case s.Status == lab.Orphaned:
		return errors.New(s.Cure())
	}
	hint := "change it:  trivet apply FILE, or bring up another:  --name OTHER"
	if given {
		hint = lab.Otherwise(name)
	}
	return fmt.Errorf("lab %s is already %s; %s", name, s.Status, hint)
}

// describe sums up the topology in one line.
func describe(t *topology.Topology, where string) string {
	datapaths := map[string]bool{}
	controllers := map[string]bool{}
	var parts []string
	add := func(seen map[string]bool, word string) {
		if word != "" && !seen[word] {
			seen[word] = true
			parts = append(parts, word)
		}
	}
	for _, n := range t.Nodes {
		add(datapaths, string(n.Datapath))
	}
	for _, n := range t.NodesOf(topology.Switch) {
		for _, c := range n.Controllers {
			add(controllers, "controller "+c)
		}
	}
	if t.Cluster != nil {
		parts = append(parts, words.Plural(len(t.Cluster.Members), "member"))
	}
	if len(parts) > 5 {
		parts = append(parts[:5], "…")
	}
	head := []string{fmt.Sprintf("%s, %s", words.Plural(len(t.Nodes), "node"), words.Plural(len(t.Links), "link"))}
	if where != "" {
		head = append(head, where)
	}
	parts = append(head, parts...)
	return strings.Join(parts, " · ")
}

// start brings the lab up and shows the progress.
func (a *app) start(ctx context.Context, state lab.State) error {
	begin := time.Now()
	view := newStages(a.beside())
	client, err := lab.Start(ctx, state, view.step)
	view.end()
	if err != nil {
		return err
	}
	if err := a.await(ctx, client, state); err != nil {
		return errors.Join(err, state.Stop(context.WithoutCancel(ctx), func(lab.Progress) {}))
	}
	if a.json {
		if err := a.printJSON(map[string]any{"name": state.Name, "state": lab.Up,
			"seconds": time.Since(begin).Seconds(), "warnings": view.warnings}); err != nil {
			return err
		}
	} else {
		a.say("up in %s", seconds(time.Since(begin)))
	}
	if len(view.warnings) > 0 {
		return exitCode(exitController)
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
