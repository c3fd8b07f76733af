package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchExplain proves that every experiment here is explained by what is in its file: each
// figure's note, each trend and each factor is said, in lines that fit a terminal, and in JSON; and
// that a file which is no experiment is refused.
func TestBenchExplain(t *testing.T) {
	files, err := filepath.Glob("../../experiments/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "\nprobes:") {
			continue // a topology
		}
		n++
		text, err := command(t, "bench", "explain", file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for line := range strings.Lines(text) {
			if len([]rune(line)) > 101 {
				t.Errorf("%s: a long line: %q", file, line)
			}
		}
		machine, err := command(t, "bench", "explain", file, "--json")
		var e explained
		if err := json.Unmarshal([]byte(machine), &e); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(strings.Fields(text), " ")
		want := append([]string{e.Title, e.Source, e.Note, e.Full.String()}, e.Trends...)
		for _, s := range e.Shown {
			want = append(want, s.Title, s.Note)
		}
		for _, f := range e.Factors {
			want = append(want, f.Name+": "+strings.Join(f.Levels, ", "))
		}
		for _, w := range want {
			if !strings.Contains(said, strings.Join(strings.Fields(w), " ")) {
				t.Errorf("%s: %q is missing in %s", file, w, text)
			}
		}
		if err != nil || e.Full.Runs == 0 || len(e.Shown) == 0 {
			t.Errorf("%s: %v, %+v", file, err, e)
		}
	}
	if n < 15 {
		t.Errorf("%d experiments are explained", n)
	}
	if out, err := command(t, "bench", "explain", "../../examples/campus.yaml"); err == nil {
		t.Errorf("a topology is explained: %s", out)
	}
}
