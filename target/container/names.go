package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// namesFiles are the files of a lab that all nodes see in /etc. A container has copies of its own,
// as scripts of images and labs write there, unless its topology gives it others.
var namesFiles = []string{"hosts", "resolv.conf"}

// ownNames is a container's copy of one of them.
func (k *containers) ownNames(n *topology.Node, file string) string {
	return filepath.Join(k.namesDir(), n.Name, file)
}

// namesDir is a file system of its own, as containers could fill /run.
func (k *containers) namesDir() string { return filepath.Join(k.Dir, "ns", ".names") }

func (k *containers) makeNamesDir() error {
	dir := k.namesDir()
	if err := os.Mkdir(dir, 0o700); errors.Is(err, os.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	// It goes with what else is mounted in ns.
	if err := unix.Mount("trivet", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700,size=5%"); err != nil {
		return errors.Join(fmt.Errorf("mount %s: %w", dir, err), os.Remove(dir))
	}
	return nil
}

func (k *containers) copyNames(n *topology.Node) error {
	if err := os.MkdirAll(filepath.Join(k.namesDir(), n.Name), 0o700); err != nil {
		return err
	}
	for _, file := range namesFiles {
		text, err := os.ReadFile(k.NamesFile(file))
		if err == nil {
			err = os.WriteFile(k.ownNames(n, file), text, 0o644)
		}
		if err == nil {
			err = os.Chmod(k.ownNames(n, file), 0o644) // whatever the umask
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// NamesChanged writes a lab's file anew where it is still as it was.
func (k *containers) NamesChanged(file string, was, is []byte) error {
	var errs []error
	for _, n := range k.Topology().Nodes {
		if !n.Contained() {
			continue
		}
		own := k.ownNames(n, file)
		if info, err := os.Stat(own); err != nil || info.Size() != int64(len(was)) { // there may be much in it
			continue
		}
		if text, err := os.ReadFile(own); err == nil && bytes.Equal(text, was) {
			errs = append(errs, os.WriteFile(own, is, 0o644))
		}
	}
	return errors.Join(errs...)
}
