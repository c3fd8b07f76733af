package cli

import "github.com/spf13/cobra"

// rack has the commands for the devices of a rack as such, whatever labs they are in.
func (a *app) rack() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rack", Short: "The devices of a rack: find, provision and check them",
		Long: "A rack is a gateway, which this is run on, and devices, each of which is a host of a lab. A file names them (rack.yaml);\n" +
			"trivet up --on rack.yaml brings labs up on them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.rackInit(), a.rackBootstrap(), a.rackProvision(), a.rackCheck(), a.rackSelftest(), a.rackUpdate(),
		a.rackReboot(), a.rackShutdown())
	return cmd
}
