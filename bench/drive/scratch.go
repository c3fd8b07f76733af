package drive

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// scratchOf is where the probes of a lab keep files while they run, on this machine. No lab has
// such a name.
func scratchOf(name string) string { return filepath.Join(lab.RunDir(), ".scratch-"+name) }

// clearScratch removes what is left of labs whose names match a pattern.
func clearScratch(pattern string) error {
	var errs []error
	left, err := filepath.Glob(scratchOf(pattern))
	for _, dir := range left {
		errs = append(errs, os.RemoveAll(dir))
	}
	if len(left) > 0 {
		dirlock.Remove(lab.RunDir()) // as the last lab does: only where nothing else is in it
	}
	return errors.Join(append(errs, err)...)
}

// scratch makes a directory for files of the probe, which removes it. What is left goes with the
// lab, or by Driver.Clean.
func (b *bed) scratch() (string, error) {
	run, err := dirlock.Make(context.Background(), lab.RunDir()) // others may just remove it
	if err != nil {
		return "", err
	}
	defer run.Close()
	dir := scratchOf(b.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "")
}

// scratchAt is the directory of a probe's files as a node sees it: what scratch has made, or, at
// another machine, one in the directory of the lab's part there, with which it goes.
func (b *bed) scratchAt(node, dir string) string {
	n := b.topology.Node(node)
	if n == nil || n.Sited() == topology.Head || b.cell.Lab.Options["target"] != onSites {
		return dir
	}
	return filepath.Join(lab.Dir(sites.PartName(b.name, n.Sited())), "scratch-"+filepath.Base(dir))
}
