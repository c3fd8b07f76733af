package cli

import (
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/report/draw"
	"trivet.dev/trivet/bench/report/markdown"
	"trivet.dev/trivet/bench/report/page"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
)

func (a *app) benchReport() *cobra.Command {
	var out string
	var forms, margins []string
	var text, pages, byRound bool
	var note string
	cmd := &cobra.Command{
		Use:   "report RESULT...",
		Short: "Turn results into a page of tables and figures",
		Long: "Turn results into a page for people: tables and figures with their intervals, how far to trust them, and\n" +
			"the numbers of a paper beside them (index.html, one file that needs nothing else); each figure as SVG, PNG and\n" +
			"CSV, each table for LaTeX (booktabs), and all values as CSV. Results of one experiment in two places (trivet bench run --on)\n" +
			"stand side by side, with equivalence tests (see --margin). The experiment says what is shown (docs/report.md): as it\n" +
			"was when it was measured, or, with --experiment, as its file is now.",
		Example: "  trivet bench report figure-16.jsonl\n  trivet bench report figure-16.jsonl figure-17.jsonl --out paper\n  trivet bench report figure-16.jsonl --text\n" +
			"  trivet bench report figure-16.jsonl --experiment figure-16.yaml",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			limits, err := report.ParseMargins(margins)
			if err != nil {
				return err
			}
			if note != "" && !pages {
				return errors.New("--note stands on pages of Markdown; add --markdown, or leave it out")
			}
			reports, runs, err := readReports(args, forms, limits, byRound)
			if err != nil {
				return err
			}
			if text {
				return a.reportText(reports)
			}
			w := reportWriter{dir: cmp.Or(out, reportDir(args)), several: len(reports) > 1}
			if pages {
				err = w.markdown(reports, args, note)
			} else {
				err = w.all(reports, runs)
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"page": w.page, "files": w.files})
			}
			a.warnOf(reports)
			fmt.Fprintf(a.out, "%s  (and %s beside it)\n", w.page, words.Plural(len(w.files)-1, "file"))
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "directory to write to (default: the result's name with -report)")
	cmd.Flags().StringArrayVar(&forms, "experiment", nil,
		"take the keys report and paper from this file, not from the result; may be repeated")
	_ = cmd.MarkFlagFilename("experiment", "yaml", "yml")
	cmd.Flags().StringArrayVar(&margins, "margin", nil, "between two places, the largest difference that does not matter: 5% of the second, 0.2ms, rtt=0.2ms, loss=0.1pp")
	cmd.Flags().BoolVar(&text, "text", false,
		"print the tables instead; with --json, all numbers of figures, tables and statements")
	cmd.Flags().BoolVar(&pages, "markdown", false, "write pages of Markdown with SVG instead, to be read in a repository: an index, and a page for each directory of results; pages of others that are there stay, and stay in the index")
	cmd.Flags().StringVar(&note, "note", "",
		"with --markdown, a sentence to stand on each page written: what to know of how its results were measured")
	cmd.Flags().BoolVar(&byRound, "by-round", false,
		"take the repetitions of a cell in one round of a campaign (trivet bench run --every) together, as one")
	cmd.MarkFlagsMutuallyExclusive("text", "markdown")
	return cmd
}

// readReports reads all results before anything is written. forms are experiment files whose report
// section replaces the one in the results.
func readReports(paths, forms []string, margins report.Margins,
	byRound bool) (reports []*report.Report, runs []*result.Run, err error) {
	var problems []error
	for _, path := range paths {
		run, err := result.ReadFile(path)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if run.ByRound = byRound; byRound && run.Header.Experiment.Rounds <= 0 {
			problems = append(problems,
				fmt.Errorf("%s: has no rounds; leave --by-round out (a campaign is made by trivet bench run --every)",
					path))
		}
		runs = append(runs, run)
	}
	definitions, err := readForms(forms, runs)
	problems = append(problems, err)
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	reports, both, err := report.SideBySide(runs, paths, definitions, margins)
	if err != nil {
		return nil, nil, err
	}
	if len(margins) > 0 && len(reports) == 0 {
		return nil, nil, errors.New("--margin is between places, and these are no results of one experiment in two of them (trivet bench run --on); to compare others: trivet bench compare A B")
	}
	for i, run := range runs {
		reports = append(reports, report.BuildAs(paths[i], run, definitions[run.Header.Experiment.Name]))
	}
	return reports, append(both, runs...), nil
}

// readForms reads the report sections of experiment files, by the experiments' names; there must be
// results of each experiment.
func readForms(files []string, runs []*result.Run) (map[string]*definition.Definition, error) {
	out := map[string]*definition.Definition{}
	var problems []error
	for _, file := range files {
		e, wrong := experiment.ReadFile(file, drive.Vocabulary())
		if err := wrong.Err(); err != nil {
			problems = append(problems, err)
			continue
		}
		d, wrong := definition.Read(file, []byte(e.Text))
		problems = append(problems, wrong.Err())
		if out[e.Name] = d; !slices.ContainsFunc(runs,
			func(r *result.Run) bool { return r.Header.Experiment.Name == e.Name }) {
			var names []string
			for _, r := range runs {
				names = append(names, report.Clean(r.Header.Experiment.Name))
			}
			problems = append(problems,
				fmt.Errorf("%s: is the experiment %s, but the results are of %s", file, e.Name,
					strings.Join(names, ", ")))
		}
	}
	return out, errors.Join(problems...)
}

