package cli

import "github.com/spf13/cobra"

func (a *app) bench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure: experiments with labs, and how fast controllers are",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchRun(), a.benchList(), a.benchReport(), a.benchCompare(), a.benchTune(), a.benchController(), a.profiledController())
	return cmd
}
