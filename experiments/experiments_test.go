// Package experiments has the tables and figures of five papers as experiments, one file each; see
// README.md.
package experiments

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/stats"
)

// files are all experiments; topologies have no probes.
func files(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains("\n"+string(text), "\nprobes:") {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatal(len(out), err)
	}
	return out
}

// Each file is free of errors and warnings: what it measures, in full and quick, with the topology
// of every cell, and what it says of its report. All quick ones together take less than 18 minutes
// by their own estimate.
func TestFiles(t *testing.T) {
	var quick time.Duration
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) {
			e, problems := experiment.ReadFile(file, drive.Vocabulary())
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if e.Title == "" || e.Quick() == e {
				t.Error("title: or quick: is missing")
			}
			for i, e := range []*experiment.Experiment{e, e.Quick(), e.Published()} {
				p, problems := e.Plan()
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				if problems := p.Check(lab.Defaults); len(problems) > 0 {
					t.Fatal(problems)
				}
				if i == 1 && !strings.HasPrefix(file, "three-places") { // needs others' machines: no target measures it
					quick += p.Estimate
				}
			}
			d, problems := definition.Read(file, []byte(e.Text))
			if err := problems.Err(); err != nil { // it warns of labels of measurements, which it cannot know
				t.Fatal(err)
			}
			checkReport(t, e, d, !strings.ContainsAny(file[:1], "123456789"))
		})
	}
	if quick > 18*time.Minute {
		t.Errorf("all quick ones take %s", experiment.About(quick))
	}
}

// checkReport makes sure that a report speaks of levels that there are, and that its statements are
// told apart by their texts. A number without its cell would just be left out.
func checkReport(t *testing.T, e *experiment.Experiment, d *definition.Definition, own bool) {
	known := map[string][]string{"probe": nil, "family": nil, "protocol": nil, "hop": nil, "address": nil, "at": nil, "number": nil, "quantile": nil} // all but the first are labels of measurements
	p, _ := e.Plan()
	for _, c := range p.Cells {
		for _, probe := range slices.Concat(c.Groups...) {
			known["probe"] = append(known["probe"], probe.Name)
		}
	}
	for _, f := range e.Factors {
		known[f.Name] = []string{}
		for _, l := range f.Levels {
			known[f.Name] = append(known[f.Name], l.Name)
		}
	}
	dimension := func(what, name string) {
		if _, ok := known[name]; name != "" && !ok {
			t.Errorf("%s: there is no %s", what, name)
		}
	}
	source := func(what string, s definition.Source, conditions ...definition.Condition) {
		if s.Probe != "" && !slices.Contains(known["probe"], s.Probe) {
			t.Errorf("%s: there is no probe %s", what, s.Probe)
		}
		for _, c := range append(conditions, s.Where) {
			for _, l := range c {
				dimension(what, l.Dimension)
				for _, level := range l.Any {
					if levels := known[l.Dimension]; levels != nil && !slices.Contains(levels, level) {
						t.Errorf("%s: %s has no level %s", what, l.Dimension, level)
					}
				}
			}
		}
	}
	for _, f := range d.Figures {
		source("figure "+f.Title, f.Source)
		for _, name := range append([]string{f.X}, f.Series...) {
			dimension("figure "+f.Title, name)
		}
	}
	for _, x := range d.Tables {
		source("table "+x.Title, x.Source)
		for _, name := range slices.Concat(x.Rows, x.Columns) {
			dimension("table "+x.Title, name)
		}
	}
	if d.Paper == nil {
		if !own {
			t.Error("paper: is missing")
		}
		return
	}
	if d.Paper.Source == "" || d.Paper.Note == "" {
		t.Error("paper: has no source or no note")
	}
	for _, n := range d.Paper.Numbers {
		source(fmt.Sprintf("number %g", n.Value), n.Source)
	}
	stated := map[string]bool{}
	for _, x := range d.Paper.Trends {
		if stated[x.Text] {
			t.Errorf("trend %s: is there twice", x.Text)
		}
		stated[x.Text] = true
		source("trend "+x.Text, x.Source, x.Than)
		dimension("trend "+x.Text, x.Along)
	}
}

// TestTimes proves that README.md and the Makefile say how long experiments take by their own
// estimates, with all that can be installed: each, in full and quick, and all together.
func TestTimes(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	index, makefile := read("README.md"), read("../Makefile")
	var papers, quick time.Duration
	for _, file := range files(t) {
		e, _ := experiment.ReadFile(file, drive.Vocabulary())
		full, problems := e.Plan()
		least, more := e.Quick().Plan()
		if err := append(problems, more...).Err(); err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`\n.*\(` + regexp.QuoteMeta(filepath.ToSlash(file)) + `\) \|.*\|`).FindString(index)
		times := fmt.Sprintf(" | %s | %d s |", took(full.Estimate), int(math.Round(least.Estimate.Seconds())))
		if !strings.HasSuffix(line, times) {
			t.Errorf("README.md, %s: it takes%s", file, times)
		}
		if strings.ContainsAny(file[:1], "123456789") {
			papers += full.Estimate
		}
		quick += least.Estimate
	}
	hours, minutes := took(papers), took(quick)
	for what, found := range map[string]bool{
		"README.md, make papers: " + hours:         strings.Contains(index, "# all of the papers: "+hours+","),
		"README.md, make papers-quick: " + minutes: strings.Contains(index, "few levels, once: "+minutes+"\n"),
		"Makefile, papers: " + hours:               strings.Contains(makefile, "results/ ("+hours+" with"),
		"Makefile, papers-quick: " + minutes:       strings.Contains(makefile, "all experiments in "+minutes+":"),
	} {
		if !found {
			t.Error(what)
		}
	}
}

