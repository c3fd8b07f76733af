package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// prompt is the command line of a lab, in the manner of Mininet's.
func (a *app) prompt() *cobra.Command {
	var script string
	cmd := &cobra.Command{
		Use:   "cli",
		Short: "A prompt in the manner of Mininet's:  h1 ping -c1 h2",
		Long:  "A prompt in the manner of Mininet's: a node's name and a command runs it there, and names of\nnodes among its words become their addresses. help lists the rest.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.client()
			if err != nil {
				return err
			}
			in := os.Stdin
			if script != "" {
				if in, err = os.Open(script); err != nil {
					return err
				}
				defer in.Close()
			}
			p := &promptState{app: a, client: c, interactive: script == "" && isTerminal(os.Stdin)}
			return p.loop(cmd.Context(), bufio.NewScanner(in))
		},
	}
	cmd.Flags().StringVar(&script, "script", "", "read commands from a file")
	return cmd
}

type promptState struct {
	*app
	client      *lab.Client
	interactive bool
}

func (p *promptState) loop(ctx context.Context, lines *bufio.Scanner) error {
	var old *term.State
	if p.interactive {
		old, _ = term.GetState(int(os.Stdin.Fd()))
	}
	for {
		if p.interactive {
			fmt.Fprint(p.out, "trivet> ")
		}
		if !lines.Scan() {
			if p.interactive {
				fmt.Fprintln(p.out)
			}
			return lines.Err()
		}
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "exit" || words[0] == "quit" {
			return nil
		}
		if err := p.do(ctx, words, strings.TrimSpace(line)); err != nil {
			if code, ok := err.(exitCode); !ok {
				fmt.Fprintln(p.err, err)
			} else if !p.interactive && script(words) {
				return code
			}
		}
		if old != nil {
			_ = term.Restore(int(os.Stdin.Fd()), old)
		}
	}
}

// script says whether a failure of this command ends a script: that of a measurement does.
func script(words []string) bool { return slices.Contains([]string{"pingall", "iperf"}, words[0]) }

const promptHelp = `NODE COMMAND...   run a command in a node; node names in it become addresses
nodes, links, net, dump          what there is
pingall, ping A B, iperf [A B]   measure
link A B up|down|delay=10ms...   change a link
sh COMMAND...                    run a command on this machine
exit                             leave; the lab stays up (trivet down takes it down)`

func (p *promptState) do(ctx context.Context, words []string, line string) error {
	info, err := p.client.Info(ctx)
	if err != nil {
		return err
	}
	t := info.Topology
	args := words[1:]
	switch words[0] {
	case "help":
		p.say("%s", promptHelp)
	case "nodes":
		var names []string
		for _, n := range t.Nodes {
			names = append(names, n.Name)
		}
		slices.Sort(names)
		p.say("available nodes are: \n%s", strings.Join(names, " "))
	case "links":
		for _, l := range t.Links {
			p.say("%s<->%s (%s)", l.Ends[0].Interface, l.Ends[1].Interface, map[bool]string{true: "down", false: "OK OK"}[l.Down])
		}
	case "net":
		p.net(t)
	case "dump":
		p.table(nodeRows(t))
	case "pingall":
		return p.pingAll(ctx)
	case "ping":
		if len(args) != 2 {
			return fmt.Errorf("ping A B")
		}
		r, err := p.client.Ping(ctx, lab.PingRequest{From: args[0], To: args[1], Count: 1})
		if err != nil {
			return err
		}
		return p.showPing(r, false, false)
	case "iperf":
		return p.iperfBetween(ctx, t, args)
	case "link":
		if len(args) < 3 {
			return fmt.Errorf("link A B up|down|delay=10ms")
		}
		return p.client.SetLink(ctx, lab.LinkRequest{A: args[0], B: args[1], Change: args[2:]})
	case "sh":
		return shellOut(ctx, strings.TrimSpace(strings.TrimPrefix(line, "sh")))
	default:
		return p.inNode(ctx, t, words, line)
	}
	return nil
}

// net prints each node's interfaces and what they lead to, as Mininet does.
func (p *promptState) net(t *topology.Topology) {
	for _, n := range t.Nodes {
		words := []string{n.Name}
		for _, l := range t.Links {
			for i, e := range l.Ends {
				if e.Node == n.Name {
					words = append(words, e.Interface+":"+l.Ends[1-i].Interface)
				}
			}
		}
		p.say("%s", strings.Join(words, " "))
	}
}

func (p *promptState) pingAll(ctx context.Context) error {
	r, err := p.client.Ping(ctx, lab.PingRequest{})
	if err != nil {
		return err
	}
	return p.showPing(r, true, false)
}

func (p *promptState) iperfBetween(ctx context.Context, t *topology.Topology, args []string) error {
	hosts := t.NodesOf(topology.Host)
	switch {
	case len(args) == 0 && len(hosts) > 1:
		args = []string{hosts[0].Name, hosts[len(hosts)-1].Name}
	case len(args) != 2:
		return fmt.Errorf("iperf A B")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := p.client.Iperf(ctx, lab.IperfRequest{From: args[0], To: args[1]})
	if err != nil {
		return err
	}
	p.say("iperf %s → %s   %s", args[0], args[1], bits(r.BitsPerSecond))
	return nil
}

// inNode runs a command in a node; words that are nodes' names become their addresses.
func (p *promptState) inNode(ctx context.Context, t *topology.Topology, words []string, line string) error {
	if t.Node(words[0]) == nil {
		return fmt.Errorf("unknown command or node: %s (help lists them)", words[0])
	}
	if len(words) == 1 {
		return fmt.Errorf("say what to run: %s COMMAND", words[0])
	}
	command := strings.TrimSpace(strings.TrimPrefix(line, words[0]))
	for _, w := range words[1:] {
		if a := firstAddress(t, w); a != "" {
			command = replaceWord(command, w, a)
		}
	}
	return runIn(ctx, p.client, words[0], []string{"/bin/sh", "-c", command}, p.interactive)
}

func firstAddress(t *topology.Topology, node string) string {
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node == node && len(e.Addresses) > 0 {
				return e.Addresses[0].Addr().String()
			}
		}
	}
	return ""
}

// replaceWord replaces a word that stands between blanks.
func replaceWord(text, word, by string) string {
	parts := strings.Split(text, " ")
	for i, p := range parts {
		if p == word {
			parts[i] = by
		}
	}
	return strings.Join(parts, " ")
}

func shellOut(ctx context.Context, command string) error {
	cmd := execCommand(ctx, command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
