package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is compiled comes from the sources that are here: both are as they were when
// generated.sha256 was written, which go generate does. This needs no compiler.
func TestGenerated(t *testing.T) {
	list, err := os.ReadFile("generated.sha256")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = true
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if now := sha256.Sum256(b); hex.EncodeToString(now[:]) != sum {
			t.Errorf("%s has changed since the program was compiled: make generate", name)
		}
	}
	for _, pattern := range []string{"*.c", "*.h", "*.o"} {
		files, _ := filepath.Glob(pattern)
		for _, name := range files {
			if !listed[name] {
				t.Errorf("%s is not among what the program was compiled from: make generate", name)
			}
		}
	}
}
