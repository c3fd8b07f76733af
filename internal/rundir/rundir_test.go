package rundir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNamed proves that a lab is called as it is where its state is at the usual place, by
// whichever way that is named; that labs of one name at different places are called differently;
// and that neither a link on the way nor whether the directory is there yet makes a difference.
func TestNamed(t *testing.T) {
	for _, dir := range []string{"", "/run/trivet", "/run/trivet/", "/run/../run/trivet"} {
		t.Setenv("TRIVET_RUN_DIR", dir)
		if got := Named("lab"); got != "lab" {
			t.Errorf("with TRIVET_RUN_DIR=%s it is %s", dir, got)
		}
	}
	at := t.TempDir()
	named := func(dir string) string {
		t.Setenv("TRIVET_RUN_DIR", dir)
		return Named("lab")
	}
	if err := os.Symlink(at, filepath.Join(at, "link")); err != nil {
		t.Fatal(err)
	}
	one := named(filepath.Join(at, "one"))
	if two := named(filepath.Join(at, "two")); one == two || one == "lab" {
		t.Errorf("%s at one place, %s at another", one, two)
	}
	if err := os.Mkdir(filepath.Join(at, "one"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(at, "one"), filepath.Join(at, "link", "one"), filepath.Join(at, "x", "..", "one")} {
		if got := named(dir); got != one {
			t.Errorf("at %s it is %s, and was %s", dir, got, one)
		}
	}
}
