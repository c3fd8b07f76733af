package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
)

// Remove removes everything of a lab, whatever state it is in and whoever made it: processes,
// devices, namespaces, cgroups, limits, and finally the directory. It may be called again after an
// interruption. When it returns nil, nothing is left; lost is called for anything of the machine's
// own that could not be restored.
func Remove(name, dir string, progress lab.Stage, lost func(string)) error {
	stages := []struct {
		name string
		run  func(name, dir string) error
	}{
		{"nodes", removeNodes(func(k *Kind) func(lab, dir string) error { return k.Drain })},
		{"processes", removeProcesses},
		{"nodes", removeNodes(func(k *Kind) func(lab, dir string) error { return k.Remove })},
		{"uplinks", removeUplinks},
		{"devices", func(_, dir string) error { return removeDevices(dir, lost) }},
		{"namespaces", removeNamespaces},
		{"private directories", removeDirs},
		// On a full disk, this makes room for the next stage.
		{"files", func(_, dir string) error { return removeFiles(dir) }},
		{"limits", func(_, dir string) error { return restoreLimits(dir) }},
		{"directory", func(_, dir string) error { return os.RemoveAll(dir) }},
	}
	_ = hurry(dir) // without it this only takes longer
	var left error // of nodes; the rest is removed all the same
	for i, s := range stages {
		progress("down", i, len(stages))
		if s.name == "files" && left != nil {
			return left
		}
		err := s.run(name, dir)
		if err != nil {
			err = fmt.Errorf("remove the %s of lab %s: %w", s.name, name, err)
		}
		switch {
		case s.name == "nodes":
			left = errors.Join(left, err)
		case err != nil:
			return errors.Join(left, err)
		}
	}
	progress("down", len(stages), len(stages))
	dirlock.Remove(filepath.Dir(dir)) // the run directory, if this was the last lab
	return nil
}

// removeFiles removes the files that a later attempt does not need.
func removeFiles(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, file := range list {
		if !slices.Contains(needed, file.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, file.Name())))
		}
	}
	return errors.Join(errs...)
}

// needed are the files that record what a lab is and what it has borrowed from the machine, and its
// daemon's socket.
var needed = []string{"state.json", "owner.json", "local.json", "daemon.sock"}

func removeProcesses(name, _ string) error {
	c, err := cgroup.Find()
	if err != nil {
		return err
	}
	return c.Remove(name)
}

// removeNodes has each kind of nodes remove what it has made elsewhere; by selects Drain or Remove.
func removeNodes(by func(*Kind) func(lab, dir string) error) func(lab, dir string) error {
	return func(lab, dir string) error {
		var errs []error
		for _, k := range kinds {
			if remove := by(k); remove != nil {
				errs = append(errs, remove(lab, dir))
			}
		}
		return errors.Join(errs...)
	}
}

func readRecord(dir string) (r Record, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "local.json"))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func removeUplinks(name, dir string) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	errs := []error{removeManagement(name, r)}
	if r.Guarded {
		errs = append(errs, deleteTable(guardTable(name)))
	}
	for node, u := range r.Uplinks {
		errs = append(errs, netbatch.Delete(u.Device), deleteTable(natTable(name, node)))
	}
	return errors.Join(errs...)
}

// removeDevices returns the machine's own interfaces and deletes the lab's, all those of a
// namespace in one request. The kernel would also delete them with their namespaces, but in the
// background, after the lab is reported to be down.
func removeDevices(dir string, lost func(string)) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	if err := unplug(r.Plugged); err != nil {
		return err
	}
	files := []string{filepath.Join(dir, "ns", "fabric"), managementPath(dir)}
	nodes, err := filepath.Glob(filepath.Join(dir, "ns", "net", "*"))
	if err != nil {
		return err
	}
	files = append(files, nodes...)
	if err := sendAllHome(r, files, lost); err != nil {
		return err
	}
	return parallel.Each(files, func(file string) error {
		return inNamespaceFile(file, netbatch.DeleteGroup)
	})
}

func sendAllHome(r Record, files []string, lost func(string)) error {
	for _, x := range r.External {
		files := files
		if x.Stays {
			files = []string{machineNet}
		}
		for _, file := range files {
			if err := inNamespaceFile(file, x.sendHome); err != nil {
				return err
			}
		}
		for _, what := range x.restore() {
			lost(what)
		}
	}
	return nil
}

// inNamespaceFile runs f in the namespace that is bound to a file; it does nothing if none is.
func inNamespaceFile(file string, f func() error) error {
	return inNamespaceFiles([]string{file}, func(string) error { return f() })
}

// inNamespaceFiles does so in one after the other, on one thread, up to the first error.
func inNamespaceFiles(files []string, f func(file string) error) error {
	return inside.Namespace("", func() error {
		for _, file := range files {
			var fs unix.Statfs_t
			err := unix.Statfs(file, &fs)
			if errors.Is(err, unix.ENOENT) || err == nil && fs.Type != unix.NSFS_MAGIC {
				continue
			}
			ns, err := os.Open(file)
			if err != nil {
				return err
			}
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
			if err != nil {
				return fmt.Errorf("enter the network namespace %s: %w", file, err)
			}
			if err := f(file); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeNamespaces unmounts the one mount that holds all namespaces, however many times it is
// mounted. It tries until nothing is mounted, as the kernel's list of mounts spells paths
// differently: without symbolic links, and with spaces as \040.
func removeNamespaces(_, dir string) error {
	ns := filepath.Join(dir, "ns")
	for {
		err := unix.Unmount(ns, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", ns, err)
		}
	}
}
