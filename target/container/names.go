package container

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// namesFiles are the files of a lab that all nodes see in /etc. A container has its own copies, as
// scripts of images and labs write to them, unless its topology gives it others.
var namesFiles = []string{"hosts", "resolv.conf"}

// namesDir is the directory of a container's copies. It is a file system of its own, as containers
// could otherwise fill those of others, or /run.
func (k *containers) namesDir(n *topology.Node) string {
	return filepath.Join(k.Dir, "ns", ".names", n.Name)
}

// ownNames is a container's copy of a file.
func (k *containers) ownNames(n *topology.Node, file string) string {
	return filepath.Join(k.namesDir(n), file)
}

// mostNames is how many bytes a container can write to them beyond their initial contents.
const mostNames = 1 << 20

func (k *containers) copyNames(n *topology.Node) error {
	texts, size := map[string][]byte{}, mostNames
	for _, file := range namesFiles {
		text, err := os.ReadFile(k.NamesFile(file))
		if err != nil {
			return err
		}
		texts[file], size = text, size+len(text)
	}
	dir := k.namesDir(n)
	if err := makeNames(dir, size); err != nil {
		return err
	}
	for file, text := range texts {
		err := os.WriteFile(filepath.Join(dir, file), text, 0o644)
		if err == nil {
			err = os.Chmod(filepath.Join(dir, file), 0o644) // whatever the umask
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeNames makes a directory that is a file system of a size in bytes, and replaces what a killed
// process has left there. It is removed with the other mounts in ns, or by removeNames.
func makeNames(dir string, size int) error {
	if err := removeNames(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=700,size=%d", size)
	if err := unix.Mount("trivet", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// removeNames removes that directory, whether or not it is mounted or exists.
func removeNames(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// NamesChanged updates a container's copy of a lab's file if that is unchanged. A copy that cannot
// be written is no reason to fail: the lab's followers are told, and it stays as it is.
func (k *containers) NamesChanged(file string, was, is []byte) error {
	for _, n := range k.Topology().Nodes {
		if !n.Contained() {
			continue
		}
		if err := rewrite(k.ownNames(n, file), was, is); err != nil && !errors.Is(err, os.ErrNotExist) {
			k.Lab.Ended(fmt.Sprintf("warning: /etc/%s in %s stays as it was until it is made anew: %v", file,
				what(n), err))
		}
	}
	return nil
}

// rewrite replaces the text of a file if it is still the earlier one; otherwise it leaves the file
// alone. A container may write to the file at the same time, or make it very large.
func rewrite(name string, was, is []byte) error {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(len(was))+1))
	if err != nil || !bytes.Equal(text, was) {
		return err
	}
	if len(is) > 0 { // reserves room first: a mounted file cannot be replaced by a new one
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(is))); err != nil {
			return fmt.Errorf("no room in what it can write there: %w", err)
		}
	}
	if _, err := f.WriteAt(is, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(is)))
}
