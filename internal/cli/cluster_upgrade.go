package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
)

func (a *app) clusterUpgrade() *cobra.Command {
	cmd := &cobra.Command{
		Use: "upgrade [MEMBER…]", Short: "Have the members of a lab's cluster run another version, one after the other",
		Long: "Have the members of a lab's cluster run another program, one after the other: the others take over what it has, it ends,\n" +
			"is started with the new program by the same name, and has its switches back. The next one begins when that one is alive and\n" +
			"connected to all switches, each of which has a master. No switch is without one, unless the cluster has a single member.\n\n" +
			"What fails stops it: the member that was begun goes back to the program it had, and the message says what is upgraded and\n" +
			"what is not. After Ctrl-C the lab's daemon finishes that member, and begins no other. The program is read with the rights of\n" +
			"the lab's owner, and runs as that user, for root as nobody. It is not copied: leave it where it is while the lab is up.\n\n" +
			"Members that no lab has started (trivet controller --member) are upgraded where they run, one after the other: end one with\n" +
			"SIGTERM or Ctrl-C, on which the others take over what it has; start the new version by the same name; and wait until\n" +
			"trivet cluster status shows it alive and connected to all switches.",
		Example: "  trivet cluster upgrade\n  trivet cluster upgrade --program ./trivet-new c2",
	}
	from := cmd.Flags().String("program", "", "the new program (default: this one)")
	k := controllerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if k.address != "" {
			return errors.New("--api: members that no lab has started are upgraded where they run, one after the other: end one with SIGTERM, start the new version by the same name, " +
				"and wait until  trivet cluster status --api …  shows it alive and connected to all switches")
		}
		var err error
		program := *from
		if program == "" {
			program, err = os.Executable()
		} else {
			program, err = filepath.Abs(program)
		}
		if err != nil {
			return err
		}
		c, _, err := a.client()
		if err != nil {
			return err
		}
		steps := []lab.UpgradeStep{}
		err = c.Upgrade(cmd.Context(), lab.UpgradeRequest{Program: program, Members: args}, func(s lab.UpgradeStep) {
			if steps = append(steps, s); !a.json {
				a.sayUpgrade(s)
			}
		})
		if cmd.Context().Err() != nil {
			err = errors.New("interrupted: the lab's daemon finishes the member that was begun, and begins no other  (trivet cluster status shows who runs what)")
		}
		if a.json {
			err = errors.Join(a.printJSON(steps), err)
		}
		return err
	}
	return cmd
}

// sayUpgrade prints a step of a member's upgrade. The reason of a failure is in the error at the
// end.
func (a *app) sayUpgrade(s lab.UpgradeStep) {
	switch s.What {
	case lab.UpgradeBegun:
		a.say("%s  %s → %s  hands over %d switches", s.Member, s.From, s.To, s.Switches)
	case lab.UpgradeDone:
		kept := ""
		if s.Away > 0 {
			kept = fmt.Sprintf("; others have kept %d of its switches", s.Away)
		}
		a.say("%s  runs %s after %.1f s%s", s.Member, s.To, s.Seconds, kept)
	case lab.UpgradeBack:
		a.say("%s  is back at %s after %.1f s", s.Member, s.From, s.Seconds)
	case lab.UpgradeLost:
		a.say("%s  works with neither program", s.Member)
	}
}
