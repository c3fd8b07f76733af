package disk

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Replace replaces a file atomically: a reader sees the old or the new one. Only root and a group
// (0: root alone) may read it.
func Replace(file string, content []byte, group int) error {
	return ReplaceBy(file, group, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// ReplaceBy is Replace of a file that write writes; the file stays what it was if that fails.
func ReplaceBy(file string, group int, write func(io.Writer) error) error {
	err := writeNew(file+".new", group, write)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		_ = os.Remove(file + ".new") // half a file takes room on a full disk
	}
	return err
}

// writeNew writes a file that a group can read, replacing anything of that name.
func writeNew(name string, group int, write func(io.Writer) error) error {
	_ = os.Remove(name) // left by a process that was killed
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if group != 0 {
		err = errors.Join(err, f.Chown(0, group), f.Chmod(0o640))
	}
	return errors.Join(err, f.Close())
}
