// Package dirlock locks directories that processes make when they first need them and remove when
// they are the last. The lock (flock(2)) is on a directory, so that it leaves nothing; it ends when
// its file is closed, at the latest with its process.
//
// Who may read a directory may lock it, and so hold up all others. So the directory that Lock locks
// is to be readable for its owner alone (0711), and where all may look into a directory, Make and
// Remove lock another in there, .lock.
package dirlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Lock locks a directory that is there, for one's own or, with shared, along with others. It does
// not wait: the error is EWOULDBLOCK if somebody has it. While it is held, the directory is the one
// of that name, unless who holds it removes it.
func Lock(dir string, shared bool) (*os.File, error) {
	how := unix.LOCK_NB | unix.LOCK_EX
	if shared {
		how = unix.LOCK_NB | unix.LOCK_SH
	}
	for {
		f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		if err = flock(f, how); err == nil {
			var same bool
			if same, err = isStill(f, dir); same {
				return f, nil
			}
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// Wait is Lock that waits until the context ends, and then is its error, or for so long, and then
// is EWOULDBLOCK.
func Wait(ctx context.Context, dir string, shared bool, patience time.Duration) (*os.File, error) {
	for end := time.Now().Add(patience); ; {
		f, err := Lock(dir, shared)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// patience is how long Make and Remove wait for a lock, which nobody has for long.
const patience = time.Minute

// maxTries is more often than others can remove a directory just after it was made.
const maxTries = 1000

// Make locks what goes on in a directory for one's own, and makes the directory where it is not
// there.
func Make(ctx context.Context, dir string) (*os.File, error) {
	for try := 1; ; try++ {
		err := os.MkdirAll(dir, 0o755) // which may fail in either way where somebody removes the directory, or one above it
		if err == nil {
			err = os.Mkdir(lockOf(dir), 0o700)
		}
		if err != nil && (try == maxTries || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist)) {
			return nil, err
		}
		f, err := Wait(ctx, lockOf(dir), false, patience)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another command holds the lock on %s, and makes no progress", dir)
		}
		if try == maxTries || !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
}

// WaitMade waits until nobody has the lock of Make, and shares it.
func WaitMade(ctx context.Context, dir string, patience time.Duration) (*os.File, error) {
	return Wait(ctx, lockOf(dir), true, patience)
}

func lockOf(dir string) string { return filepath.Join(dir, ".lock") }

// Remove removes a directory where nothing is in it, and nobody is about to put something there.
func Remove(dir string) {
	if f, err := Wait(context.Background(), lockOf(dir), false, patience); err == nil {
		RemoveMade(dir)
		f.Close()
	}
}

// RemoveMade is Remove for who has the lock of Make.
func RemoveMade(dir string) {
	if list, err := os.ReadDir(dir); err == nil && len(list) == 1 {
		_ = os.Remove(lockOf(dir))
		_ = os.Remove(dir) // unless another has just made the lock again
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// isStill says whether a name is still that of an open directory.
func isStill(f *os.File, name string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(opened, named), err
}
