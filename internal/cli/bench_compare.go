package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/page"
	"trivet.dev/trivet/bench/result"
)

// benchComparison holds the flags of `trivet bench compare`.
type benchComparison struct {
	report.CompareOptions
	levels  []string
	margins []string

	html, latex, csv string // files to write
}

func (a *app) benchCompare() *cobra.Command {
	var b benchComparison
	cmd := &cobra.Command{
		Use:   "compare A [B]",
		Short: "Compare two results, or two levels of a factor in one",
		Long: "Compare two results (an emulation and a prototype), or two levels of a factor in one (two datapaths): averages,\n" +
			"deviations, variances and the gap for each metric and cell; Welch's t test and the Mann–Whitney test, or, for paired\n" +
			"experiments, the paired t test and the Wilcoxon signed-rank test; effect sizes; and, with a margin, an equivalence\n" +
			"test. Seeing no difference does not show that there is none: equivalence, within the margin, has to be shown. The\n" +
			"comparison is printed, or written as a page, as LaTeX tables (booktabs) and as CSV.",
		Example: "  trivet bench compare emulation.jsonl prototype.jsonl --margin 5%\n" +
			"  trivet bench compare figure-16.jsonl --factor datapath --levels embedded,ovs --margin throughput=5% --margin rtt=20us\n" +
			"  trivet bench compare emulation.jsonl prototype.jsonl --html gap.html --latex gap.tex --csv gap.csv",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error { return a.runBenchCompare(b, args) },
	}
	f := cmd.Flags()
	f.StringVar(&b.Factor, "factor", "", "compare levels of this factor, in one result")
	f.StringSliceVar(&b.levels, "levels", nil,
		"the two levels: embedded,ovs (default: the factor's, if it has just two)")
	f.StringArrayVar(&b.margins, "margin", nil,
		"the largest difference that does not matter: 5% of B, 0.2ms, rtt=0.2ms, loss=0.1pp")
	f.StringVar(&b.Metric, "metric", "", "only this metric, or one of the machine's, such as usage.busy")
	f.StringVar(&b.Probe, "probe", "", "only this probe")
	f.StringVar(&b.html, "html", "", "write a page with figures, tables, verdicts and both environments to this file")
	f.StringVar(&b.latex, "latex", "", "write the tables for LaTeX to this file")
	f.StringVar(&b.csv, "csv", "", "write CSV, a line for each metric and cell, to this file")
	f.StringVar(&b.Each, "each", "",
		"which single value stands for a repetition that has several: mean, median, min, max, p95 and so on")
	return cmd
}

func (a *app) runBenchCompare(b benchComparison, args []string) error {
	var err error
	if b.Margins, err = report.ParseMargins(b.margins); err != nil {
		return err
	}
	if b.A, err = result.ReadFile(args[0]); err != nil {
		return err
	}
	switch {
	case len(args) == 2 && (b.Factor != "" || b.levels != nil):
		return errors.New("--factor and --levels are for one result; give one, or leave them out")
	case len(args) == 2:
		if b.B, err = result.ReadFile(args[1]); errors.Is(err, os.ErrNotExist) && b.factor(args[1]) >= 0 {
			return fmt.Errorf("%s is a factor of %s; to compare its levels:  trivet bench compare %s --factor %s",
				args[1], args[0], args[0], args[1])
		}
		if err != nil {
			return err
		}
		b.Names = b.sides(args)
	case b.Factor == "":
		return errors.New("name a second result, or a factor of this one: --factor datapath --levels embedded,ovs")
	default:
		if err := b.twoLevels(); err != nil {
			return err
		}
	}
	c, err := report.Compare(b.CompareOptions)
	if err != nil {
		return err
	}
	files, err := b.write(c, args)
	if err != nil {
		return err
	}
	switch {
	case a.json:
		return a.printJSON(c)
	case len(files) > 0:
		a.say("%s; in %s", c.Summary(), strings.Join(files, ", "))
		return nil
	}
	return a.plainly(c.WriteText)
}

// sides returns the names of two results: their files' names or, if these are equal, their places
// or paths.
func (b *benchComparison) sides(args []string) [2]string {
	names := [2]string{baseName(args[0]), baseName(args[1])}
	if names[0] != names[1] {
		return names
	}
	x, y := b.A.Header.Environment.Place, b.B.Header.Environment.Place
	if x != nil && y != nil && x.Name() != y.Name() {
		return [2]string{x.Name(), y.Name()}
	}
	return [2]string{args[0], args[1]}
}

// write writes the requested files, and returns their names.
func (b *benchComparison) write(c *report.Comparison, paths []string) (files []string, err error) {
	asPage := func(to io.Writer) error {
		reports := []*report.Report{report.Build(paths[0], b.A)}
		if b.B != nil {
			reports = append(reports, report.Build(paths[1], b.B))
		}
		return page.WriteComparison(to, c, reports...)
	}
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{b.html, asPage},
		{b.latex, c.LaTeX},
		{b.csv, c.CSV},
	} {
		if f.path == "" {
			continue
		}
		if err := writeFile(f.path, f.write); err != nil {
			return nil, err
		}
		files = append(files, f.path)
	}
	return files, nil
}

// factor returns the index of a factor among those of the first result, or -1.
func (b *benchComparison) factor(name string) int {
	return slices.IndexFunc(b.A.Header.Experiment.Factors, func(f result.Factor) bool { return f.Name == name })
}

// twoLevels uses the given levels, or the factor's own.
func (b *benchComparison) twoLevels() error {
	levels := b.levels
	if levels == nil {
		if i := b.factor(b.Factor); i >= 0 {
			levels = b.A.Header.Experiment.Factors[i].Levels
		}
		if len(levels) == 0 {
			levels = []string{"", ""} // Compare lists the factors
		}
	}
	if len(levels) != 2 {
		return fmt.Errorf("--levels takes two levels of %s: --levels embedded,ovs", report.Clean(b.Factor))
	}
	b.Names = [2]string{levels[0], levels[1]}
	return nil
}
