package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/words"
)

func (a *app) path() *cobra.Command {
	var q api.PathQuery
	cmd := &cobra.Command{
		Use:   "path FROM TO",
		Short: "Show the path of a packet through switches and routers, and why it goes there",
		Long: "Follow a packet from one host or router to another through the flow entries as the switches have them now: which\n" +
			"entry matches in each table, where it leads, and why. The packet is an ICMP echo request, or the first of a TCP or\n" +
			"UDP flow. Where a switch chooses between several paths, each is shown. Through Linux routers it is followed by the\n" +
			"routes of their kernels, whoever has put them there. FROM and TO are names, addresses or MACs.\n" +
			"It exits with 3 when the packet does not arrive; where it cannot be followed further, that is said, and no failure.",
		Example: "  trivet path h1 h7\n  trivet path h1 10.0.3.2 --tcp 80",
		Args:    cobra.ExactArgs(2),
	}
	k := controllerFlags(cmd)
	f := cmd.Flags()
	f.Uint16Var(&q.TCP, "tcp", 0, "follow a TCP packet to that port")
	f.Uint16Var(&q.UDP, "udp", 0, "follow a UDP packet to that port")
	f.BoolVarP(&q.IPv6, "ipv6", "6", false, "over IPv6")
	cmd.MarkFlagsMutuallyExclusive("tcp", "udp")
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.From, q.To = args[0], args[1]
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		of, err := a.kernelsOf(ctx, k)
		if err != nil {
			return err
		}
		follow := c.Path
		if of != nil {
			follow = of.path
		}
		p, err := follow(ctx, q)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(p)
		} else {
			a.showPath(p)
		}
		if err == nil && p.Arrives == "no" {
			return exitCode(exitLoss)
		}
		return err
	}
	return cmd
}

// shownWays is how many paths are shown entry by entry.
const shownWays = 8

func (a *app) showPath(p api.Path) {
	if p.Arrives == "partly" {
		a.say("some of the paths do not arrive")
	}
	arrived := false
	for i, w := range p.Ways {
		if i > 0 {
			a.say("")
		}
		if i == shownWays {
			a.say("… and %d more paths (--json has them)", len(p.Ways)-shownWays)
			break
		}
		a.showWay(p, w)
		if i == 0 {
			for _, why := range p.Why {
				a.say("  why: %s", why)
			}
		}
		if arrived && w.Copy && !w.Arrives {
			continue // a copy that is ignored: its entries are those of the path that arrives
		}
		arrived = arrived || w.Arrives
		a.showHops(w)
	}
}

// showWay prints a path in one line.
func (a *app) showWay(p api.Path, w api.Way) {
	names := []string{p.From}
	for _, h := range w.Hops {
		if names[len(names)-1] != h.Switch {
			names = append(names, h.Switch)
		}
	}
	if names[len(names)-1] != w.End {
		names = append(names, w.End)
	}
	what := "switch"
	if slices.ContainsFunc(w.Hops, func(h api.PathHop) bool { return h.Route != "" }) {
		what = "hop"
	}
	facts := []string{words.Plural(len(w.Hops), what)}
	if w.Free != nil && w.Narrow != nil {
		facts = append(facts, fmt.Sprintf("%s of %s free", bits(*w.Free), bits(*w.Narrow)))
	}
	if w.Copy && !w.Arrives {
		facts = append(facts, "a copy")
	}
	mark := "   "
	switch {
	case w.Unknown:
		mark = " ? "
	case !w.Arrives:
		mark = " " + a.paint(red, "✗") + " "
	}
	line := strings.Join(names, " → ") + mark + strings.Join(facts, ", ")
	if w.Reason != "" {
		line += "   " + w.Reason
	}
	a.say("%s", line)
}

func (a *app) showHops(w api.Way) {
	rows := [][]string{{"  SWITCH", "IN", "OUT", "LOAD", "TABLE", "APP", "ENTRY"}}
	for _, h := range w.Hops {
		at := append([]string{"  " + h.Switch, dash(h.In)}, outCells(h)...)
		for _, e := range h.Entries {
			rows = append(rows, append(at, fmt.Sprint(e.Table), dash(e.App), e.Readable))
			at = []string{"", "", "", ""}
		}
		if h.Route != "" {
			rows = append(rows, append(at, "–", "kernel", h.Route))
		} else if len(h.Entries) == 0 {
			rows = append(rows, append(at, "–", "–", "–"))
		}
		for _, note := range hopNotes(h) {
			rows = append(rows, []string{"", "", "", "", "", "", "· " + note})
		}
	}
	if len(w.Hops) > 0 {
		a.table(rows)
	}
}

func outCells(h api.PathHop) []string {
	load := "–"
	if h.Utilisation != nil {
		load = fmt.Sprintf("%.0f %%", 100**h.Utilisation)
	} else if h.Rate != nil {
		load = rateText(h.Rate)
	}
	return []string{dash(h.Out), load}
}

func hopNotes(h api.PathHop) (out []string) {
	if h.Choice != "" {
		out = append(out, h.Choice)
	}
	if h.Controller != "" {
		out = append(out, "no entry yet: "+h.Controller)
	}
	return append(out, h.Notes...)
}
