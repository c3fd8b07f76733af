package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/lab"
)

func (a *app) benchTune() *cobra.Command {
	var isolate, ipv6, smt, governor string
	var pins map[string]string
	var restore bool
	cmd := &cobra.Command{
		Use:   "tune [--isolate 1-3] [--pin nodes=1] [--pin datapath=2] [--pin controller=3] [--smt off] [--governor performance] [--ipv6 off] | --restore",
		Short: "Quieten this machine for measuring, and undo it",
		Long: "Change the machine so that less of it disturbs measurements:\n\n" +
			"  --isolate     processors on which nothing but labs may run\n" +
			"  --pin         processors for a lab's nodes, datapath or controller; the lab must be up\n" +
			"  --smt off     one thread a core is a processor, the others are switched off (on: all are)\n" +
			"  --governor    what sets the processors' frequency: performance, or another that the machine has\n" +
			"  --ipv6 off    network devices made from now on in the machine's own namespace have no IPv6,\n" +
			"                those of Mininet's switches for instance (labs have ipv6: in their files)\n\n" +
			"The changes last until trivet bench tune --restore. Experiments make them by themselves while they run, by their keys\n" +
			"isolate, pin_nodes, pin_datapath, pin_controller, smt and governor, and undo them at the end; if one was killed,\n" +
			"the next one or --restore does.",
		Example: "  sudo trivet bench tune --isolate 1-3 --pin nodes=1 --pin datapath=2,3\n  sudo trivet bench tune --restore",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := tune.Settings{Isolate: isolate, SMT: smt, Governor: governor, Permanent: true}
			if err := tuneSettings(&s, pins, ipv6); err != nil {
				return err
			}
			switch {
			case restore && s.Any():
				return errors.New("--restore undoes all; give it alone")
			case restore:
				return a.restoreTuned()
			case !s.Any():
				return errors.New("nothing to change; give --isolate, --pin, --smt, --governor or --ipv6 off, or --restore")
			}
			return a.tune(s, len(pins) > 0)
		},
	}
	f := cmd.Flags()
	f.StringVar(&isolate, "isolate", "", "processors that only labs may use: 1-3")
	f.StringToStringVar(&pins, "pin", nil, "nodes=CPUS, datapath=CPUS or controller=CPUS")
	f.StringVar(&smt, "smt", "", "on or off")
	f.StringVar(&governor, "governor", "", "performance, powersave, …")
	f.StringVar(&ipv6, "ipv6", "", "off")
	f.BoolVar(&restore, "restore", false, "undo what was changed")
	return cmd
}

// tuneSettings reads --pin and --ipv6.
func tuneSettings(s *tune.Settings, pins map[string]string, ipv6 string) error {
	for what, cpus := range pins {
		switch what {
		case "nodes":
			s.Nodes = cpus
		case "datapath":
			s.Datapath = cpus
		case "controller":
			s.Controller = cpus
		default:
			return fmt.Errorf("--pin %s=%s: choose nodes, datapath or controller", what, cpus)
		}
	}
	switch ipv6 {
	case "off":
		s.IPv6Off = true
	case "":
	default:
		return fmt.Errorf("--ipv6 %s: write off; --restore turns IPv6 on again", ipv6)
	}
	return nil
}

func (a *app) tune(s tune.Settings, pins bool) error {
	if pins || a.lab != "" {
		state, err := lab.Choose(a.lab)
		if err != nil {
			return err
		}
		s.Lab = state.Name
	}
	if _, err := tune.Apply(s); err != nil {
		return err
	}
	fmt.Fprintln(a.out, "tuned; undo it with  trivet bench tune --restore")
	return nil
}

func (a *app) restoreTuned() error {
	what, err := tune.Restore()
	if err != nil {
		return err
	}
	if len(what) == 0 {
		fmt.Fprintln(a.out, "nothing was tuned")
		return nil
	}
	fmt.Fprintf(a.out, "undone: %s\n", strings.Join(what, ", "))
	return nil
}
