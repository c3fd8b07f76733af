package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
)

// journal records changes, on disk before they are made, so that another process can undo them if
// this one is killed.
type journal struct {
	file string
	// Process that will undo it; 0: it stays until trivet bench tune --restore.
	Owner   int       `json:"owner,omitempty"`
	Started uint64    `json:"owner_started,omitempty"`
	Time    time.Time `json:"time"`
	What    []string  `json:"what"` // for users
	Changes []change  `json:"changes"`
}

// change is one change: a file of the kernel that was written, a cgroup that was made, or a process
// that was moved.
type change struct {
	File   string `json:"file,omitempty"`
	Before string `json:"before,omitempty"`
	Made   string `json:"made,omitempty"` // directory
	Tidy   string `json:"tidy,omitempty"` // directory to remove if nothing else is in it by then
	// Empty is the file to which the tasks that are still in the cgroup are written before it is
	// narrowed or removed: version 1 keeps no tasks in a group without processors.
	Empty   string `json:"empty,omitempty"`
	Moved   int    `json:"moved,omitempty"` // process
	Started uint64 `json:"started,omitempty"`
	Back    string `json:"back,omitempty"` // cgroup.procs of its earlier group
}

// errTuned says that a journal exists already.
var errTuned = errors.New("the machine is tuned already")

// begin makes a journal; if a process has left one and died, the changes in that are undone first.
func begin(file string, permanent bool) (*journal, error) {
	if old, err := load(file); err == nil {
		if err := old.inForce(); err != nil {
			return nil, err
		}
		if err := old.undo(); err != nil {
			return nil, fmt.Errorf("what an earlier run left: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	j := &journal{file: file, Time: time.Now().UTC()}
	if !permanent {
		j.Owner, j.Started = os.Getpid(), process.Started(os.Getpid())
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return j, errors.Join(f.Close(), j.save())
}

// inForce returns an error if the changes are to stay, or their process still runs.
func (j *journal) inForce() error {
	if j.Owner != 0 && process.Started(j.Owner) != j.Started {
		return nil
	}
	return fmt.Errorf("%w (%s, since %s); undo it first: trivet bench tune --restore", errTuned,
		strings.Join(j.What, ", "), j.Time.Local().Format("15:04"))
}

func load(file string) (*journal, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file}
	if len(b) == 0 { // killed before anything was changed
		return j, nil
	}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("%s: %w; it says what was tuned: undo that by hand, then remove it", file, err)
	}
	return j, nil
}

func (j *journal) save() error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(j.file+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(j.file+".new", j.file)
}

// note records a change before it is made.
func (j *journal) note(c change) error {
	j.Changes = append(j.Changes, c)
	return j.save()
}

// write writes a kernel file whose content can be read back.
func (j *journal) write(file, value, empty string) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(before)) == value {
		return nil
	}
	if err := j.note(change{File: file, Before: strings.TrimSpace(string(before)), Empty: empty}); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(value), 0o644)
}

// make makes a cgroup, unless it exists.
func (j *journal) make(dir, empty string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := j.note(change{Made: dir, Empty: empty}); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// share makes a cgroup that others may use meanwhile.
func (j *journal) share(dir string) error {
	if err := j.note(change{Tidy: dir}); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// move moves a process, with all its threads, into a cgroup; a process that has ended is ignored.
func (j *journal) move(pid int, into, from string) error {
	started := process.Started(pid)
	if started == 0 {
		return nil
	}
	if err := j.note(change{Moved: pid, Started: started, Back: from}); err != nil {
		return err
	}
	err := enter(into, pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func enter(file string, pid int) error {
	return os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644)
}

// undo undoes all changes, the last one first, and removes the journal. If one cannot be undone it
// continues, and leaves the journal with those that failed.
func (j *journal) undo() error {
	var left []change
	var errs []error
	for i := len(j.Changes) - 1; i >= 0; i-- {
		if err := j.Changes[i].undo(); err != nil {
			left, errs = append([]change{j.Changes[i]}, left...), append(errs, err)
		}
	}
	j.Changes = left
	if len(errs) > 0 {
		return errors.Join(append(errs, j.save())...)
	}
	return os.Remove(j.file)
}

// undo undoes one change. What no longer exists, such as the groups of a lab that is down, is
// ignored.
func (c change) undo() error {
	var err error
	switch {
	case c.Moved != 0:
		if process.Started(c.Moved) != c.Started {
			return nil
		}
		err = enter(c.Back, c.Moved)
	case c.Tidy != "":
		_ = unix.Rmdir(c.Tidy)
	case c.Made != "":
		evict(c.Made, c.Empty)
		for range 50 { // a task that has just ended stays for a moment
			if err = unix.Rmdir(c.Made); !errors.Is(err, unix.EBUSY) {
				break
			}
			evict(c.Made, c.Empty)
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			err = &fs.PathError{Op: "rmdir", Path: c.Made, Err: err}
		}
	default:
		if c.Empty != "" {
			evict(filepath.Dir(c.File), c.Empty)
		}
		err = c.rewrite()
	}
	if errors.Is(err, unix.EBUSY) && filepath.Base(c.File) == "cgroup.subtree_control" {
		return nil // others use it meanwhile
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// rewrite restores a file's content. A group with tasks cannot be set back to no processors, which
// would mean those of the group above: it then gets these explicitly.
func (c change) rewrite() error {
	if c.Before != "" {
		return os.WriteFile(c.File, []byte(c.Before), 0o644)
	}
	err := os.WriteFile(c.File, []byte("\n"), 0o644) // writing nothing would have no effect
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Join(filepath.Dir(c.File), "..", filepath.Base(c.File))
	value, unread := os.ReadFile(above + ".effective")
	if unread != nil { // version 1
		value, unread = os.ReadFile(above)
	}
	if unread != nil {
		return err
	}
	return os.WriteFile(c.File, value, 0o644)
}

// evict moves the tasks of a cgroup to another one.
func evict(dir, to string) {
	if to == "" {
		return
	}
	name := filepath.Base(to)
	for range 10 { // they may fork meanwhile
		tasks := tasksOf(filepath.Join(dir, name))
		if len(tasks) == 0 {
			return
		}
		for _, pid := range tasks {
			_ = enter(to, pid)
		}
	}
}

// tasksOf reads the ids in tasks or cgroup.procs, without 0, which stands for a process of another
// PID namespace.
func tasksOf(file string) (out []int) {
	b, _ := os.ReadFile(file)
	for word := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}
