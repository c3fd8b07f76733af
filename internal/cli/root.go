// Package cli is Trivet's command line: one file per command.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Exit codes, as listed by trivet --help. exec and shell pass on those of the program they run.
const (
	exitError      = 1
	exitUsage      = 2
	exitLoss       = 3
	exitController = 4
	exitWrong      = 5
	exitUntold     = 6

	exitInterrupted = 130 // as in a shell
)

// exitCode is an error that has been shown already, or needs no message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// app is shared by all commands.
type app struct {
	out, err io.Writer
	json     bool
	lab      string
	keys     *keyboard // of the prompt that runs a command, or nil
	missing  []string  // of the answers of a cluster of controllers, as it has said
}

// Main runs the command line and returns the exit code.
func Main() int {
	a := &app{out: os.Stdout, err: os.Stderr}
	if err := patience.Check(); err != nil {
		a.warn(err)
		return exitUsage
	}
	// Until the program has ended: an interrupt when all is done does not change its result.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once, whatever it is doing
	root := a.root()
	root.SetArgs(endFlags(root, os.Args[1:]))
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(ctx, cmd, err)
}

// report says why a command has failed, and returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case cmd != nil && isUsage(err) && cmd.HasSubCommands():
		a.warn(err)
		return exitUsage
	case cmd != nil && isUsage(err):
		fmt.Fprintf(a.err, "%v\n%s\n  %s --help says more\n", harmlessText(err.Error()),
			strings.TrimRight("usage: "+cmd.UseLine(), "\n"), cmd.CommandPath())
		return exitUsage
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		fmt.Fprintln(a.err, "interrupted")
		return exitInterrupted
	}
	a.showError(err)
	return exitError
}

// isUsage says whether a command line was malformed; cobra's own errors have no type.
func isUsage(err error) bool {
	var usage usageError
	return errors.As(err, &usage) || strings.HasPrefix(err.Error(), "if any flags in the group")
}

func (a *app) showError(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			a.showError(err)
		}
		return
	}
	var problems topology.Problems
	if !errors.As(err, &problems) {
		fmt.Fprintln(a.err, paintFor(a.err, red, harmlessText(err.Error())))
		return
	}
	fmt.Fprintln(a.err, paintFor(a.err, red, problems.Error()))
	fmt.Fprintf(a.err, "%s; nothing was changed\n", words.Plural(len(problems), "problem"))
}

const longHelp = `Trivet brings a network topology up on this machine, and measures it.

  sudo trivet up linear,3           three switches in a line, a host at each
  trivet ping --all                 every host pings every other
  trivet exec h1 -- ip addr         run a program in a host
  trivet link set s1-s2 delay=10ms  make a link slower while the lab runs
  trivet path h1 h3                 the path of a packet, and why it goes there
  trivet top                        the load of the links
  sudo trivet up campus.yaml        a topology from a file (see examples/)
  trivet down                       and nothing is left

Exit codes: 0 done, 1 an error, 2 wrong usage, 3 pings were lost, or the packet of path, 4
the lab is up but a controller does not answer, 5 the lab is not what its topology says
(verify), 6 nothing is wrong with it, but something could not be told (verify), or hosts
without an address could not be pinged, 130 interrupted; exec and shell exit with the program's own code.
Environment: TRIVET_LAB names the lab (as --lab does); TRIVET_PATIENCE=3 waits three times
as long for others before it gives them up.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "trivet", Short: "One network topology, up on one machine in a fraction of a second", Long: longHelp,
		Version: version.Version, SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentFlags().StringVar(&a.lab, "lab", os.Getenv("TRIVET_LAB"), "which lab, if there are several")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.AddGroup(&cobra.Group{ID: "life", Title: "The life of a lab:"}, &cobra.Group{ID: "use", Title: "Using it:"},
		&cobra.Group{ID: "net", Title: "Its controller:"},
		&cobra.Group{ID: "file", Title: "Topology files:"})
	group := func(id string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("life", a.up(), a.apply(), a.down(), a.resume(), a.ls(), a.inspect(), a.logs(), a.doctor(), a.rack())
	group("use", a.ping(), a.iperf(), a.verify(), a.exec(), a.shell(), a.jobs(), a.prompt(), a.link(), a.save(),
		a.capture(), a.mn(), a.runScript(), a.remoteAPI())
	group("net", a.top(), a.path(), a.flows(), a.routes(), a.balance())
	for _, p := range protocols {
		group("net", p.commands(a))
	}
	group("net", a.hosts(), a.controller(), a.cluster())
	group("use", a.bench())
	group("file", a.validate(), a.convert(), a.graph(), a.schema())
	root.AddCommand(a.docs(), a.what())
	root.Args = cobra.NoArgs // for words that are not commands
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	_ = root.RegisterFlagCompletionFunc("lab", a.completeLabs)
	completeBare(root)
	speakPlainly(root)
	return root
}

// client returns the chosen lab and a connection to its daemon.
func (a *app) client() (*lab.Client, lab.State, error) {
	s, err := lab.Choose(a.lab)
	if err != nil {
		return nil, s, err
	}
	c, err := lab.Connect(s)
	return c, s, err
}

// printJSON prints a value for scripts, with what is missing in it.
func (a *app) printJSON(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		b, err = api.WithMissing(b, a.missing)
	}
	var out bytes.Buffer
	if err == nil {
		err = json.Indent(&out, b, "", "  ")
	}
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(words.PlainJSON(out.Bytes()), '\n'))
	return err
}

// lacks records, and tells the user, that an answer of the controller is incomplete.
func (a *app) lacks(missing []string) {
	for _, what := range missing {
		if !slices.Contains(a.missing, what) {
			a.missing = append(a.missing, what)
			a.warn("not all is known; missing is " + what)
		}
	}
}

// warn prints to standard error, for the user.
func (a *app) warn(what ...any) { fmt.Fprint(a.err, harmlessText(fmt.Sprintln(what...))) }

// plainly prints what write writes, for the user.
func (a *app) plainly(write func(io.Writer) error) error {
	var b strings.Builder
	err := write(&b)
	fmt.Fprint(a.out, harmlessText(b.String()))
	return err
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// completeNodes offers the lab's nodes to the shell.
func (a *app) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, _, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	info, err := c.Info(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, n := range info.Topology.Nodes {
		names = append(names, n.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// linkNames lists the names of links for completion. Each link has two names; one will do as long
// as nothing has been typed.
func linkNames(t *topology.Topology, prefix string) (names []string) {
	for _, l := range t.Links {
		a, b := l.Ends[0].Label(), l.Ends[1].Label()
		names = append(names, a+"-"+b)
		if prefix != "" {
			names = append(names, b+"-"+a)
		}
	}
	return names
}

// completeLinks offers the lab's links to the shell.
func (a *app) completeLinks(cmd *cobra.Command, prefix string) []string {
	c, _, err := a.client()
	if err != nil {
		return nil
	}
	info, err := c.Info(cmd.Context())
	if err != nil {
		return nil
	}
	return linkNames(info.Topology, prefix)
}

// completeNodesAndLinks offers both.
func (a *app) completeNodesAndLinks(cmd *cobra.Command, args []string,
	prefix string) ([]string, cobra.ShellCompDirective) {
	nodes, directive := a.completeNodes(cmd, args, prefix)
	return append(nodes, a.completeLinks(cmd, prefix)...), directive
}

// completeLabs offers the labs.
func (a *app) completeLabs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	labs, _ := lab.List()
	var names []string
	for _, l := range labs {
		names = append(names, l.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
