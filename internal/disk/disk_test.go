package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFull proves that a full disk is distinguished from one that is not, and from one that does
// not count blocks.
func TestFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("trivet", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := Full(dir); err != nil {
		t.Error("empty: ", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := Full(dir); !errors.Is(err, unix.ENOSPC) {
		t.Error("full: ", err)
	}
	if err := Full("/proc"); err != nil {
		t.Error("of no size: ", err)
	}
}
