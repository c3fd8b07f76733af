package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"trivet.dev/trivet/topology"
)

// networks is the directory in which ip(8) finds network namespaces by name: ip netns exec NAME.
const networks = "/run/netns"

// nameNetwork gives the network namespace of a container a name there, if its file says so, as
// containerlab does: tools built on that (netlab, scripts that capture packets) enter the namespace
// by the name. A name that exists for something else is left alone.
func (k *containers) nameNetwork(n *topology.Node) error {
	if n.ContainerName == "" {
		return nil
	}
	if err := os.MkdirAll(networks, 0o755); err != nil {
		return err
	}
	name := filepath.Join(networks, n.ContainerName)
	if stale(name, filepath.Dir(k.Dir)) {
		_ = os.Remove(name)
	}
	if err := os.Symlink(k.Network(n), name); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("name the network: %w", err)
	}
	return nil
}

// stale says whether a name is a link to a lab that is gone; labs is the directory of all labs.
func stale(name, labs string) bool {
	if !leadsBelow(name, labs) {
		return false
	}
	_, err := os.Stat(name)
	return errors.Is(err, os.ErrNotExist)
}

// leadsBelow says whether a name is a link to a path below a directory, whether or not that still
// exists.
func leadsBelow(name, dir string) bool {
	to, err := os.Readlink(name)
	return err == nil && strings.HasPrefix(filepath.Clean(to), dir+"/")
}

// removeName removes a name, which somebody else may remove at the same time.
func removeName(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// forgetNetwork removes the name that nameNetwork has made for a container.
func (k *containers) forgetNetwork(n *topology.Node) error {
	if n.ContainerName == "" {
		return nil
	}
	name := filepath.Join(networks, n.ContainerName)
	if to, err := os.Readlink(name); err != nil || to != k.Network(n) {
		return nil
	}
	return removeName(name)
}

// forgetNetworks removes the names of a lab in a directory.
func forgetNetworks(dir string) error {
	entries, err := os.ReadDir(networks)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if name := filepath.Join(networks, e.Name()); leadsBelow(name, dir) {
			errs = append(errs, removeName(name))
		}
	}
	return errors.Join(errs...)
}
