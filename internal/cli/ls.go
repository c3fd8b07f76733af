package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
)

// labRow is a row in the list of labs.
type labRow struct {
	Name    string     `json:"name"`
	State   lab.Status `json:"state"`
	Target  string     `json:"target"`
	Nodes   int        `json:"nodes"`
	Links   int        `json:"links"`
	Source  string     `json:"source"`
	Created time.Time  `json:"created"`
	Dead    []string   `json:"dead,omitempty"`
}

func (a *app) ls() *cobra.Command {
	var on string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the labs on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if on != "" {
				return a.listAllocations(cmd.Context(), on)
			}
			labs, err := lab.List()
			if err != nil {
				return err
			}
			rows := []labRow{}
			for _, s := range labs {
				r := labRow{Name: s.Name, State: s.Status, Target: s.Target, Source: s.Source, Created: s.Created,
					Dead: s.Dead}
				if s.Topology != nil {
					r.Nodes, r.Links = len(s.Topology.Nodes), len(s.Topology.Links)
				}
				rows = append(rows, r)
			}
			if a.json {
				return a.printJSON(rows)
			}
			others := lab.Others()
			if len(others) > 0 {
				defer a.say("labs of other users: %s; root sees all:  sudo trivet ls", strings.Join(others, ", "))
			}
			if len(rows) == 0 && len(others) > 0 {
				return nil
			}
			if len(rows) == 0 {
				a.say("no lab is up; bring one up:  sudo trivet up linear,3")
				return nil
			}
			table := [][]string{{"LAB", "STATE", "TARGET", "NODES", "LINKS", "SINCE", "FROM"}}
			for _, r := range rows {
				state := string(r.State)
				if r.State == lab.Orphaned {
					state = a.paint(red, state)
				}
				table = append(table,
					[]string{r.Name, state, r.Target, strconv.Itoa(r.Nodes), strconv.Itoa(r.Links), ago(r.Created),
						r.Source})
			}
			a.table(table)
			for _, s := range labs {
				if s.Status == lab.Orphaned {
					a.say("%s", s.Cure())
				} else if len(s.Dead) > 0 {
					a.say("in lab %s these have ended: %s; %s", s.Name, strings.Join(s.Dead, ", "),
						lab.CureDead(s.Dead))
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&on, "on", "", "list what labs take of a cloud: openstack, or a file that describes it")
	return cmd
}

// ago formats the time since t in its largest unit.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return "?"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
