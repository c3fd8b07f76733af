package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Proves that a directory for sockets below /tmp, where anybody may have made it before, is taken only where it is the user's
// own and closed to others.
func TestMakeOwnDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	for range 2 { // made, and found
		if err := makeOwnDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	refuses := func(what, dir string) {
		t.Helper()
		if err := makeOwnDir(dir); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			t.Errorf("%s is taken: %v", what, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	refuses("a link to a directory", link)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	refuses("a directory that others can read", dir)
	if os.Getuid() == 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 65534, -1); err != nil {
			t.Fatal(err)
		}
		refuses("another user's directory", dir)
	}
}
