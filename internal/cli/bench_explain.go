package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/words"
)

func (a *app) benchExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain EXPERIMENT.yaml",
		Short: "Say what an experiment measures, what was published of it, and what is different here",
		Long: "Say what an experiment measures and shows, what was published of it, and what is done differently here or not varied.\n" +
			"All of it stands in the file; nothing is run.",
		Example: "  trivet bench explain experiments/4-campus-openwrt/tables-7-9.yaml",
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error {
			e, err := explain(args[0])
			if err != nil {
				return err
			}
			return a.answer(e, "%s", e.text())
		},
	}
}

// explained is the description of an experiment.
type explained struct {
	Name    string        `json:"name"`
	Title   string        `json:"title,omitempty"`
	File    string        `json:"file"`
	Source  string        `json:"source,omitempty"` // the published results that it is compared with
	Note    string        `json:"note,omitempty"`   // differences from these
	Factors []factorLevel `json:"factors"`
	Full    extent        `json:"full"`
	Quick   *extent       `json:"quick,omitempty"`

	Published *extent `json:"as_published,omitempty"`
	Unknown   string  `json:"unpublished,omitempty"` // what the published source does not say

	Shown   []exhibit `json:"shown"`
	Numbers int       `json:"published_numbers"`
	Trends  []string  `json:"trends"`
}

type factorLevel struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
}

// extent is the size of an experiment.
type extent struct {
	Cells    int           `json:"cells"`
	Runs     int           `json:"runs"`
	Estimate time.Duration `json:"estimate_ns"`
}

// exhibit is a figure or a table, with remarks.
type exhibit struct {
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
}

func explain(file string) (*explained, error) {
	e, problems := experiment.ReadFile(file, drive.Vocabulary())
	if err := problems.Err(); err != nil {
		return nil, err
	}
	d, problems := definition.ReadFor(file, []byte(e.Text), knownOf(e))
	if err := problems.Err(); err != nil {
		return nil, err
	}
	out := &explained{Name: e.Name, Title: e.Title, File: file, Factors: []factorLevel{}, Shown: []exhibit{},
		Trends: []string{}}
	for _, f := range e.Factors {
		out.Factors = append(out.Factors, factorLevel{f.Name, e.Levels()[f.Name]})
	}
	full, err := extentOf(e)
	if err != nil {
		return nil, err
	}
	out.Full = *full
	if quick, err := extentOf(e.Quick()); err == nil && *quick != *full {
		out.Quick = quick
	}
	if e.Published() != e {
		if out.Published, err = extentOf(e.Published()); err != nil {
			return nil, err
		}
		out.Unknown = e.Unpublished()
	}
	for _, f := range d.Figures {
		out.Shown = append(out.Shown, exhibit{cmp.Or(f.Title, f.Metric), f.Note})
	}
	for _, t := range d.Tables {
		out.Shown = append(out.Shown, exhibit{cmp.Or(t.Title, t.Metric), t.Note})
	}
	if d.Paper != nil {
		out.Source, out.Note, out.Numbers = d.Paper.Source, d.Paper.Note, len(d.Paper.Numbers)
		for _, t := range d.Paper.Trends {
			text := t.Text
			if t.Needs.What != "" {
				text += " [" + string(report.NeedOf(t.Needs)) + "]"
			}
			if t.Contradicts != "" {
				text += " [" + string(report.Contradicts) + "]"
			}
			out.Trends = append(out.Trends, text)
		}
	}
	return out, nil
}

func extentOf(e *experiment.Experiment) (*extent, error) {
	p, problems := e.Plan()
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return &extent{len(p.Cells), len(p.Runs), p.Estimate}, nil
}

func (x *extent) String() string {
	return fmt.Sprintf("%s of %s, about %s", words.Plural(x.Runs, "run"), words.Plural(x.Cells, "cell"),
		experiment.About(x.Estimate))
}

// text returns the description for a terminal.
func (e *explained) text() string {
	const width = 100
	var b strings.Builder
	paragraph := func(indent int, text string) {
		fmt.Fprintln(&b, wrap(strings.Fields(text), " ", indent, width))
	}
	paragraph(0, e.Name+": "+cmp.Or(e.Title, "an experiment"))
	if e.Source != "" {
		paragraph(0, "Compared with "+e.Source)
	}
	if e.Note != "" {
		fmt.Fprintln(&b, "\nWhat was done there, and what is different here")
		paragraph(2, e.Note)
	}
	fmt.Fprintln(&b, "\nWhat is varied")
	for _, f := range e.Factors {
		paragraph(2, f.Name+": "+strings.Join(f.Levels, ", "))
	}
	paragraph(2, e.Full.String())
	if e.Quick != nil {
		paragraph(2, "with --quick "+e.Quick.String())
	}
	if e.Published != nil {
		paragraph(2, "with --as-published "+e.Published.String())
	}
	if e.Unknown != "" {
		paragraph(2, "not published, and so as here: "+e.Unknown)
	}
	if len(e.Shown) > 0 {
		fmt.Fprintln(&b, "\nWhat the report shows")
	}
	for _, s := range e.Shown {
		paragraph(2, s.Title)
		if s.Note != "" {
			paragraph(4, s.Note)
		}
	}
	if e.Numbers+len(e.Trends) > 0 {
		fmt.Fprintln(&b, "\nWhat was published, and the report compares")
	}
	if e.Numbers > 0 {
		paragraph(2, words.Plural(e.Numbers, "number"))
	}
	for _, t := range e.Trends {
		paragraph(2, t)
	}
	fmt.Fprintf(&b, "\nsudo trivet bench run %s\ntrivet bench report %s.jsonl", e.File, e.Name)
	return b.String()
}
