package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
)

func (a *app) balance() *cobra.Command {
	var paths, most int
	var install []string
	var back bool
	cmd := &cobra.Command{
		Use:   "balance [ROUTER|SWITCH] [TO] [--install ROUTERS | --take-back]",
		Short: "Show what links between routing nodes and between switches carry and what avoids busy ones, and choose paths",
		Long: "Show the load of the links between routing nodes and between switches, each direction, and which traffic takes another path than\n" +
			"the shortest, and why: with  balance: load  in the topology the controller moves traffic off busy links. With a router and a subnet, an\n" +
			"address or a node to go to, or a switch and a host, list the paths there that are loaded least. A path that you install is kept until\n" +
			"you take it back.",
		Example: "  trivet balance\n  trivet balance r1 h4\n  trivet balance s1 h7\n  trivet balance h4 --install r1,r3,r4\n  trivet balance h4 --take-back",
		Args:    cobra.MaximumNArgs(2),
	}
	k := controllerFlags(cmd)
	f := cmd.Flags()
	f.IntVarP(&paths, "paths", "k", 3, "how many paths to list")
	f.IntVarP(&most, "links", "n", 10, "how many links to list")
	f.StringSliceVar(&install, "install", nil,
		"make what goes to TO take the path over these routers or switches, from the first of them")
	f.BoolVar(&back, "take-back", false, "take back the paths to TO that were installed")
	cmd.MarkFlagsMutuallyExclusive("install", "take-back")
	cmd.ValidArgsFunction = a.completeSwitches(k, "router")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		changes := f.Changed("install") || back
		switch {
		case changes && len(args) != 1:
			return errors.New("name what the path leads to:  trivet balance h4 --install r1,r3,r4")
		case !changes && len(args) == 1:
			return errors.New("name a router or a switch, and what the paths from it lead to:  trivet balance r1 h4")
		}
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		switch {
		case back:
			return a.takePathBack(ctx, c, args[0])
		case changes:
			return a.installPath(ctx, c, api.PathRequest{To: args[0], Routers: install})
		case len(args) == 2:
			return a.listPaths(ctx, c, args[0], args[1], paths)
		}
		return a.listLoads(ctx, c, most)
	}
	return cmd
}

func (a *app) installPath(ctx context.Context, c *api.Client, r api.PathRequest) error {
	p, err := c.InstallPath(ctx, r)
	if err != nil {
		return err
	}
	return a.answer(p, "installed   to %s by %s", movedTo(p), strings.Join(p.Routers, ", "))
}

func (a *app) takePathBack(ctx context.Context, c *api.Client, to string) error {
	if err := c.TakePathBack(ctx, to); err != nil {
		return err
	}
	return a.answer(map[string]string{"to": to}, "taken back   to %s", to)
}

func (a *app) listPaths(ctx context.Context, c *api.Client, from, to string, k int) error {
	p, err := c.PossiblePaths(ctx, from, to, k)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(p)
	}
	to = p.Host
	if to == "" {
		to = p.Prefix.String()
	}
	if len(p.Paths) == 0 {
		a.say("%s has %s itself, or no path leads there", p.From, to)
		return nil
	}
	rows := [][]string{{"LOAD", "FREE", "PATH TO " + to}}
	for _, x := range p.Paths {
		free := "–"
		if x.Free != nil {
			free = bits(*x.Free)
		}
		rows = append(rows, []string{fmt.Sprintf("%.2f", x.Load), free, strings.Join(x.Routers, ", ")})
	}
	for _, line := range columns(rows, "rrl") {
		a.say("%s", line)
	}
	return nil
}

// chosenWhen says when paths are chosen, where not when they are busy.
var chosenWhen = map[string]string{"once": "when traffic begins, and stay", "always": "every period, by all traffic"}

func (a *app) listLoads(ctx context.Context, c *api.Client, most int) error {
	b, err := c.Balance(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(b)
	}
	if !b.On {
		a.say("traffic is not moved off busy links: balance: load in the topology does that")
	}
	if how := chosenWhen[b.Choose]; b.On && how != "" {
		a.say("paths are chosen by load %s (choose: %s)", how, b.Choose)
	}
	rows := [][]string{{"FROM", "TO", "USED", "BANDWIDTH", "LOAD"}}
	for _, l := range b.Links[:min(len(b.Links), max(0, most))] {
		bandwidth := "–"
		if l.Bandwidth > 0 {
			bandwidth = bits(l.Bandwidth)
		}
		rows = append(rows, []string{l.From, l.To, rateText(&l.Used), bandwidth, fmt.Sprintf("%.2f", l.Load)})
	}
	for _, line := range columns(rows, "llrrr") {
		a.say("%s", line)
	}
	if more := len(b.Links) - len(rows) + 1; more > 0 {
		a.say("… and %d more", more)
	}
	for _, line := range movedLines(b.Moved, most) {
		a.say("%s", line)
	}
	return nil
}

// movedTo describes the destination of a path.
func movedTo(p api.MovedPath) string {
	if p.Host != "" {
		return p.Host
	}
	return strings.TrimSpace(p.Prefix.String() + " " + p.Part)
}

// movedLines lists the paths that are not the shortest, at most the given number, after an empty
// line; nothing if there are none.
func movedLines(list []api.MovedPath, most int) []string {
	if len(list) == 0 {
		return nil
	}
	shown := list[:min(len(list), max(0, most))]
	rows := [][]string{{"MOVED", "PATH", "SINCE", "WHY"}}
	for _, p := range shown {
		rows = append(rows, []string{movedTo(p), strings.Join(p.Routers, ", "), ago(p.Since), p.Why})
	}
	lines := append([]string{""}, columns(rows, "llll")...)
	if more := len(list) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return lines
}
