package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
)

func (a *app) benchList() *cobra.Command {
	return &cobra.Command{
		Use:     "list [PROBE]",
		Short:   "List the probes of experiments, and the options of one",
		Long:    "List the probes that an experiment can have, or the options of one; the options of lab: are listed as lab.",
		Example: "  trivet bench list\n  trivet bench list iperf3",
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return probeNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.listProbe(args[0])
			}
			return a.listProbes()
		},
	}
}

func probeNames() []string {
	names := []string{"lab"}
	for _, k := range drive.Vocabulary().Probes {
		names = append(names, k.Name)
	}
	return names
}

// listed is an option in printed form.
type listed struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Words    []string `json:"words,omitempty"`
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Doc      string   `json:"doc"`
}

// listedProbe is a probe in printed form.
type listedProbe struct {
	Name    string   `json:"name"`
	Doc     string   `json:"doc"`
	Options []listed `json:"options"`
}

func listedOf(options []experiment.Option) []listed {
	out := []listed{}
	for _, o := range options {
		out = append(out, listed{o.Name, string(o.Type), o.Words, o.Default, o.Required, o.Doc})
	}
	return out
}

// vocabulary is everything that can be listed: the probes, and lab.
func vocabulary() []listedProbe {
	v := drive.Vocabulary()
	out := []listedProbe{{"lab", "How labs are brought up; links and change are described in docs/experiments.md.",
		listedOf(v.Lab)}}
	for _, k := range v.Probes {
		common := []experiment.Option{
			{Name: "name", Type: experiment.Text, Default: k.Name,
				Doc: "Name of the probe, to tell two of the same kind apart."},
			{Name: "timeout", Type: experiment.Time,
				Doc: "When to give up; by default 30 s more than twice what it should take."},
			{Name: "after", Type: experiment.Time,
				Doc: "How long after its group it begins, as when something has happened by the schedule."},
		}
		out = append(out, listedProbe{k.Name, k.Doc, listedOf(append(slices.Clone(k.Options), common...))})
	}
	return out
}

func (a *app) listProbes() error {
	all := vocabulary()
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"PROBE", "WHAT IT MEASURES", "OPTIONS"}}
	for _, p := range all[1:] {
		var names []string
		for _, o := range p.Options[:len(p.Options)-3] {
			names = append(names, o.Name)
		}
		// An empty cell at the end would break the column.
		rows = append(rows, []string{p.Name, p.Doc, cmp.Or(strings.Join(names, ", "), "–")})
	}
	a.table(rows)
	a.say("\nAll have name, timeout and after. More:  trivet bench list PROBE, and trivet bench list lab")
	return nil
}

func (a *app) listProbe(name string) error {
	all := vocabulary()
	i := slices.IndexFunc(all, func(p listedProbe) bool { return p.Name == name })
	if i < 0 {
		hint := topology.DidYouMean(name, probeNames())
		if hint == "" {
			hint = words.Choose(probeNames())
		}
		return fmt.Errorf("%s: no such probe; %s", name, hint)
	}
	if a.json {
		return a.printJSON(all[i])
	}
	a.say("%s: %s\n", all[i].Name, all[i].Doc)
	rows := [][]string{{"OPTION", "TYPE", "DEFAULT", ""}}
	for _, o := range all[i].Options {
		kind, byDefault := o.Type, o.Default
		if len(o.Words) > 0 {
			kind = strings.Join(o.Words, "|")
		}
		if o.Required {
			byDefault = "(needed)"
		}
		rows = append(rows, []string{o.Name, kind, byDefault, o.Doc})
	}
	a.table(rows)
	return nil
}
