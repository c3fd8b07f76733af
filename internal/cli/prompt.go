package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// prompt is the command line of a lab, in the style of Mininet's.
func (a *app) prompt() *cobra.Command {
	var script string
	cmd := &cobra.Command{
		Use:   "cli",
		Short: "A prompt like Mininet's:  h1 ping -c1 h2",
		Long: "A prompt like Mininet's: a node's name and a command run it there, and names of nodes among its words become\n" +
			"their addresses. Mininet's own words work, and every trivet command without the word trivet: path h1 h2, link r1-r2 down.\n" +
			"Tab completes, Ctrl-R searches the history, Ctrl-C ends what runs, Ctrl-D leaves. help lists the rest.\n\n" +
			"A script, or what comes from a pipe, runs to its end whatever fails; the exit code is that of the first command\n" +
			"that failed, 0 when none did. What a script runs in a node has no standard input.",
		Example: "  trivet cli\n  trivet cli --script lab.cli\n  echo pingall | trivet cli",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, state, err := a.client()
			if err != nil {
				return err
			}
			os.Setenv("TRIVET_LAB", state.Name) // for the commands that the prompt runs
			p := &prompt{app: a, lab: state.Name, client: c}
			if script == "" && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
				return p.interact(cmd.Context())
			}
			in, name := os.Stdin, "standard input"
			if script != "" {
				if in, err = os.Open(script); err != nil {
					return err
				}
				name = script
				defer in.Close()
			}
			return p.script(cmd.Context(), in, name)
		},
	}
	cmd.Flags().StringVar(&script, "script", "", "read commands from a file")
	return cmd
}

type prompt struct {
	*app
	lab     string
	client  *lab.Client
	history *history
	sourced []string            // the files that are being read
	pulled  map[string][]string // by switch: links that stopping it has pulled
}

// errLeave says that the user leaves the prompt.
var errLeave = errors.New("leave")

// script runs commands until the end of the input, and returns how the first that failed did.
func (p *prompt) script(ctx context.Context, in io.Reader, name string) error {
	failed := 0
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan() && ctx.Err() == nil; n++ {
		cmd, err := p.do(ctx, lines.Text())
		if err == errLeave {
			break
		}
		if err == nil {
			continue
		}
		if _, shown := err.(exitCode); !shown {
			fmt.Fprintf(p.err, "%s:%d  ", name, n)
		}
		if code := p.report(ctx, cmd, err); failed == 0 {
			failed = code
		}
		if p.keys != nil && err == exitCode(exitInterrupted) {
			break
		}
	}
	if err := errors.Join(lines.Err(), ctx.Err()); err != nil {
		return err
	}
	if failed != 0 {
		return exitCode(failed)
	}
	return nil
}

// interact reads commands from the terminal. Ctrl-C ends a command, never the prompt.
func (p *prompt) interact(parent context.Context) error {
	keys, err := newKeyboard(int(os.Stdin.Fd()))
	if err != nil {
		return err
	}
	p.keys, p.history = keys, openHistory()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	end, stop := signal.NotifyContext(context.WithoutCancel(parent), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(end, keys.Stop)
	fmt.Fprintf(p.out, "lab %s; help lists the commands, Ctrl-D leaves\n", p.lab)
	for end.Err() == nil {
		line, err := p.read()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && keys.last == 3:
			fmt.Fprintln(p.out, "^C")
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(p.out)
			return nil
		default:
			return err
		}
		select {
		case <-interrupts: // of the command before
		default:
		}
		ctx, cancel := context.WithCancel(end)
		done := make(chan struct{})
		go func() {
			select {
			case <-interrupts:
				cancel()
			case <-done:
			}
		}()
		cmd, err := p.do(ctx, line)
		close(done)
		if err == errLeave {
			cancel()
			return nil
		}
		if ctx.Err() != nil || err == exitCode(exitInterrupted) {
			fmt.Fprintln(p.out) // after the ^C
		}
		if err != nil {
			p.report(ctx, cmd, err)
		}
		cancel()
	}
	return nil
}

