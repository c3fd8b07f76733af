package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// TestPages proves that docs/commands is what the program says about its commands, whatever
// TRIVET_LAB is.
func TestPages(t *testing.T) {
	t.Setenv("TRIVET_LAB", "somewhere")
	const pages = "../../docs/commands"
	dir := t.TempDir()
	root := (&app{out: io.Discard, err: io.Discard}).root()
	root.SetArgs([]string{"docs", "markdown", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadDir(dir)
	if err != nil || len(want) < 30 {
		t.Fatalf("%d pages, %v", len(want), err)
	}
	have, err := os.ReadDir(pages)
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(want) {
		t.Errorf("%s has %d pages, the program writes %d: make generate", pages, len(have), len(want))
	}
	for _, page := range want {
		now, err := os.ReadFile(filepath.Join(dir, page.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if before, err := os.ReadFile(filepath.Join(pages, page.Name())); err != nil || !bytes.Equal(before, now) {
			t.Errorf("%s is not what --help says (%v): make generate", page.Name(), err)
		}
	}
}

// TestFromOthers proves that docs/from-others.md names commands and flags that there are, and shows
// a topology that is valid.
func TestFromOthers(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-others.md")
	if err != nil {
		t.Fatal(err)
	}
	root := (&app{out: io.Discard, err: io.Discard}).root()
	said := regexp.MustCompile("`(?:sudo )?trivet ([^`]+)`").FindAllSubmatch(page, -1)
	if len(said) < 30 {
		t.Errorf("%d commands", len(said))
	}
	for _, m := range said {
		words := strings.Fields(string(m[1]))
		cmd, rest, err := root.Find(words)
		if err != nil || cmd == root {
			t.Errorf("trivet %s: %v", m[1], err)
			continue
		}
		for _, word := range rest {
			flag, isFlag := strings.CutPrefix(word, "--")
			if word == "--" || cmd.DisableFlagParsing {
				break
			}
			if isFlag && cmd.Flag(flag) == nil {
				t.Errorf("trivet %s: there is no --%s", m[1], flag)
			}
		}
	}
	text := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)[1]
	got, problems := trivet.Read("page.yaml", text)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	if _, problems = topology.Resolve(got, topology.Defaults{}); problems.Err() != nil {
		t.Error(problems)
	}
}

// TestFence proves that indented text is kept as it is, including its empty lines.
func TestFence(t *testing.T) {
	const text = "Words.\n\n  code\n\n  code\n\nWords,\nwords:\n\tcode"
	const want = "Words.\n\n```\n  code\n\n  code\n```\n\nWords,\nwords:\n```\n\tcode\n```"
	if got := fence(text); got != want {
		t.Errorf("%s", got)
	}
}
