package dirlock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMakeAndRemove proves that a process that has made and locked a directory is alone in it,
// although others keep removing it and those that wait have opened one that is gone by then: what
// each puts there stays until it takes it away.
func TestMakeAndRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "dir")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				lock, err := Make(t.Context(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(os.Mkdir(filepath.Join(dir, "one"), 0o755), os.Remove(filepath.Join(dir, "one"))); err != nil {
					t.Error(err)
				}
				RemoveMade(dir)
				lock.Close()
				Remove(dir)
			}
		})
	}
	group.Wait()
}

// TestLock proves that a lock excludes everybody except those that share it, that waiting for one
// ends with the context, that a directory in use is not removed, and that something that does not
// exist or is not a directory cannot be locked.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if _, err := Lock(dir, false); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory that is not there is locked: ", err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	own, err := Wait(t.Context(), dir, false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, shared := range []bool{false, true} {
		if _, err := Lock(dir, shared); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Error("a directory is locked twice: ", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Wait(ctx, dir, false, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error("waiting for a lock did not end with its context: ", err)
	}
	own.Close()
	first, err1 := Lock(dir, true)
	second, err2 := Lock(dir, true)
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
		if _, err := Make(t.Context(), no); err == nil {
			t.Errorf("%s is locked as a directory", no)
		}
	}
	Remove(dir)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	made := filepath.Join(dir, "made")
	lock, err := Make(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	Remove(made)
	if _, err := os.Stat(made); !errors.Is(err, os.ErrNotExist) {
		t.Error("an empty directory is not removed: ", err)
	}
}

// TestOthers proves that another user who may read a directory made by Make cannot hold up those
// who use it.
func TestOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	lock, err := Make(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	lab := filepath.Join(dir, "lab")
	if err := os.Mkdir(lab, 0o711); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{lockOf(dir), lab} {
		cmd := exec.Command("flock", "--nonblock", "--exclusive", d, "true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "denied") {
			t.Errorf("nobody locks %s: %v, %s", d, err, out)
		}
	}
}