// took is a time as README.md has it.
func took(d time.Duration) string {
	if d >= 100*time.Minute {
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// README.md has a line for each experiment.
func TestIndex(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files(t) {
		if !strings.Contains(string(b), "("+filepath.ToSlash(file)+")") {
			t.Errorf("%s is not in README.md", file)
		}
	}
}

// means of the columns in paper 4, as its tables 1, 2, 4, 5, 7 and 8 have them.
var means = map[string]map[string][]float64{
	"tables-1-3": {"mininet": {2.434, 3.569, 4.666, 4.906, 4.517, 4.664, 4.727, 9.417}, "prototype": {3.279, 4.894, 5.206, 6.153, 5.651, 6.349, 7.063, 10.502}},
	"tables-4-6": {"mininet": {92.097, 92.263, 92.179, 92.143, 91.449, 91.579, 91.798, 92.248}, "prototype": {81.787, 81.953, 81.869, 81.932, 81.139, 81.269, 81.488, 81.938}},
	"tables-7-9": {"mininet": {13.357, 14.945, 32.120, 67.831, 141.856, 151.878, 166.913, 177.606}, "prototype": {14.493, 15.267, 30.397, 66.559, 137.452, 144.103, 147.725, 151.419}},
}

// Paper 4's numbers were typed in without mistakes: the means of their columns are the paper's. And
// what the note says is odd about table 5 is so: 74 of its 80 values are those of table 4 less
// 10.31.
func TestPaper4(t *testing.T) {
	sizes := []string{"64", "128", "256", "512", "1024", "2048", "4096", "8192"}
	for name, networks := range means {
		file := "4-campus-openwrt/" + name + ".yaml"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, problems := definition.Read(file, text)
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, n := range d.Paper.Numbers {
			w := n.Where
			values[w.Get("network")[0]+" "+w.Get("switch")[0]+" "+w.Get("size")[0]] = n.Value
		}
		same := 0
		for i, size := range sizes {
			for network, want := range networks {
				sum := 0.0
				for s := 1; s <= 10; s++ {
					v, ok := values[fmt.Sprintf("%s %d %s", network, s, size)]
					if !ok {
						t.Fatalf("%s: %s, switch %d, %s byte is missing", file, network, s, size)
					}
					sum += v
				}
				if math.Abs(sum/10-want[i]) > 0.00051 {
					t.Errorf("%s: the mean of %s, %s byte is %.4f, not %.3f", file, network, size, sum/10, want[i])
				}
			}
			for s := 1; s <= 10; s++ {
				if gap := values[fmt.Sprintf("mininet %d %s", s, size)] - values[fmt.Sprintf("prototype %d %s", s, size)]; math.Abs(gap-10.31) < 1e-9 {
					same++
				}
			}
		}
		if name == "tables-4-6" && same != 74 {
			t.Errorf("%d values differ by 10.31", same)
		}
	}
}

// TestSpreads proves that the deviations and variances that were typed in are those of the means
// that were typed in beside them, as far as these were rounded: so they are of what the report
// compares them with, the means of the levels, of a sample.
func TestSpreads(t *testing.T) {
	found := 0
	for _, file := range files(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, _ := definition.Read(file, text)
		if d.Paper == nil {
			continue
		}
		for _, s := range d.Paper.Spreads {
			found++
			var means []float64
			for _, n := range d.Paper.Numbers {
				at := slices.DeleteFunc(slices.Clone(n.Where), func(l definition.Level) bool { return l.Dimension == s.Over })
				if n.Metric == s.Metric && fmt.Sprint(at) == fmt.Sprint(s.Where) {
					means = append(means, n.Value)
				}
			}
			theirs, err := stats.Summarize(means, stats.Options{})
			if err != nil {
				t.Fatalf("%s: %+v: %v", file, s, err)
			}
			want := float64(theirs.Deviation)
			if s.Of == definition.Variance {
				want = float64(theirs.Variance)
			}
			if math.Abs(want-s.Value) > 0.0011+5e-5*want {
				t.Errorf("%s: %s %v: %v, of %d means typed in it is %v", file, s.Of, s.Where, s.Value, len(means), want)
			}
		}
	}
	if found < 6*2*8*2 {
		t.Errorf("%d spreads", found)
	}
}
