// Package dirlock locks directories that processes make when they first need them and remove when they are the last. The lock
// (flock(2)) is on the directory itself, so that it leaves nothing; it ends when its file is closed, at the latest with its process.
package dirlock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock locks a directory that is there, in one of the ways of flock(2): LOCK_EX or LOCK_SH, and LOCK_NB so as not to wait, where
// the error is EWOULDBLOCK if somebody has it. While it is held, the directory is the one of that name, unless who holds it removes it;
// a directory that was removed while this waited is not there (ENOENT).
func Lock(dir string, how int) (*os.File, error) {
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

// maxTries is more often than others can remove a directory just after it was made.
const maxTries = 1000

// Make locks a directory for one's own, and makes it where it is not there.
func Make(dir string) (*os.File, error) {
	for try := 1; ; try++ {
		made := os.MkdirAll(dir, 0o755) // which may fail in either way where somebody removes the directory, or one above it
		if made != nil && (try == maxTries || !errors.Is(made, os.ErrNotExist) && !errors.Is(made, os.ErrExist)) {
			return nil, made
		}
		if f, err := Lock(dir, unix.LOCK_EX); try == maxTries || !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
}

// Remove removes a directory where nothing is in it, and nobody is about to put something there.
func Remove(dir string) {
	if f, err := Lock(dir, unix.LOCK_EX); err == nil {
		_ = os.Remove(dir)
		f.Close()
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
