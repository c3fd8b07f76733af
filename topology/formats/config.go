package formats

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/topology"
)

// ReadConfig reads the files with configurations, and user data, that a topology names: those below
// the directory of its own file, as the user who has asked for the topology. No link leads out of
// there. Of files that are about to be written, texts are what will be in them.
func ReadConfig(file string, t *topology.Topology, texts map[string]string) (problems topology.Problems) {
	if !slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.HasTexts() }) {
		return nil
	}
	err := asuser.Do(func() error {
		root, err := os.OpenRoot(filepath.Dir(file))
		if err != nil {
			return err
		}
		defer root.Close()
		problems = t.ReadConfig(func(name string) ([]byte, error) {
			if text, ok := texts[name]; ok {
				return []byte(text), nil
			}
			return ReadBelow(root, name)
		})
		return nil
	})
	if err != nil {
		problems.Add(t.Pos, "", "config: %s", err)
	}
	return problems
}

// ReadBelow reads a file below a topology's directory, as a whole. Its errors do not name the file.
func ReadBelow(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("no such file")
	}
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, topology.MaxConfigFile+1))
	if err == nil && len(text) > topology.MaxConfigFile {
		err = errors.New("is larger than 1 MiB, which no configuration needs")
	}
	return text, err
}
