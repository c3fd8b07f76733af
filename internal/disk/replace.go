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

// ReplaceBy is Replace with the content written by write; if that fails the file is unchanged.
func ReplaceBy(file string, group int, write func(io.Writer) error) error {
	return replace(file, write, func(f *os.File) error {
		if group == 0 {
			return nil
		}
		return errors.Join(f.Chown(0, group), f.Chmod(0o640))
	})
}

// ReplaceFor is Replace for a file to be owned by a user. If this process is not root, the file
// belongs to its own user.
func ReplaceFor(uid, gid int, mode os.FileMode, file string, content []byte) error {
	return replace(file, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}, func(f *os.File) (err error) {
		if os.Geteuid() == 0 {
			err = f.Chown(uid, gid)
		}
		return errors.Join(err, f.Chmod(mode))
	})
}

// replace replaces a file by what write writes, after give has set its owner.
func replace(file string, write func(io.Writer) error, give func(*os.File) error) error {
	err := writeNew(file+".new", write, give)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		_ = os.Remove(file + ".new") // half a file takes room on a full disk
	}
	return err
}

// writeNew writes a file, replacing anything of that name.
func writeNew(name string, write func(io.Writer) error, give func(*os.File) error) error {
	_ = os.Remove(name) // left by a process that was killed
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), give(f), f.Close())
}
