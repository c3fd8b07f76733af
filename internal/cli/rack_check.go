package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// rackCheck finds problems of a rack.
func (a *app) rackCheck() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "check RACK.yaml [DEVICE...]", Short: "Find what is wrong with a rack, and say what to do about it",
		Args: cobra.MinimumNArgs(1),
		Long: "Looks at every device from within, over SSH, and from the gateway's inner interface: who answers, who has which VLAN,\n" +
			"and who else gives out addresses. It changes nothing, and may run while labs are up. Exits with 1 if something is wrong.",
		Example: "  sudo trivet rack check rack.yaml\n  sudo trivet rack check rack.yaml pi-3 --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, devices, err := rackOf(args)
			if err != nil {
				return err
			}
			found, err := sites.CheckRack(cmd.Context(), list, devices, lab.Owner())
			if err != nil {
				return err
			}
			checked := checkedOf(found)
			if a.json {
				if err := a.printJSON(checked); err != nil {
					return err
				}
			} else {
				a.showChecked(checked, all)
			}
			if slices.ContainsFunc(checked, func(m checkedMachine) bool { return m.wrong() > 0 }) {
				return exitCode(exitError)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show what is fine, too")
	return cmd
}

// rackOf reads a rack's file, and returns the devices named by the arguments, or all.
func rackOf(args []string) (*site.List, []*site.Machine, error) {
	list, err := site.Read(args[0])
	if err == nil {
		err = list.There()
	}
	if err != nil || len(args) == 1 {
		if err != nil {
			return nil, nil, err
		}
		return list, list.Machines, nil
	}
	var devices []*site.Machine
	for _, name := range args[1:] {
		m := list.Machine(name)
		if m == nil {
			var known []string
			for _, m := range list.Machines {
				known = append(known, m.Name)
			}
			return nil, nil, topology.Mistaken(words.Choose(known), "%s has no device %s", args[0], name)
		}
		if !slices.Contains(devices, m) {
			devices = append(devices, m)
		}
	}
	return list, devices, nil
}

// checkedMachine is a machine of a rack with all findings.
type checkedMachine struct {
	Name     string    `json:"name"`
	Machine  string    `json:"machine"` // for SSH; empty: this one
	Model    string    `json:"model,omitempty"`
	MAC      string    `json:"mac,omitempty"`
	Lab      string    `json:"lab,omitempty"` // of which it is a host now
	Findings []finding `json:"findings"`
}

// wrong counts errors, without findings that only affect speed or accuracy.
func (m checkedMachine) wrong() (n int) {
	for _, f := range m.Findings {
		if f.Needed && !f.OK && !f.Unknown {
			n++
		}
	}
	return n
}

func checkedOf(found *sites.Checked) []checkedMachine {
	out := []checkedMachine{{Name: "gateway", Findings: warning(found.Gateway)}}
	for _, d := range found.Devices {
		m := checkedMachine{Name: d.Name, Machine: d.Machine.String(), Findings: warning(d.Rack)}
		if d.Err != nil || !d.Configured() {
			m.Findings = warning(append(siteFindings(d.Examined), d.Rack...))
		}
		if d.Health != nil {
			m.Model, m.MAC, m.Lab = d.Health.Model, d.Health.MAC, d.Health.Lab
		}
		out = append(out, m)
	}
	return out
}

// warning turns findings about what a machine lacks, and can do without, into warnings.
func warning(findings []finding) []finding {
	for i, f := range findings {
		findings[i].Warns = !f.OK && !f.Unknown
	}
	return findings
}

// showChecked shows the problems of all machines in one table; for machines without problems it
// shows only how much was checked, unless all is set.
func (a *app) showChecked(checked []checkedMachine, all bool) {
	rows := [][]string{{"", "MACHINE", "WHAT", "FOUND"}}
	wrong, warned := 0, 0
	for _, m := range checked {
		name, fine := m.Name, 0
		put := func(finding [][]string) {
			for _, r := range finding {
				rows = append(rows, slices.Insert(r, 1, name))
				name = ""
			}
		}
		wrong += m.wrong()
		for _, f := range m.Findings {
			if f.OK && !f.Unknown {
				fine++
			} else if !f.OK && !f.Needed {
				warned++
			}
			if all || !f.OK && !f.Unknown {
				put(a.findingRows(f))
			}
		}
		if !all && name != "" {
			says := words.Plural(fine, "thing") + " looked at"
			if m.Lab != "" {
				says += "; a host of lab " + m.Lab
			}
			put([][]string{{a.paint(green, "ok"), "", says}})
		}
	}
	a.table(rows)
	summary := fmt.Sprintf("%s wrong, %s", words.Plural(wrong, "thing"), words.Plural(warned, "warning"))
	if !all {
		summary += "; --all shows what is fine, too"
	}
	a.say("%s", summary)
}
