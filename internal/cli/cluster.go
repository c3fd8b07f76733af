package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/api"
)

func (a *app) cluster() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Show and change who of several controllers is master of which switch",
		Long: "Show and change who of several controllers (trivet controller --member NAME) is master of which switch. Of a lab with a\n" +
			"cluster its daemon asks a member; elsewhere any may be asked: --api ADDRESS, which it has printed. docs/cluster.md says\n" +
			"how members share switches out.",
	}
	cmd.AddCommand(a.clusterStatus(), a.clusterMove(), a.clusterDrain(), a.clusterUpgrade())
	return cmd
}

func (a *app) clusterStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "List members, and the masters and standbys of switches",
		Args: cobra.NoArgs}
	k := controllerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		s, err := c.Cluster(cmd.Context())
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(s)
		}
		a.sayCluster(s)
		return nil
	}
	return cmd
}

// warnOfPart warns that an answer is incomplete if it comes from a single member, which knows only
// the switches that it is master of. A controller without a cluster knows all, and of a lab's
// cluster all members are asked.
func (a *app) warnOfPart(ctx context.Context, c *api.Client) {
	s, err := c.Cluster(ctx)
	if err != nil {
		return
	}
	has := 0
	for _, x := range s.Switches {
		if x.Master == s.Member {
			has++
		}
	}
	if has < len(s.Switches) {
		a.warn(fmt.Sprintf("this is what member %s knows, master of %d of %d switches; ask the others with --api  (trivet cluster status lists them)", s.Member, has, len(s.Switches)))
	}
}

func (a *app) sayCluster(s cluster.Status) {
	if s.Problem != "" {
		a.say("%s: it takes no switch, and what follows may be old: %s", s.Member, s.Problem)
	}
	rows := [][]string{{"MEMBER", "STATE", "SINCE", "MASTER OF", "CONNECTED", "SWITCHES AT", "API", "VERSION"}}
	for _, m := range s.Members {
		state := "dead"
		switch {
		case m.Alive && m.Draining:
			state = "drained"
		case m.Alive:
			state = "alive"
		}
		rows = append(rows,
			[]string{m.Name, state, m.Started.Local().Format(time.DateTime), strconv.Itoa(m.Mastered),
				strconv.Itoa(m.Connected), m.OpenFlow, m.API, m.Version})
	}
	a.table(rows)
	if len(s.Switches) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	rows = [][]string{{"SWITCH", "MASTER", "GENERATION", "STANDBYS", "WANTED"}}
	for _, x := range s.Switches {
		generation := ""
		if x.Generation != 0 {
			generation = strconv.FormatInt(x.Generation, 10)
		}
		rows = append(rows, []string{x.Switch, x.Master, generation, strings.Join(x.Standbys, ", "), x.Wanted})
	}
	a.table(rows)
}

func (a *app) clusterMove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "move SWITCH MEMBER", Short: "Have a member become the master of a switch", Args: cobra.ExactArgs(2),
		Example: "  trivet cluster move s1 c2 --api unix:/run/trivet/controller-6653.sock",
	}
	wait := cmd.Flags().Duration("wait", 10*time.Second, "how long to wait until it is")
	k := controllerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		asked, err := c.MoveSwitch(cmd.Context(), api.ClusterMove{Switch: args[0], Member: args[1]})
		if err != nil {
			return err
		}
		return awaitCluster(cmd.Context(), c, *wait, fmt.Sprintf("%s is not the master of %s", args[1], args[0]),
			func(s cluster.Status) bool {
				return slices.ContainsFunc(s.Switches,
					func(x cluster.SwitchStatus) bool { return x.Switch == asked.Switch && x.Master == args[1] })
			})
	}
	return cmd
}

func (a *app) clusterDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain MEMBER", Short: "Have the other members take over all switches of one, which then may be ended",
		Args: cobra.ExactArgs(1),
		Long: "Have the other members take over all switches of one, and wait until they have. It stays their master until each has\n" +
			"another, so nothing goes without one. It takes no switches until it is started anew, or --undo. (One that is ended by\n" +
			"SIGTERM or Ctrl-C drains itself.)",
		Example: "  trivet cluster drain c2 --api unix:/run/trivet/controller-6653.sock",
	}
	undo := cmd.Flags().Bool("undo", false, "let it take switches again")
	wait := cmd.Flags().Duration("wait", 30*time.Second, "how long to wait until the others have its switches")
	k := controllerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		if err := c.Drain(cmd.Context(), args[0], *undo); err != nil || *undo {
			return err
		}
		return awaitCluster(cmd.Context(), c, *wait,
			fmt.Sprintf("%s still has switches that no other member is connected to, or takes", args[0]),
			func(s cluster.Status) bool {
				for _, m := range s.Members {
					if m.Name == args[0] {
						return m.Mastered == 0
					}
				}
				return true
			})
	}
	return cmd
}

// awaitCluster polls a member until it reports that the condition holds.
func awaitCluster(ctx context.Context, c *api.Client, wait time.Duration, otherwise string,
	so func(cluster.Status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		s, err := c.Cluster(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
		case err != nil:
			return err
		case so(s):
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s after %v (trivet cluster status)", otherwise, wait)
		}
	}
}
