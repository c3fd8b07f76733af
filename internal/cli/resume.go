package cli

import (
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
)

func (a *app) resume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume [LAB]",
		Short: "Resume a lab whose daemon has died",
		Long: "Resume a lab whose daemon has died: a new daemon takes over what is there. Packets never stop flowing, nodes\n" +
			"and their programs keep running, and counters go on. Shells and captures that were open are gone.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.lab = args[0]
			}
			s, err := lab.Choose(a.lab)
			if err != nil {
				return err
			}
			if err := needRoot("resume"); err != nil {
				return err
			}
			begin := time.Now()
			view := newStages(a.beside())
			_, err = lab.Resume(cmd.Context(), s.Name, view.step)
			view.end()
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(map[string]any{"name": s.Name, "state": lab.Up,
					"seconds": time.Since(begin).Seconds(), "warnings": view.warnings})
			} else {
				a.say("%s  resumed in %s", s.Name, seconds(time.Since(begin)))
			}
			if err == nil && len(view.warnings) > 0 {
				return exitCode(exitController)
			}
			return err
		},
	}
}
