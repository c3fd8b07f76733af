package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report/reporttest"
	"trivet.dev/trivet/measure/environment"
)

// command runs a command line and returns what it prints.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, said bytes.Buffer
	a := &app{out: &out, err: &said}
	root := a.root()
	root.SetArgs(args)
	err := root.Execute()
	return out.String() + said.String(), err
}

// TestBenchReport proves that a report leaves the files that it promises, for one result and for
// several of the same name; that making it again replaces them; and that nothing else is left.
func TestBenchReport(t *testing.T) {
	h, samples := reporttest.Header(), reporttest.Samples()[:60]
	h.Experiment.Text = "report: {figures: [{metric: throughput, x: hops, series: datapath}], tables: [{metric: rtt, rows: datapath, gap: [ovs, embedded]}]}"
	first, second := reporttest.Write(t, h, samples), reporttest.Write(t, h, samples)
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if out, err := command(t, "bench", "report", first, "--out", dir); err != nil || !strings.Contains(out, "index.html") {
			t.Fatalf("%s, %v", out, err)
		}
	}
	for _, name := range []string{"index.html", "figure-1.svg", "figure-1.png", "figure-1.csv", "table-1.tex", "values.csv.gz"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1+1+3+1 {
		t.Errorf("%d files: %v", len(files), files)
	}
	out, err := command(t, "bench", "report", first, second, "--out", dir, "--json")
	var made struct {
		Page  string
		Files []string
	}
	if err != nil || json.Unmarshal([]byte(out), &made) != nil || len(made.Files) != 1+2*5 || made.Files[10] != filepath.Join(dir, "figure-16-2-table-1.tex") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := command(t, "bench", "report", first, "--text"); err != nil || !strings.Contains(out, "ovs − embedded") {
		t.Errorf("%s, %v", out, err)
	}
}

// TestBenchReportMarkdown proves that pages for a repository are written where they were asked for,
// with the checksum of the result file as sha256sum has it, and the sentence given; and that text
// and pages at once, and a sentence without pages, are refused.
func TestBenchReportMarkdown(t *testing.T) {
	path, dir := reporttest.Write(t, reporttest.Header(), reporttest.Samples()[:20]), t.TempDir()
	out, err := command(t, "bench", "report", path, "--markdown", "--out", dir, "--note", "A busy machine.")
	data, errRead := os.ReadFile(path)
	pages, _ := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || errRead != nil || len(pages) != 2 || !strings.Contains(out, "README.md") {
		t.Fatal(out, err, errRead, pages)
	}
	for _, p := range pages {
		said, err := os.ReadFile(p)
		if err != nil || !strings.Contains(string(said), "A busy machine.") || filepath.Base(p) != "README.md" && !strings.Contains(string(said), fmt.Sprintf("%x", sha256.Sum256(data))) {
			t.Errorf("%s: %v\n%s", p, err, said)
		}
	}
	for _, wrong := range [][]string{{"--markdown", "--text"}, {"--note", "x", "--out", dir}} {
		if out, err := command(t, append([]string{"bench", "report", path}, wrong...)...); err == nil {
			t.Error(wrong, out)
		}
	}
}

// TestBenchReportMarkdownSideBySide proves that results of two places side by side stand on the
// page of the first, and make none of the directory in which the command runs.
func TestBenchReportMarkdownSideBySide(t *testing.T) {
	var paths []string
	for _, place := range []environment.Place{{Target: "local"}, {Target: "sites", On: "rack.yaml"}} {
		h := reporttest.Header()
		h.Environment.Place = &place
		paths = append(paths, reporttest.Write(t, h, reporttest.Samples()[:20]))
	}
	dir := t.TempDir()
	out, err := command(t, "bench", "report", paths[0], paths[1], "--markdown", "--out", dir)
	pages, _ := filepath.Glob(filepath.Join(dir, "*.md"))
	first := filepath.Base(filepath.Dir(paths[0]))
	said, errRead := os.ReadFile(filepath.Join(dir, first+".md"))
	if err != nil || errRead != nil || len(pages) != 3 || !strings.Contains(string(said), "local and rack") {
		t.Error(out, err, errRead, pages)
	}
}

