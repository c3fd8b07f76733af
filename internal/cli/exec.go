package cli

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

func (a *app) exec() *cobra.Command {
	var noInput, network bool
	var env []string
	cmd := &cobra.Command{
		Use:               "exec NODE -- COMMAND [ARG...]",
		Short:             "Run a program in a node; streams, signals and exit code are its own",
		Example:           "  trivet exec h1 -- ip addr\n  trivet exec h1 -- sh -c 'echo $HOSTNAME'",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			node, args := args[0], args[1:]
			if strings.HasPrefix(args[0], "-") { // flags, or a lone --, may also come after the node
				if err := cmd.ParseFlags(args); err != nil {
					return flagError(cmd, err)
				}
				args = cmd.Flags().Args()
			}
			if len(args) == 0 {
				return usagef("give a command to run:  trivet exec h1 -- ip addr")
			}
			return a.run(cmd.Context(), node, args, !noInput, network, env...)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().BoolVar(&network, "network", false,
		"in the node's network only: with this machine's programs and files, where the node is a container")
	cmd.Flags().BoolVarP(&noInput, "no-input", "n", false, "do not read standard input")
	addEnv(cmd, &env)
	return cmd
}

// addEnv adds the flag --env.
func addEnv(cmd *cobra.Command, env *[]string) {
	cmd.Flags().StringArrayVarP(env, "env", "e", nil, "give it `NAME=VALUE`, or NAME as it is here; on another machine, and in a container, it gets TERM, LANG and LC_* only, and these")
}

func (a *app) shell() *cobra.Command {
	var env []string
	var console bool
	cmd := &cobra.Command{
		Use: "shell NODE", Short: "Open a shell in a node", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNodes, RunE: func(cmd *cobra.Command, args []string) error {
			made := a.made(args[0])
			words := []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh")}
			switch {
			case console && !made.Foreign():
				return usagef("%s has no console: virtual machines have (vm)", args[0])
			case console:
				words = []string{qemu.ConsoleCommand}
			case made.Foreign():
				words = []string{qemu.LoginCommand}
			case made.Files: // of its shells, the best
				words = []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"}
			}
			return a.run(cmd.Context(), args[0], words, true, false, env...)
		},
	}
	cmd.Flags().BoolVar(&console, "console", false, "the console of a virtual machine, which Ctrl-] leaves")
	addEnv(cmd, &env)
	return cmd
}

// made returns a node's kind on its machine, as far as known.
func (a *app) made(node string) topology.NodeKind {
	if s, err := lab.Choose(a.lab); err == nil && s.Topology != nil {
		if n := s.Topology.Node(node); n != nil {
			return *n.Made()
		}
	}
	return topology.NodeKind{}
}

// run runs a program in a node of the lab, on a terminal if we have one. Variables that env names
// (as --env does) are passed everywhere. With network, it runs only in the node's network
// namespace.
func (a *app) run(ctx context.Context, node string, command []string, input, network bool, env ...string) error {
	c, _, err := a.client()
	if err != nil {
		return err
	}
	r := asHere(node, command)
	r.Network = network
	for _, e := range env {
		name, _, given := strings.Cut(e, "=")
		switch _, known := os.LookupEnv(name); {
		case name == "":
			return usagef("--env %s: write NAME=VALUE, or NAME", e)
		case given:
			r.Env = append(r.Env, e)
		case !known:
			return usagef("--env %s: there is no %s here; write %s=VALUE", e, name, name)
		}
		r.Carry = append(r.Carry, name)
	}
	return a.runIn(ctx, c, r, input)
}

// asHere returns a request for a program with the environment and directory of this one.
func asHere(node string, command []string) lab.ExecRequest {
	dir, _ := os.Getwd()
	return lab.ExecRequest{Node: node, Command: command, Env: os.Environ(), Dir: dir}
}

func (a *app) runIn(ctx context.Context, c *lab.Client, r lab.ExecRequest, input bool) error {
	signals, sizes := make(chan byte, 8), make(chan [2]uint16, 1)
	s := lab.Streams{Out: os.Stdout, Err: os.Stderr, Signals: signals, Sizes: sizes}
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH)
	defer close(caught)
	defer signal.Stop(caught)
	if input {
		s.In = os.Stdin
	}
	if input && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		r.TTY = true
		if columns, rows, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
			r.Rows, r.Columns = uint16(rows), uint16(columns)
		}
		keys := a.keys
		if keys == nil {
			var err error
			if keys, err = newKeyboard(int(os.Stdin.Fd())); err != nil {
				return err
			}
			defer keys.putBack()
		}
		keys.start()
		s.In, r.Typed = keys, keys.take()
		old, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err == nil {
			defer func() { _ = term.Restore(int(os.Stdin.Fd()), old) }()
		}
	}
	go forward(caught, signals, sizes)
	code, err := c.Exec(context.WithoutCancel(ctx), r, s)
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// forward passes signals on to the program; for a resized window it sends the terminal's new size.
func forward(caught <-chan os.Signal, signals chan<- byte, sizes chan<- [2]uint16) {
	defer close(signals)
	for s := range caught {
		number, _ := s.(syscall.Signal)
		if number == syscall.SIGWINCH {
			if columns, rows, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
				sizes <- [2]uint16{uint16(rows), uint16(columns)}
			}
			continue
		}
		signals <- byte(number)
	}
}
