package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

func (a *app) up() *cobra.Command {
	var s source
	var on string
	wait := 10 * time.Second
	cmd := &cobra.Command{
		Use:   "up FILE|GENERATOR",
		Short: "Bring a topology up",
		Long: "Bring a topology up, from a file (Trivet YAML, MiniEdit .mn, Mininet .py, C3-Edge YAML, GraphML)\n" +
			"or from a generator:\n\n" + generatorHelp() +
			"\nIt returns when traffic can flow. If it fails, nothing is left.",
		Example: "  sudo trivet up examples/campus.yaml\n  sudo trivet up tree,2,3 --datapath bridge\n  sudo trivet up ring,4 --nodes router",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if on != "local" {
				return fmt.Errorf("--on %s: there is only local in this build", on)
			}
			return a.runUp(cmd.Context(), &s, args[0], wait)
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&on, "on", "local", "where: local")
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
	return fmt.Errorf("trivet %s makes namespaces and network devices, which needs root:  sudo %s", command, strings.Join(os.Args, " "))
}

func (a *app) runUp(ctx context.Context, s *source, what string, wait time.Duration) error {
	t, warnings, err := s.load(what)
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
	if err := foreign.Installed(r, foreign.PlacesOf(lab.Owner())); err != nil {
		return err
	}
	if err := routerd.Check(r); err != nil {
		return err
	}
	name := lab.CleanName(r.Name)
	if err := a.free(name, s.name != ""); err != nil {
		return err
	}
	state := lab.State{Name: name, Status: lab.Starting, Version: version.Version, Source: what, Target: "local",
		Owner: lab.Owner(), Created: time.Now(), Wait: topology.Duration(wait), Topology: r}
	a.say("%s  %s", name, describe(r))
	for _, w := range append(warnings, more...) {
		a.say("%s", w)
	}
	if local.LongPaths(r) {
		a.say("hosts get TTL and hop limit 255: paths cross up to %d routers", r.RouterHops)
	}
	return a.start(ctx, state)
}

// say prints for people, on standard error where standard output is JSON.
func (a *app) say(format string, args ...any) {
	out := a.out
	if a.json {
		out = a.err
	}
	fmt.Fprintf(out, format+"\n", args...)
}

// free says whether a name can be had.
func (a *app) free(name string, given bool) error {
	s, err := lab.Load(name)
	switch {
	case errors.Is(err, lab.ErrNone):
		return nil
	case err != nil:
		return err
	case s.Status == lab.Orphaned:
		return fmt.Errorf("a lab %s is left from before, without its daemon; clean it up:  trivet down %s", name, name)
	}
	hint := "change it:  trivet apply FILE, or bring up another:  --name OTHER"
	if given {
		hint = "choose another name, or take it down:  trivet down " + name
	}
	return fmt.Errorf("a lab %s is %s already; %s", name, s.Status, hint)
}

// describe is the topology in a line.
func describe(t *topology.Topology) string {
	datapaths := map[string]bool{}
	controllers := map[string]bool{}
	var words []string
	add := func(seen map[string]bool, word string) {
		if word != "" && !seen[word] {
			seen[word] = true
			words = append(words, word)
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
	if len(words) > 5 {
		words = append(words[:5], "…")
	}
	words = append([]string{fmt.Sprintf("%s, %s", plural(len(t.Nodes), "node"), plural(len(t.Links), "link")), "local"}, words...)
	return strings.Join(words, " · ")
}

// start starts the lab's daemon and follows it until the lab is up.
func (a *app) start(ctx context.Context, state lab.State) error {
	begin := time.Now()
	dir := lab.Dir(state.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := state.Save(); err != nil {
		return err
	}
	daemon, err := startDaemon(state.Name)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	client, err := a.waitForDaemon(state, daemon)
	if err != nil {
		return err
	}
	interrupted := context.AfterFunc(ctx, func() { // a lab is whole or gone: Ctrl-C takes back what there is
		_ = client.Down(context.Background(), func(lab.Progress) {})
	})
	defer interrupted()
	out := a.out
	if a.json {
		out = a.err
	}
	view := newStages(out)
	err = client.Follow(context.Background(), view.step)
	view.end()
	if err != nil {
		select {
		case <-daemon:
		case <-time.After(5 * time.Second):
		}
		if _, gone := lab.Load(state.Name); !errors.Is(gone, lab.ErrNone) {
			return fmt.Errorf("%w\n  something is left of the lab; clean it up:  trivet down %s", err, state.Name)
		}
		return fmt.Errorf("%w\nnothing is left of the lab", err)
	}
	if a.json {
		if err := a.printJSON(map[string]any{"name": state.Name, "state": lab.Up, "seconds": time.Since(begin).Seconds(), "warnings": view.warnings}); err != nil {
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

// startDaemon starts the lab's daemon, which outlives this process and its terminal.
func startDaemon(name string) (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(lab.Dir(name), "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, lab.DaemonCommand, name)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the lab's daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// waitForDaemon waits until the daemon listens.
func (a *app) waitForDaemon(state lab.State, ended <-chan error) (*lab.Client, error) {
	for {
		if conn, err := net.Dial("unix", state.Socket()); err == nil {
			conn.Close()
			return lab.NewClient(state), nil
		}
		select {
		case err := <-ended:
			log, _ := os.ReadFile(filepath.Join(lab.Dir(state.Name), "daemon.log"))
			return nil, fmt.Errorf("the lab's daemon ended at once: %w\n%s", err, log)
		case <-time.After(2 * time.Millisecond):
		}
	}
}
