package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
)

func (a *app) down() *cobra.Command {
	var all bool
	var on, key string
	cmd := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a lab down, without a trace",
		Long: "Take a lab down: its processes, devices, namespaces, cgroups and files. It returns when they are gone.\n" +
			"It works in whatever state the lab is, also when its daemon has died or is of another version. With --on it\n" +
			"removes what a cloud has of a lab that this machine knows nothing of any more.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				return a.downAll(cmd.Context())
			}
			if len(args) == 1 {
				a.lab = args[0]
			}
			if on != "" {
				return a.releaseFound(cmd.Context(), on, a.lab, key)
			}
			s, err := lab.Choose(a.lab)
			if err != nil {
				return err
			}
			return a.takeDown(cmd.Context(), s)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "take down all labs")
	cmd.Flags().StringVar(&on, "on", "",
		"remove what a cloud has of a lab that is not here: openstack, or a file that describes it")
	cmd.Flags().StringVar(&key, "key", "", "with --on: of several labs with one name, which (trivet ls --on)")
	return cmd
}

func (a *app) downAll(ctx context.Context) error {
	labs, err := lab.List()
	if err != nil {
		return err
	}
	if len(labs) == 0 && !a.json {
		a.say("no lab is up")
	}
	var errs []error
	for _, s := range labs {
		errs = append(errs, a.takeDown(ctx, s))
	}
	return errors.Join(errs...)
}

// takeDown takes a lab down and says how long it took.
func (a *app) takeDown(ctx context.Context, s lab.State) error {
	begin := time.Now()
	view := newStages(a.out)
	view.live = view.live && !a.json
	step := view.step
	if !view.live {
		step = func(p lab.Progress) { view.note(p) }
	}
	err := s.Stop(context.WithoutCancel(ctx), step)
	if view.live {
		view.draw("")
		fmt.Fprint(a.out, "\r")
	}
	if err != nil {
		return err
	}
	if s.Sites != nil && s.Sites.Provided != nil {
		if err := a.release(ctx, s.Sites.Provided); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	if a.json {
		return a.printJSON(map[string]any{"name": s.Name, "state": "down", "seconds": took.Seconds(),
			"warnings": view.warnings})
	}
	if len(view.warnings) > 0 {
		a.say("%s  down in %s; the machine is not as it was:\n  %s", s.Name, seconds(took),
			strings.Join(view.warnings, "\n  "))
		return nil
	}
	a.say("%s  down in %s, nothing left", s.Name, seconds(took))
	return nil
}
