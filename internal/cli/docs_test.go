package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
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

// TestFence proves that indented text is kept as it is, including its empty lines.
func TestFence(t *testing.T) {
	const text = "Words.\n\n  code\n\n  code\n\nWords,\nwords:\n\tcode"
	const want = "Words.\n\n```\n  code\n\n  code\n```\n\nWords,\nwords:\n```\n\tcode\n```"
	if got := fence(text); got != want {
		t.Errorf("%s", got)
	}
}