// read lets the user edit a line. The terminal is in raw mode only for that time.
func (p *prompt) read() (string, error) {
	fd := int(os.Stdin.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(fd, old) }()
	p.keys.start()
	t := term.NewTerminal(one{p.keys, p.out}, "trivet> ")
	t.History = p.history
	t.AutoCompleteCallback = (&completer{prompt: p, terminal: t}).key
	resize := func() {
		if columns, rows, err := term.GetSize(int(os.Stdout.Fd())); err == nil && columns > 0 {
			_ = t.SetSize(columns, rows)
		}
	}
	resize()
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	go func() {
		for range sizes {
			resize()
		}
	}()
	defer close(sizes)
	defer signal.Stop(sizes)
	return t.ReadLine()
}

const promptHelp = `NODE COMMAND...                  run a command in a node; node names in it become addresses
link A-B up|down|delay=10ms...   change a link
sh COMMAND...                    run a command on this machine; ovs-ofctl and ovs-vsctl find the lab's switches
exit                             leave; the lab stays up (trivet down takes it down)
Mininet's (help COMMAND says more):
%s
Trivet's own, as outside the prompt (| > and < work as in a shell):
%s`

// outside are the commands that make no sense at the prompt of a lab that is up.
var outside = []string{"up", "apply", "down", "resume", "cli", "bench", "controller", "completion", "mn", "run"}

// do runs a line; cmd is the Trivet command that it was, if any.
func (p *prompt) do(ctx context.Context, line string) (cmd *cobra.Command, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return nil, nil
	}
	first, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch first {
	case "exit", "quit":
		return nil, errLeave
	case "sh":
		return nil, shellOut(rest, p.tools(ctx)...)
	}
	info, err := p.client.Info(ctx)
	if err != nil {
		return nil, err
	}
	t := info.Topology
	words, shell, err := splitLine(line)
	if err != nil && t.Node(first) == nil {
		return nil, err
	}
	word, mininets := mininetWords()[first]
	if own := word.own; own != "" && t.Node(first) == nil &&
		(shell || slices.ContainsFunc(words, func(w string) bool { return w[:min(1, len(w))] == "-" })) {
		mininets, line = false, strings.TrimSpace(own+" "+rest)
		words = append(strings.Fields(own), words[1:]...)
		first = words[0]
	}
	switch command := slices.Contains(p.own(), first); {
	case first == "help" && rest == "":
		p.say(promptHelp, wrap(mininetNames(), "  ", 2, 78), wrap(p.own(), "  ", 2, 78))
	case first == "help" && len(words) == 2 && mininetWords()[words[1]].help != "":
		word = mininetWords()[words[1]]
		p.say("%s: %s", strings.TrimSpace(words[1]+" "+word.usage), word.help)
		if word.own != "" {
			p.say("With options it is Trivet's own:\n")
			return p.trivet(ctx, []string{"help", strings.Fields(word.own)[0]})
		}
	case mininets && t.Node(first) == nil:
		return nil, p.mininet(ctx, word, mininetLine{t: t, word: first, words: words[1:], rest: rest})
	case slices.Contains(outside, first):
		return nil, fmt.Errorf("%s works only outside the prompt: leave it (exit), then  trivet %s", first, line)
	case command && shell:
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return nil, shellOut("'" + self + "' " + line)
	case command || first == "help":
		return p.trivet(ctx, asTrivets(t, words))
	case t.Node(first) != nil:
		return nil, p.inNode(ctx, t, first, rest)
	default:
		hint := topology.DidYouMean(first, slices.Concat(nodeNames(t), mininetNames(), p.own()))
		hint = cmp.Or(hint, "help lists the commands")
		return nil, fmt.Errorf("there is no node or command %s; %s", first, hint)
	}
	return nil, nil
}

