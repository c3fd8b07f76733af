package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
)

func (a *app) flows() *cobra.Command {
	var add string
	var id int64
	var groups bool
	cmd := &cobra.Command{
		Use:   "flows [SWITCH] [--add FLOW | --delete ID | --groups]",
		Short: "List flow entries, add and delete them",
		Long: "List the flow entries of a switch, or of all: what the switches have at this moment. An entry that you add is\n" +
			"kept by the controller until you delete it, even when the switch or the controller restarts. It is written\n" +
			"as for ovs-ofctl; ports are numbers, which trivet inspect shows.",
		Example: "  trivet flows s1\n  trivet flows s1 --add 'priority=100,ip,nw_dst=10.0.0.2,actions=drop'\n  trivet flows --delete 1",
		Args:    cobra.MaximumNArgs(1),
	}
	k := controllerFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&add, "add", "", "add an entry to the switch")
	f.Int64Var(&id, "delete", 0, "delete the entry with that ID, one that you added")
	f.BoolVar(&groups, "groups", false, "list groups instead of entries")
	cmd.MarkFlagsMutuallyExclusive("add", "delete", "groups")
	cmd.ValidArgsFunction = a.completeSwitches(k, "")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		name := first(args)
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		switch {
		case f.Changed("add") && name == "":
			return errors.New("name the switch that is to have the entry:  trivet flows s1 --add '…'")
		case f.Changed("add"):
			x, err := c.AddFlow(ctx, api.FlowRequest{Switch: name, Flow: add})
			return a.showChange(x, "added", err)
		case f.Changed("delete"):
			x, err := c.DeleteFlow(ctx, id)
			return a.showChange(x, "deleted", err)
		case groups:
			return a.listGroups(ctx, c, name)
		}
		return a.listFlows(ctx, c, name)
	}
	return cmd
}

func (a *app) showChange(f api.Flow, what string, err error) error {
	if err != nil {
		return err
	}
	return a.answer(f, "%s %d   %s  table %d, priority %d  %s", what, f.ID, f.Switch, f.Table, f.Priority, f.Readable)
}

func (a *app) listFlows(ctx context.Context, c *api.Client, name string) error {
	flows, err := c.Flows(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(flows)
	}
	rows := [][]string{{"SWITCH", "TABLE", "PRIORITY", "PACKETS", "AGE", "APP", "ID", "ENTRY"}}
	row := func(f api.Flow, age string) {
		id := ""
		if f.ID > 0 {
			id = strconv.FormatInt(f.ID, 10)
		}
		rows = append(rows,
			[]string{f.Switch, fmt.Sprint(f.Table), fmt.Sprint(f.Priority), counted(f.Packets), age, dash(f.App), id,
				f.Readable})
	}
	for _, f := range flows.Flows {
		row(f, ago(time.Now().Add(-time.Duration(f.Seconds*1e9))))
	}
	for _, f := range flows.Pending {
		row(f, "waits")
	}
	a.table(rows)
	return a.showSilent(flows.Silent)
}

// showSilent says which switches have not answered, and makes the command fail if there are any.
func (a *app) showSilent(silent []string) error {
	for _, s := range silent {
		a.warn(s)
	}
	if len(silent) > 0 {
		return exitCode(exitError)
	}
	return nil
}

// counted formats a counter, which the switch may not keep.
func counted(n *uint64) string {
	if n == nil {
		return "–"
	}
	return strconv.FormatUint(*n, 10)
}

func (a *app) listGroups(ctx context.Context, c *api.Client, name string) error {
	groups, err := c.Groups(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(groups)
	}
	rows := [][]string{{"SWITCH", "GROUP", "TYPE", "TOTAL", "PACKETS", "BUCKET"}}
	for _, g := range groups.Groups {
		first := []string{g.Switch, fmt.Sprint(g.ID), g.Type, counted(g.Packets)}
		if len(g.Buckets) == 0 {
			rows = append(rows, append(first, "–", "–"))
		}
		for _, b := range g.Buckets {
			rows = append(rows, append(first, counted(b.Packets), b.Readable))
			first = []string{"", "", "", ""}
		}
	}
	a.table(rows)
	return a.showSilent(groups.Silent)
}
