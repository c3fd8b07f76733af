package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchNew proves that what trivet bench new writes runs as it is, by options and by answers to
// its questions, where Enter takes what is proposed; that its report has the figure that it asks
// for; and that a file that exists is left as it is.
func TestBenchNew(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := filepath.Join(m.dir, "hops.yaml")
	contains(t, m.ok("bench", "new", file, "--topology", "line", "--vary", "switches=1,2", "--probe", "ping count=3", "--repeat", "2"),
		"2 combinations, 4 runs", "sudo trivet bench run "+file)
	text, err := os.ReadFile(file)
	must(t, err)
	contains(t, m.want(1, "bench", "new", file).err, "hops.yaml exists: name another file")
	if now, _ := os.ReadFile(file); string(now) != string(text) {
		t.Error("the file that existed was changed")
	}
	out := filepath.Join(m.dir, "hops.jsonl")
	m.ok("bench", "run", file, "--out", out)
	report := filepath.Join(m.dir, "report")
	m.ok("bench", "report", out, "--out", report)
	if pages, _ := filepath.Glob(report + "/*"); len(pages) == 0 {
		t.Error("there is no report")
	}

	asked := filepath.Join(m.dir, "asked.yaml")
	y := m.terminal("bench", "new", asked)
	y.sees("", "topology: ")
	y.sees("\n", "what varies")
	y.sees("\n", "probes: ")
	y.sees("ping, packets\n", "how often")
	y.sees("1\n", "asked.yaml: 3 combinations, 3 runs")
	y.ends(0)
	text, err = os.ReadFile(asked)
	must(t, err)
	contains(t, string(text), `topology: "line,${switches}"`, "switches: [1, 2, 4]", "- ping: {from: h1, to: h2}", "- packets: {from: h1, to: h2, rate: 1000}")
	m.ok("bench", "run", asked, "--quick", "--out", filepath.Join(m.dir, "asked.jsonl"))

	y = m.terminal("bench", "new", filepath.Join(m.dir, "wrong.yaml"))
	y.sees("", "topology: ")
	y.sees("lien\n", "what varies")
	y.sees("\n", "probes: ")
	y.sees("\n", "how often")
	y.sees("\n", "lien")
	y.ends(1)
	if _, err := os.Stat(filepath.Join(m.dir, "wrong.yaml")); err == nil || strings.Contains(y.String(), "panic") {
		t.Error("what is wrong was written")
	}
}
