package cli

import (
	"os"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

func (a *app) apply() *cobra.Command {
	var s source
	var may consent
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply FILE [ARGUMENT...]|GENERATOR",
		Short: "Change a running lab to match an edited file, touching only what differs",
		Args:  scriptArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, warnings, err := s.load(args[0], args[1:]...)
			if err != nil {
				return err
			}
			if a.lab == "" { // the lab of the same name, if there is one
				if state, err := lab.Load(lab.OwnName(lab.CleanName(t.Name))); err == nil {
					a.lab = state.Name
				}
			}
			c, state, err := a.client()
			if err != nil {
				return err
			}
			info, err := c.Info(cmd.Context())
			if err != nil {
				return err
			}
			t.Name = info.Topology.Name // MAC addresses are derived from it
			topology.Inherit(t, info.Topology)
			state.Sites.Fill(t)
			if may.leave || !dryRun {
				if t, err = a.agreed(cmd.Context(), may, &s, t, info.Topology, state.Sites != nil &&
					state.Sites.TakesHosts()); err != nil {
					return err
				}
			}
			r, more, err := s.resolve(t)
			if err != nil {
				return err
			}
			if err := r.ReadKeys(os.ReadFile); err != nil {
				return err
			}
			result, err := c.Apply(cmd.Context(), r, dryRun)
			if err != nil {
				return err
			}
			var machine []string // of what the daemon knows nothing, so that nothing here changes it
			if dryRun {
				if machine, err = verify.Glance(cmd.Context(), c); err != nil {
					return err
				}
			}
			if a.json && dryRun {
				return a.printJSON(struct {
					lab.ApplyResult
					Machine []string `json:"machine"`
				}{result, append([]string{}, machine...)})
			}
			if a.json {
				return a.printJSON(result)
			}
			for _, w := range append(warnings, more...) {
				a.say("%s", w)
			}
			for _, change := range result.Changes {
				a.say("%s", words.Printable(change))
			}
			for _, command := range result.Commands {
				a.say("! %s", words.Printable(command))
			}
			for _, what := range result.Remarks {
				a.say("%s", what)
			}
			verb := "made"
			if dryRun {
				verb = "to make"
			}
			a.say("%s %s; %d unchanged", words.Plural(len(result.Changes), "change"), verb, result.Same)
			if len(machine) > 0 {
				a.say("On the machine the lab is not as it was made. Apply leaves that: mend it there, or take the lab down and up again:")
			}
			for _, what := range machine {
				a.say("! %s", what)
			}
			return nil
		},
	}
	s.flags(cmd)
	may.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"only show what would change, and what on the machine is not as it was made")
	return cmd
}
