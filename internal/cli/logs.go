package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
)

func (a *app) logs() *cobra.Command {
	return &cobra.Command{
		Use: "logs", Short: "Show what a lab's daemon, commands, switches, controllers and routers have written", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := lab.Choose(a.lab)
			if err != nil {
				return err
			}
			for _, name := range slices.Concat([]string{"daemon.log", "commands.log", "ovs/ovsdb-server.log", "ovs/ovs-vswitchd.log"}, lab.ControllerLogs(s.Name), lab.RouterLogs(s.Name)) {
				f, err := os.Open(filepath.Join(lab.Dir(s.Name), name))
				if os.IsPermission(err) {
					return fmt.Errorf("the logs of lab %s are root's:  sudo trivet logs", s.Name)
				}
				if err != nil {
					continue
				}
				a.say("==> %s", name)
				_, err = io.Copy(a.out, f)
				f.Close()
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
