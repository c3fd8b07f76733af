// Package dirlock locks directories that processes make when they first need them and remove when
// they are the last to use them. The lock (flock(2)) is on a directory itself, so that it leaves
// nothing behind; it ends when its file is closed, at the latest with its process.
//
// Anyone who may read a directory may lock it, and so hold up everybody else. So a directory that
// Lock locks should be readable by its owner alone (0711); for a directory that all may read, Make
// and Remove lock another one in it, .lock.
package dirlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// Lock locks an existing directory exclusively or, with shared, together with others. It does not
// wait: the error is EWOULDBLOCK if somebody else holds the lock. As long as the lock is held, the
// name stays that of this directory, unless the holder itself removes it.
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

// Wait is Lock, but waits: until the context ends, and then returns its error, or so long, and then
// returns EWOULDBLOCK.
func Wait(ctx context.Context, dir string, shared bool, within time.Duration) (*os.File, error) {
	for end := time.Now().Add(within); ; {
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

// maxTries is more often than others can manage to remove a directory just after it was made.
const maxTries = 1000

// Make makes a directory, if it does not exist, and locks it exclusively.
func Make(ctx context.Context, dir string) (*os.File, error) {
	for try := 1; ; try++ {
		// Fails with ErrNotExist or ErrExist if somebody removes the directory, or one above it,
		// meanwhile.
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.Mkdir(lockOf(dir), 0o700)
		}
		if err != nil && (try == maxTries || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist)) {
			return nil, err
		}
		f, err := Wait(ctx, lockOf(dir), false, patience.DirLock.Duration())
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another command holds the lock on %s, and makes no progress", dir)
		}
		if try == maxTries || !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
}

// WaitMade waits until nobody holds Make's lock, then holds it shared.
func WaitMade(ctx context.Context, dir string, within time.Duration) (*os.File, error) {
	return Wait(ctx, lockOf(dir), true, within)
}

func lockOf(dir string) string { return filepath.Join(dir, ".lock") }

// Remove removes a directory that is empty and that nobody is about to put something into.
func Remove(dir string) {
	if f, err := Wait(context.Background(), lockOf(dir), false, patience.DirLock.Duration()); err == nil {
		RemoveMade(dir)
		f.Close()
	}
}

// RemoveMade is Remove for a caller that holds Make's lock.
func RemoveMade(dir string) {
	if list, err := os.ReadDir(dir); err == nil && len(list) == 1 {
		_ = os.Remove(lockOf(dir))
		_ = os.Remove(dir) // fails if somebody has just made the lock again
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// isStill reports whether a name still refers to an open directory.
func isStill(f *os.File, name string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(opened, named), err
}