// trivet runs one of Trivet's own commands, for this lab unless --lab says otherwise.
func (p *prompt) trivet(ctx context.Context, words []string) (*cobra.Command, error) {
	a := &app{out: p.out, err: p.err, keys: p.keys}
	root := a.root()
	root.SetArgs(words)
	return root.ExecuteContextC(ctx)
}

// own lists Trivet's commands that work at the prompt.
func (p *prompt) own() (names []string) {
	for _, c := range (&app{}).root().Commands() {
		if c.IsAvailableCommand() && !slices.Contains(outside, c.Name()) {
			names = append(names, c.Name())
		}
	}
	return names
}

// asTrivets translates commands that both have from Mininet's syntax into Trivet's: link A B down.
func asTrivets(t *topology.Topology, words []string) []string {
	switch {
	case words[0] == "link" && len(words) > 3 && t.Node(words[1]) != nil && t.Node(words[2]) != nil:
		return append([]string{"link", "set", words[1] + "-" + words[2]}, words[3:]...)
	case words[0] == "link" && len(words) > 2 && words[1] != "set" && words[1] != "flap":
		return append([]string{"link", "set"}, words[1:]...)
	}
	return words
}

func nodeNames(t *topology.Topology) (names []string) {
	for _, n := range t.Nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// tools returns the environment in which ovs-ofctl and ovs-vsctl find the lab's switches, and other
// tools (target/local/tools.go) their ports: the one that the lab gives to programs in the first
// switch that has these. It is empty if that switch is on another machine.
func (p *prompt) tools(ctx context.Context) (env []string) {
	info, err := p.client.Info(ctx)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(info.Topology.Nodes, speaksOpenFlow)
	if i < 0 {
		return []string{"PATH=" + local.ToolsDir(lab.Dir(p.lab)) + ":" + os.Getenv("PATH")}
	}
	var told bytes.Buffer
	code, err := p.client.Exec(ctx, asHere(info.Topology.Nodes[i].Name, []string{"env", "-0"}),
		lab.Streams{Out: &told, Err: io.Discard})
	if err != nil || code != 0 {
		return nil
	}
	for _, v := range strings.Split(told.String(), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		if name == "OVS_RUNDIR" {
			if _, err := os.Stat(value); err != nil {
				return nil
			}
		}
		if name == "OVS_RUNDIR" || name == "PATH" {
			env = append(env, v)
		}
	}
	return env
}

// speaksOpenFlow says whether Open vSwitch's commands work for a node.
func speaksOpenFlow(n *topology.Node) bool {
	return n.Kind == topology.Switch && (n.Datapath == topology.Embedded || n.Datapath == topology.OVS)
}

// inNode runs a shell command in a node; names of nodes are replaced by their addresses.
func (p *prompt) inNode(ctx context.Context, t *topology.Topology, node, command string) error {
	if command == "" {
		return fmt.Errorf("give a command to run:  %s COMMAND   (or open a shell there:  shell %s)", node, node)
	}
	for _, w := range strings.Fields(command) {
		if a := firstAddress(t, w); a != "" {
			command = replaceWord(command, w, a)
		}
	}
	return p.runIn(ctx, p.client, asHere(node, []string{"/bin/sh", "-c", command}), p.keys != nil)
}

func firstAddress(t *topology.Topology, node string) string {
	n := t.Node(node)
	if n == nil {
		return ""
	}
	for _, a := range topology.AddressesOf(t, n) {
		return a.Addr().String()
	}
	return ""
}

// replaceWord replaces a word between blanks.
func replaceWord(text, word, by string) string {
	parts := strings.Split(text, " ")
	for i, p := range parts {
		if p == word {
			parts[i] = by
		}
	}
	return strings.Join(parts, " ")
}

// shellOut runs a shell command on this machine. Ctrl-C reaches the command itself, as it is in the
// terminal's foreground process group, too.
func shellOut(command string, env ...string) error {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitCode(128 + int(status.Signal()))
	}
	return exitCode(exit.ExitCode())
}
