package experiments

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPapersResume proves that scripts/papers, going on within a budget, keeps none of it for an
// experiment that has results: of two that take 103 s, one is still to be made, in 120 s. The
// program is one that only estimates.
func TestPapersResume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("scripts/papers asks for root")
	}
	dir := t.TempDir()
	log, trivet, results := filepath.Join(dir, "log"), filepath.Join(dir, "trivet"), filepath.Join(dir, "results")
	for name, text := range map[string]string{
		trivet:                                 "#!/bin/sh\necho \"$*\" >>" + log + "\ncase $* in *--dry-run*) echo '\"estimate_ns\": 100000000000' ;; esac\n",
		filepath.Join(dir, "x", "a.yaml"):      "probes:\n",
		filepath.Join(dir, "x", "b.yaml"):      "probes:\n",
		filepath.Join(results, "x", "a.jsonl"): "{}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("../scripts/papers", "--resume", "--budget", "120s", filepath.Join(dir, "x"))
	cmd.Env = append(os.Environ(), "TRIVET_BINARY="+trivet, "RESULTS="+results)
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "2 experiments, about 2 min with all repetitions of those that have no results yet") {
		t.Errorf("%v: %s", err, said)
	}
	ran, _ := os.ReadFile(log)
	for _, want := range []string{"/x/a.jsonl --resume --again\n", "/x/b.jsonl --budget 103s\n"} {
		if !strings.Contains(string(ran), want) {
			t.Errorf("%q was not run:\n%s", want, ran)
		}
	}
}
