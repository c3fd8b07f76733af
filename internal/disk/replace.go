package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Replace replaces a file atomically: a reader sees the old or the new one. Only root and a group
// (0: root alone) may read it.
func Replace(file string, content []byte, group int) error {
	err := writeNew(file+".new", content, group)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		_ = os.Remove(file + ".new") // half a file takes room on a full disk
	}
	return err
}

// writeNew writes a file that a group can read, replacing anything of that name.
func writeNew(name string, content []byte, group int) error {
	_ = os.Remove(name) // left by a process that was killed
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if group != 0 {
		err = errors.Join(err, f.Chown(0, group), f.Chmod(0o640))
	}
	return errors.Join(err, f.Close())
}
