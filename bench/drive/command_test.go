package drive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnMachine proves that a command on the machine knows the lab, and finds programs beside the
// one that runs the experiment, after those in PATH.
func TestOnMachine(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said, err := onMachine(t.Context(), `echo "$TRIVET_LAB $PATH"`, "mine")
	if want := "mine " + os.Getenv("PATH") + ":" + filepath.Dir(exe); err != nil || strings.TrimSpace(string(said)) != want {
		t.Errorf("%q, %v, want %q", said, err, want)
	}
}
