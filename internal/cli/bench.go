package cli

import "github.com/spf13/cobra"

func (a *app) bench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure: run experiments in labs, benchmark controllers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchNew(), a.benchRun(), a.benchList(), a.benchExplain(), a.benchReport(), a.benchCompare(),
		a.benchTune(), a.benchController(), a.profiledController())
	return cmd
}
