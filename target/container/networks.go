package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"trivet.dev/trivet/topology"
)

// networks is where ip(8) keeps network namespaces by name: ip netns exec NAME.
const networks = "/run/netns"

// nameNetwork makes the network of a container that its file names known by that name, as
// containerlab does: what is built on it (netlab, scripts that capture packets) enters the network
// that way. Whatever else has the name keeps it.
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

// stale says whether a name is a link of a lab that is gone, of those in a directory.
func stale(name, labs string) bool {
	if !leadsBelow(name, labs) {
		return false
	}
	_, err := os.Stat(name)
	return errors.Is(err, os.ErrNotExist)
}

// leadsBelow says whether a name is a link to what is, or was, below a directory.
func leadsBelow(name, dir string) bool {
	to, err := os.Readlink(name)
	return err == nil && strings.HasPrefix(filepath.Clean(to), dir+"/")
}

// removeName removes a name, which somebody else may have done at the same time.
func removeName(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// forgetNetwork removes a container's name of nameNetwork.
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

// forgetNetworks removes those of a lab in a directory.
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
