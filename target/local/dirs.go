package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/topology"
)

// makeSources makes the machine's directories that nodes are shown, unless they exist. It records
// which ones it makes, so that the last lab that uses them removes them.
func (l *Lab) makeSources(nodes []*topology.Node) error {
	var dirs []string
	for _, n := range nodes {
		for _, d := range n.Dirs {
			if d.Source != "" && !slices.Contains(l.Record.Dirs, d.Source) {
				l.Record.Dirs = append(l.Record.Dirs, d.Source)
				dirs = append(dirs, d.Source)
			}
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	others := otherRecords(l.Dir)
	for _, path := range dirs {
		var made []string
		for at := filepath.Clean(path); at != filepath.Dir(at); at = filepath.Dir(at) {
			_, err := os.Lstat(at)
			of := func(r Record) bool { return slices.Contains(r.Made, at) }
			if (os.IsNotExist(err) || slices.ContainsFunc(others, of)) && !slices.Contains(l.Record.Made, at) {
				made = append([]string{at}, made...)
			}
		}
		l.Record.Made = append(l.Record.Made, made...)
	}
	if err := l.saveRecord(); err != nil {
		return err
	}
	for _, path := range dirs {
		if _, err := os.Stat(path); err == nil { // a file can be shown as well
			continue
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("dirs: %w", err)
		}
	}
	return nil
}

// removeDirs removes the directories that were made for a lab, unless something is in them or
// another lab uses them.
func removeDirs(_, dir string) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	others := otherRecords(dir)
	for _, path := range slices.Backward(r.Made) {
		if !slices.ContainsFunc(others, func(o Record) bool { return slices.Contains(o.Made, path) }) {
			_ = os.Remove(path)
		}
	}
	return nil
}

// otherRecords returns the records of all labs except the one in a directory.
func otherRecords(dir string) (out []Record) {
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", "local.json"))
	for _, file := range dirs {
		if other := filepath.Dir(file); other != dir {
			if r, err := readRecord(other); err == nil {
				out = append(out, r)
			}
		}
	}
	return out
}