// reportDir is in the current directory, not next to the result, which may be somewhere read-only.
func reportDir(paths []string) string {
	if len(paths) > 1 {
		return "report"
	}
	return baseName(paths[0]) + "-report"
}

func baseName(path string) string {
	base := filepath.Base(path)
	return cmp.Or(strings.TrimSuffix(base, filepath.Ext(base)), "result")
}

func (a *app) warnOf(reports []*report.Report) {
	for _, r := range reports {
		for _, p := range r.Problems {
			a.warn(r.Path+":", report.Clean(p))
		}
		for _, l := range r.LeftOut {
			a.warn(r.Path+": left out:", l)
		}
		if r.Done < r.Runs {
			fmt.Fprintf(a.err, "%s: %d of %s were done; the run was interrupted, or is not finished\n", r.Path, r.Done,
				words.Plural(r.Runs, "run"))
		}
	}
}

func (a *app) reportText(reports []*report.Report) error {
	a.warnOf(reports)
	if a.json {
		type numbers struct {
			Path    string          `json:"path"`
			Name    string          `json:"name"`
			Title   string          `json:"title"`
			Samples int             `json:"samples"`
			Figures []report.Figure `json:"figures"`
			Tables  []report.Table  `json:"tables"`
			Paper   *report.Paper   `json:"paper,omitempty"`
			Notes   []string        `json:"notes,omitempty"`

			Statements []result.Judged `json:"statements,omitempty"` // of the paper, then of the key compare
		}
		var out []numbers
		for _, r := range reports {
			out = append(out, numbers{r.Path, r.Name, r.Title, r.Samples, r.Figures, r.Tables, r.Paper, r.Notes,
				r.Judged()})
		}
		return a.printJSON(map[string]any{"results": out})
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		if err := a.plainly(r.WriteText); err != nil {
			return err
		}
	}
	return nil
}

// reportWriter writes the files of reports into a directory, replacing those of an earlier report.
type reportWriter struct {
	dir     string
	several bool
	page    string
	files   []string
	taken   map[string]bool
}

func (w *reportWriter) all(reports []*report.Report, runs []*result.Run) error {
	w.taken = map[string]bool{}
	w.page = filepath.Join(w.dir, "index.html")
	if err := w.file("index.html", func(to io.Writer) error { return page.Write(to, reports...) }); err != nil {
		return err
	}
	for i, r := range reports {
		prefix := ""
		if w.several {
			prefix = w.prefix(r.Path)
		}
		if err := w.parts(prefix, r, runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// markdown writes pages of Markdown. The last of the reports are those of the files; before them
// are reports on several results side by side.
func (w *reportWriter) markdown(reports []*report.Report, files []string, note string) error {
	w.page = filepath.Join(w.dir, markdown.Index)
	kept, err := markdown.Kept(w.dir)
	if err != nil {
		return err
	}
	var results []markdown.Result
	for i, r := range reports {
		result := markdown.Result{Report: r}
		if k := i - (len(reports) - len(files)); k >= 0 {
			data, err := os.ReadFile(files[k])
			if err != nil {
				return err
			}
			result.Bytes, result.SHA256 = int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data))
		}
		results = append(results, result)
	}
	return markdown.Write(results, note, kept, w.file)
}

// prefix distinguishes the files of several results.
func (w *reportWriter) prefix(path string) string {
	base := baseName(path)
	for n := 2; w.taken[base]; n++ {
		base = fmt.Sprintf("%s-%d", baseName(path), n)
	}
	w.taken[base] = true
	return base + "-"
}

func (w *reportWriter) parts(prefix string, r *report.Report, run *result.Run) error {
	if err := w.file(prefix+"values.csv.gz", compressed(run.CSV)); err != nil {
		return err
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		name := prefix + f.ID
		err := errors.Join(
			w.file(name+".svg", func(to io.Writer) error { return draw.SVG(to, f) }),
			w.file(name+".png", func(to io.Writer) error { return draw.PNG(to, f) }),
			w.file(name+".csv", f.CSV))
		if err != nil {
			return err
		}
	}
	for i := range r.Tables {
		if err := w.file(prefix+r.Tables[i].ID+".tex", r.Tables[i].LaTeX); err != nil {
			return err
		}
	}
	for i, c := range r.Compared {
		name := prefix + "with-" + baseName(r.Places[i+1])
		if err := errors.Join(w.file(name+".tex", c.LaTeX), w.file(name+".csv", c.CSV)); err != nil {
			return err
		}
	}
	return nil
}

func (w *reportWriter) file(name string, write func(io.Writer) error) error {
	path := filepath.Join(w.dir, name)
	if err := writeFile(path, write); err != nil {
		return err
	}
	w.files = append(w.files, path)
	return nil
}

// compressed compresses the output of write with gzip: files with one value per line shrink to
// about a tenth.
func compressed(write func(io.Writer) error) func(io.Writer) error {
	return func(to io.Writer) error {
		z := gzip.NewWriter(to)
		return errors.Join(write(z), z.Close())
	}
}

// writeFile writes a file next to its final name and moves it there once it is complete. It makes
// the directory if necessary.
func writeFile(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once the file has been moved
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
