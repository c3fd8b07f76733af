package guest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReserve proves that what a guest prints while it boots has room in its log, which appears
// empty, though the disk is full meanwhile; and that a disk that is full already is said to be.
func TestReserve(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("trivet", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	file := filepath.Join(dir, consoleLog)
	if err := reserve(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 0 {
		t.Fatal(info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	log, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for n := 0; n < firstWords; n += 1 << 10 {
		if _, err := log.Write(make([]byte, 1<<10)); err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	if err := reserve(filepath.Join(dir, "another")); !errors.Is(err, unix.ENOSPC) {
		t.Error("on a full disk: ", err)
	}
}
