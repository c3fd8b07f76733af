// Package rundir determines where labs keep their state, and names derived from that.
package rundir

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
)

// Default is the directory of labs' state unless TRIVET_RUN_DIR is set.
const Default = "/run/trivet"

// Dir returns the directory of labs' state and sockets. It need not survive a reboot.
func Dir() string {
	if dir := os.Getenv("TRIVET_RUN_DIR"); dir != "" {
		return dir
	}
	return Default
}

// Named returns a lab's machine-wide name, for cgroups and the firewall: the lab's name and, if its
// state is not in the default directory, a mark of that directory, because labs of different
// directories may have the same name. No lab can have such a name, and it does not depend on the
// directory's contents.
func Named(lab string) string {
	dir := resolved(Dir())
	if dir == resolved(Default) {
		return lab
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("%s@%08x", lab, h.Sum32())
}

// resolved returns a directory without symbolic links: /var/run may link to /run, or the other way
// round.
func resolved(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(parent, filepath.Base(dir))
	}
	return dir
}
