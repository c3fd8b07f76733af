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

// namesFiles are the files of a lab that all nodes see in /etc. A container has copies of its own,
// as scripts of images and labs write there, unless its topology gives it others.
var namesFiles = []string{"hosts", "resolv.conf"}

// namesDir has a container's copies. It is a file system of its own, as containers could fill that
// of others, and /run.
func (k *containers) namesDir(n *topology.Node) string {
	return filepath.Join(k.Dir, "ns", ".names", n.Name)
}

// ownNames is a container's copy of one of them.
func (k *containers) ownNames(n *topology.Node, file string) string {
	return filepath.Join(k.namesDir(n), file)
}

// mostNames is how much a container can write to them, in bytes, beside what they have at first.
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

// makeNames makes a directory that is a file system of a size in bytes, in place of what a process
// has left there that was killed. It goes with what else is mounted in ns, or by removeNames.
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

// removeNames removes that directory, whether or not it is mounted, or there.
func removeNames(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// NamesChanged writes a lab's file anew where it is still as it was. What a container has done to
// its own is no reason to fail: where it cannot be written, the lab's followers are told, and it
// stays as it was.
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

// rewrite gives a file another text if it has still the one that it had, or leaves it as it is. A
// container may write to it at the same time, or make it very large.
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
	if len(is) > 0 { // room for it first: the file is mounted, so that no new one can take its place
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(is))); err != nil {
			return fmt.Errorf("no room in what it can write there: %w", err)
		}
	}
	if _, err := f.WriteAt(is, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(is)))
}
