package dirlock

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMakeAndRemove proves that who has made and locked a directory is alone in it, although the others remove it all the time
// and those who wait for it have opened one that is gone by then: what each puts there stays until it takes it away.
func TestMakeAndRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "dir")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				lock, err := Make(dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(os.Mkdir(filepath.Join(dir, "one"), 0o755), os.Remove(filepath.Join(dir, "one")), os.Remove(dir)); err != nil {
					t.Error(err)
				}
				lock.Close()
				Remove(filepath.Dir(dir))
			}
		})
	}
	group.Wait()
}

// TestLock proves that a lock keeps out others of all kinds but those that share it, that a directory which is in use is not
// removed, and that what is not there or no directory cannot be locked.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if _, err := Lock(dir, unix.LOCK_EX); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory that is not there is locked: ", err)
	}
	own, err := Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []int{unix.LOCK_EX, unix.LOCK_SH} {
		if _, err := Lock(dir, how|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Error("a directory is locked twice: ", err)
		}
	}
	own.Close()
	first, err1 := Lock(dir, unix.LOCK_SH|unix.LOCK_NB)
	second, err2 := Lock(dir, unix.LOCK_SH|unix.LOCK_NB)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for _, no := range []string{file, dangling, filepath.Join(file, "below")} {
		if _, err := Make(no); err == nil {
			t.Errorf("%s is locked as a directory", no)
		}
	}
	Remove(dir)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	Remove(empty)
	if _, err := os.Stat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Error("an empty directory is not removed: ", err)
	}
}