// TestBenchReportNumbers proves that the numbers of a report can be had as data.
func TestBenchReportNumbers(t *testing.T) {
	out, err := command(t, "bench", "report", reporttest.Write(t, reporttest.Header(), reporttest.Samples()), "--text", "--json")
	var said struct {
		Results []struct {
			Figures []struct {
				Series []struct{ Points []struct{ Y, Low float64 } }
			}
			Tables []struct {
				Rows []struct{ Cells []struct{ Text string } }
			}
			Paper struct {
				Trends []struct{ Outcome, Why string }
			}
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &said) != nil || len(said.Results) != 1 {
		t.Fatal(err, out)
	}
	r := said.Results[0]
	if p := r.Figures[0].Series[0].Points[0]; len(r.Figures) != 5 || p.Y < 15 || p.Low < 15 || len(r.Tables) != 2 || r.Tables[0].Rows[0].Cells[2].Text != "0.06885" || r.Paper.Trends[0].Outcome != "holds" {
		t.Errorf("%+v", r)
	}
}

// TestBenchReportForm proves that a result is shown as an experiment's file now says, if one is
// given, and that the file of another experiment, or a wrong one, is refused.
func TestBenchReportForm(t *testing.T) {
	h := reporttest.Header()
	h.Experiment.Text = "report: {tables: [{title: As it was, metric: rtt}]}"
	path, dir := reporttest.Write(t, h, reporttest.Samples()[:20]), t.TempDir()
	form := func(name, rest string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("topology: linear,2\nprobes: [ping: {from: h1, to: h2}]\nreport: "+rest+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	now := form("figure-16.yaml", "{tables: [{title: As it is, metric: rtt}]}")
	if out, err := command(t, "bench", "report", path, "--text"); err != nil || !strings.Contains(out, "As it was") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := command(t, "bench", "report", path, "--text", "--experiment", now); err != nil || !strings.Contains(out, "As it is") || strings.Contains(out, "As it was") {
		t.Errorf("%s, %v", out, err)
	}
	for file, want := range map[string]string{
		form("other.yaml", "{}"):                        "is the experiment other, but the results are of figure-16",
		form("wrong.yaml", "{tables: [{colour: red}]}"): "colour: no such key",
		filepath.Join(dir, "none.yaml"):                 "no such file",
	} {
		if out, err := command(t, "bench", "report", path, "--text", "--experiment", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", file, out, err)
		}
	}
}

// TestBenchReportRefused proves that all broken results are named, with their lines, before
// anything is written.
func TestBenchReportRefused(t *testing.T) {
	dir := t.TempDir()
	broken, none := filepath.Join(dir, "broken.jsonl"), filepath.Join(dir, "none.jsonl")
	if err := os.WriteFile(broken, []byte(`{"record":"header","schema":1}`+"\n{\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := command(t, "bench", "report", broken, none, "--out", filepath.Join(dir, "out"))
	if err == nil || !strings.Contains(err.Error(), "broken.jsonl:2: ") || !strings.Contains(err.Error(), "none.jsonl") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("something was written")
	}
}

// TestBenchReportWithoutRounds proves that a result of no rounds, or of a number that cannot be,
// has a report, but none by round.
func TestBenchReportWithoutRounds(t *testing.T) {
	for _, rounds := range []int{0, -1} {
		h := reporttest.Header()
		h.Experiment.Rounds = rounds
		path := reporttest.Write(t, h, reporttest.Samples()[:20])
		if out, err := command(t, "bench", "report", path, "--text"); err != nil || strings.Contains(out, "campaign") {
			t.Errorf("%d rounds: %s, %v", rounds, out, err)
		}
		if out, err := command(t, "bench", "report", path, "--text", "--by-round"); err == nil || !strings.Contains(err.Error(), "has no rounds") {
			t.Errorf("%d rounds, by round: %s, %v", rounds, out, err)
		}
	}
}

// TestBenchCompare proves that two levels and two results are compared, in words and in JSON, and
// that the command asks for what is missing.
func TestBenchCompare(t *testing.T) {
	path := reporttest.Write(t, reporttest.Header(), reporttest.Samples())
	out, err := command(t, "bench", "compare", path, "--factor", "datapath", "--levels", "ovs,embedded", "--margin", "5%", "--metric", "rtt")
	if err != nil || !strings.Contains(out, "hops 10: differ: ovs is higher by 291.7 µs") || !strings.Contains(out, "5 comparisons: 0 equivalent, 5 different, 0 undecided") {
		t.Errorf("%s, %v", out, err)
	}
	out, err = command(t, "bench", "compare", path, path, "--json", "--margin", "throughput=10%")
	var c struct {
		Rows []struct {
			Metric, Conclusion, Words string
			Difference                float64
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &c) != nil || len(c.Rows) != 30 || c.Rows[2].Conclusion != "equivalent" || c.Rows[2].Difference != 0 {
		t.Errorf("%.500s, %v", out, err)
	}
	comparedFiles(t, path)
	for _, args := range [][]string{{path}, {path, path, "--factor", "datapath"}, {path, "--factor", "hops"}, {path, "--factor", "nothing"}, {path, path, "--margin", "x"}} {
		if out, err := command(t, append([]string{"bench", "compare"}, args...)...); err == nil {
			t.Errorf("%v gave %s", args, out)
		}
	}
	if out, err := command(t, "bench", "compare", path, "datapath"); err == nil || !strings.Contains(err.Error(), path+" --factor datapath") {
		t.Errorf("a factor in the place of a result: %s, %v", out, err)
	}
}

// comparedFiles proves that a comparison is written to the requested files, and to no others.
func comparedFiles(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new")
	html, latex, table := filepath.Join(dir, "gap.html"), filepath.Join(dir, "gap.tex"), filepath.Join(dir, "gap.csv")
	out, err := command(t, "bench", "compare", path, "--factor", "datapath", "--margin", "5%", "--html", html, "--latex", latex, "--csv", table)
	if err != nil || !strings.Contains(out, "15 comparisons: ") || !strings.Contains(out, html+", "+latex+", "+table) || strings.Contains(out, "Wilcoxon") {
		t.Errorf("%s, %v", out, err)
	}
	for file, want := range map[string]string{html: "<!DOCTYPE html>", latex: `\begin{tabular}`, table: "metric,probe,unit,factor.hops"} {
		data, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %q is not in it; %v", file, want, err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 3 {
		t.Errorf("%v", files)
	}
}
