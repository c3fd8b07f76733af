package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
)

// Log is what trivet logs --json prints of a file.
type Log struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
}

func (a *app) logs() *cobra.Command {
	return &cobra.Command{
		Use: "logs", Short: "Show what a lab's daemon, commands, switches, controllers and routers have written", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := lab.Choose(a.lab)
			if err != nil {
				return err
			}
			logs := []Log{}
			for _, name := range slices.Concat([]string{"daemon.log", "ovs/ovsdb-server.log", "ovs/ovs-vswitchd.log"}, lab.CommandLogs(s.Name), lab.ControllerLogs(s.Name), lab.RouterLogs(s.Name)) {
				f, err := os.Open(filepath.Join(lab.Dir(s.Name), name))
				if os.IsPermission(err) {
					return fmt.Errorf("the logs of lab %s are root's:  sudo trivet logs", s.Name)
				}
				if err != nil {
					continue
				}
				logs = append(logs, Log{Name: name, Lines: []string{}})
				if !a.json {
					a.say("==> %s", name)
					_, err = io.Copy(a.out, f)
				} else if text, readErr := io.ReadAll(f); len(text) > 0 || readErr != nil {
					logs[len(logs)-1].Lines, err = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), readErr
				}
				f.Close()
				if err != nil {
					return err
				}
			}
			if a.json {
				return a.printJSON(logs)
			}
			return nil
		},
	}
}
