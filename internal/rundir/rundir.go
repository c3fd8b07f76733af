// Package rundir says where labs keep their state, and what else of the machine is called after
// that.
package rundir

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
)

// Default is where labs keep their state unless TRIVET_RUN_DIR says otherwise.
const Default = "/run/trivet"

// Dir is where labs keep their state and sockets. It need not survive a reboot.
func Dir() string {
	if dir := os.Getenv("TRIVET_RUN_DIR"); dir != "" {
		return dir
	}
	return Default
}

// Named is what the whole machine knows a lab by, in its cgroups and its firewall: the lab's name
// and, where its state is not at the usual place, a mark of that place, as labs of different places
// may have one name. It can be no lab's name, and does not depend on what the directory has in it.
func Named(lab string) string {
	dir := resolved(Dir())
	if dir == resolved(Default) {
		return lab
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("%s@%08x", lab, h.Sum32())
}

// resolved is a directory without links on the way: /var/run may be one to /run, or /run to
// /var/run.
func resolved(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(parent, filepath.Base(dir))
	}
	return dir
}
