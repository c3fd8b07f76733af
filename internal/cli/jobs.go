package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/words"
)

func (a *app) jobs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs [NODE]",
		Short: "List what runs in the background of nodes",
		Long: "List the processes that commands of exec, shell and cli have left in the background, as  h1 python3 -m http.server 80 &\n" +
			"does. They go on until they end, or the lab is down; end one by  trivet exec NODE -- kill PID. PID is the one in the\n" +
			"node, which has its own where it is isolated (isolate: pid); --json has the machine's, too.",
		Example: "  trivet exec h1 -- sh -c 'iperf3 -s &'; trivet jobs",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.client()
			if err != nil {
				return err
			}
			jobs, err := c.Jobs(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(jobs)
			}
			if len(jobs) == 0 {
				a.say("nothing runs in the background")
				return nil
			}
			rows := [][]string{{"NODE", "PID", "SINCE", "COMMAND"}}
			for _, j := range jobs {
				rows = append(rows, []string{j.Node, strconv.Itoa(j.PID), ago(j.Since), words.Printable(j.Command)})
			}
			a.table(rows)
			return nil
		},
	}
	cmd.ValidArgsFunction = a.completeNodes
	return cmd
}
