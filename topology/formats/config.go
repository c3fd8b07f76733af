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

// Beside is the content and the permissions of a file next to a topology's file.
type Beside struct {
	Text string
	Mode uint32
}

// ReadConfig reads the files that a topology names: configurations, user data, and files that are
// given to nodes. They must be below the directory of the topology's own file, and are read as the
// user who asked for the topology. Symbolic links that lead out of the directory are not followed.
// The topology's own file is refused: what is saved from a node would replace the topology. For
// files that are about to be written, texts has their future contents.
func ReadConfig(file string, t *topology.Topology, texts map[string]Beside) (problems topology.Problems) {
	if !slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.HasTexts() }) {
		return nil
	}
	err := asuser.Do(func() error {
		root, err := os.OpenRoot(filepath.Dir(file))
		if err != nil {
			return err
		}
		defer root.Close()
		self, _ := os.Stat(file) // none yet: nothing is it
		problems = t.ReadConfig(func(name string) ([]byte, uint32, error) {
			if is, err := root.Stat(name); filepath.Clean(name) == filepath.Base(file) ||
				err == nil && self != nil && os.SameFile(is, self) {
				return nil, 0, errors.New("is the topology's own file")
			}
			if b, ok := texts[name]; ok {
				return []byte(b.Text), b.Mode, nil
			}
			return readBelow(root, name)
		})
		return nil
	})
	if err != nil {
		problems.Add(t.Pos, "", "the files that it names: %s", err)
	}
	return problems
}

// ReadBelow reads a file below a topology's directory, as a whole. Its errors do not name the file.
func ReadBelow(root *os.Root, name string) ([]byte, error) {
	text, _, err := readBelow(root, name)
	return text, err
}

// readBelow also returns the file's permissions.
func readBelow(root *os.Root, name string) (text []byte, mode uint32, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, errors.New("no such file")
	}
	if err != nil {
		return nil, 0, errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, errors.New("is not a regular file")
	}
	text, err = io.ReadAll(io.LimitReader(f, topology.MaxConfigFile+1))
	if err == nil && len(text) > topology.MaxConfigFile {
		err = errors.New("is larger than 1 MiB, which none needs")
	}
	return text, uint32(info.Mode().Perm()), err
}
