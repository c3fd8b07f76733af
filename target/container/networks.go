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
	if to, err := os.Readlink(name); err == nil { // of a lab that was there, or that is
		if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
			return nil
		}
		_ = os.Remove(name)
	}
	if err := os.Symlink(k.Network(n), name); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("name the network: %w", err)
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
	return os.Remove(name)
}

// forgetNetworks removes those of a lab in a directory.
func forgetNetworks(dir string) error {
	entries, err := os.ReadDir(networks)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		name := filepath.Join(networks, e.Name())
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, dir+"/") {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}
