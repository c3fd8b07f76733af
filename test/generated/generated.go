// Package generated is how tests find that compiled files, which are kept with the code, are those
// of their sources.
package generated

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Check fails a test if a file of a directory has changed since go generate wrote the directory's
// list of digests, generated.sha256, or if a file of one of the patterns is not in that list.
func Check(t *testing.T, dir string, patterns ...string) {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(dir, "generated.sha256"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = true
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if now := sha256.Sum256(b); hex.EncodeToString(now[:]) != sum {
			t.Errorf("%s has changed since all was compiled: make generate", name)
		}
	}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(files) == 0 {
			t.Errorf("there is no file like %s", pattern)
		}
		for _, file := range files {
			if name := filepath.Base(file); !listed[name] {
				t.Errorf("%s is not among what was compiled, or compiled from: make generate", name)
			}
		}
	}
}
