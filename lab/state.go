// Package lab is the life of a lab: its state on disk, the daemon that owns it, the API through
// which everything else talks to that daemon, and the client of that API.
package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/rundir"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// RunDir is where labs keep their state and sockets. It need not survive a reboot.
func RunDir() string { return rundir.Dir() }

// Status is the stage of its life that a lab is in.
type Status string

const (
	Starting Status = "starting"
	Up       Status = "up"
	Stopping Status = "stopping"
	// Orphaned is a lab whose daemon has died: packets still flow, but nobody answers for it.
	Orphaned Status = "orphaned"
	// Changing is Up in the middle of a change.
	Changing Status = "changing"
)

// State is what is on disk about a lab. It is written before anything it describes is made.
type State struct {
	Name     string            `json:"name"`
	Status   Status            `json:"state"`
	Version  string            `json:"version"`
	Source   string            `json:"source"`          // the file or generator the topology came from
	From     string            `json:"from"`            // the directory that the file's name is relative to
	Target   string            `json:"target"`          // where it runs: a key of Targets
	Sites    *site.List        `json:"sites,omitempty"` // the other machines it runs at
	Part     *Part             `json:"part,omitempty"`  // it is a part of a lab whose daemon is at another site
	Owner    int               `json:"owner"`           // user id that may talk to the daemon, besides root
	Created  time.Time         `json:"created"`         // when up began
	PID      int               `json:"pid"`             // of the daemon; with PIDStart it is unique
	PIDStart uint64            `json:"pid_start"`
	Wait     topology.Duration `json:"wait"` // how long up waits for controllers
	UpSince  time.Time         `json:"up_since,omitzero"`
	Dead     []string          `json:"dead,omitempty"` // programs of the lab that have ended by themselves
	// Another one each time that the state is written: see plugged.go.
	Serial   int64              `json:"serial"`
	Topology *topology.Topology `json:"topology"`

	Left Status `json:"-"` // of an Orphaned lab: its status when its daemon died; empty if unknown
}

// File is the file that the topology was read from.
func (s *State) File() string {
	if filepath.IsAbs(s.Source) {
		return s.Source
	}
	return filepath.Join(s.From, s.Source)
}

// OfExperiment is the Source of the labs that experiments bring up and take down.
const OfExperiment = "an experiment"

// NamePattern is what a lab may be called: safe as a file name, a cgroup and in a table.
var NamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$`)

// CleanName turns any text into a valid name.
func CleanName(s string) string {
	s = regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(s, "-")
	s = strings.TrimLeft(s, "-._")
	if len(s) > 40 {
		s = s[:40]
	}
	if s == "" {
		return "lab"
	}
	return s
}

// Dir is the lab's directory.
func Dir(name string) string { return filepath.Join(RunDir(), name) }

// Socket is where the lab's daemon listens.
func (s State) Socket() string { return filepath.Join(Dir(s.Name), "daemon.sock") }

// The state file belongs to root, who acts on it. The lab's owner gets a copy to read.
func stateFile(name string) string { return filepath.Join(Dir(name), "state.json") }
func ownerFile(name string) string { return filepath.Join(Dir(name), "owner.json") }

// Save writes the state at once.
func (s *State) Save() error {
	s.Serial = time.Now().UnixNano()
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if s.Owner != os.Geteuid() {
		if err := replaceFor(s.Owner, ownerFile(s.Name), b); err != nil {
			return err
		}
	}
	if err := replaceFor(os.Geteuid(), stateFile(s.Name), b); err != nil {
		return err
	}
	s.dropPlugged()
	return nil
}

// replaceFor replaces a file that only this user may read.
func replaceFor(uid int, file string, content []byte) error {
	if err := errors.Join(os.WriteFile(file+".new", content, 0o600), os.Chown(file+".new", uid, -1)); err != nil {
		_ = os.Remove(file + ".new") // half a file takes room on a full disk
		return err
	}
	return os.Rename(file+".new", file)
}

// changingFile exists while the lab is not what its state says: from before a change until the new
// state is written.
func changingFile(name string) string { return filepath.Join(Dir(name), "changing") }

// beginChange notes that the lab's state on disk no longer holds, and reserves room for writing the
// new state, or for undoing the change, should the disk be full by then: the size of the present
// state, more bytes, and some for small files.
func (s State) beginChange(more int) error {
	file := changingFile(s.Name)
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		size := int64(more) + 64<<10
		if info, err := os.Stat(stateFile(s.Name)); err == nil {
			size += info.Size()
		}
		err = reserve(file, 2*size)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// reserve reserves room for a file. Some file systems cannot.
func reserve(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%s: %w", filepath.Dir(file), err)
	}
	return nil
}

// useRoom frees the room that beginChange has reserved, for whatever is written next.
func (s State) useRoom() { _ = os.Truncate(changingFile(s.Name), 0) }

// endChange writes the lab's new state: all of it, or only the links that have been pulled or
// plugged.
func (s *State) endChange(was State) error {
	s.useRoom()
	err := s.notePlugged(was)
	if errors.Is(err, errMore) {
		err = s.Save()
	}
	if err != nil {
		return fmt.Errorf("the change could not be recorded: %w", err)
	}
	return s.dropChange()
}

// dropChange notes that the lab's state on disk holds again.
func (s State) dropChange() error { return os.Remove(changingFile(s.Name)) }

// ErrNone says that there is no such lab, or no lab at all.
var ErrNone = errors.New("there is no lab")

// Load reads a lab's state. A lab whose daemon has died is Orphaned, but not one that is just being
// started, resumed or taken down, as far as the caller can tell: only root can look at the lock.
func Load(name string) (State, error) {
	s, err := read(name)
	if err != nil || s.Status != Orphaned {
		return s, err
	}
	// Nothing is on disk yet: a command that begins a lab holds the run directory until it has the
	// lab's lock.
	if s.Created.IsZero() {
		if run, err := dirlock.WaitMade(context.Background(), RunDir(), patience.RunLock.Duration()); err == nil {
			defer run.Close()
		}
	}
	lock, err := dirlock.Lock(Dir(name), true)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrPermission) && s.justBegun() {
		s.Status = cmp.Or(s.Left, Starting)
		return s, nil
	}
	if err == nil {
		defer lock.Close()
	}
	return read(name) // the daemon may have recorded itself meanwhile
}

// justBegun says whether a lab without a daemon may be just coming up. Only root can tell for
// certain, by the lock.
func (s State) justBegun() bool {
	began := s.Created
	if info, err := os.Stat(Dir(s.Name)); err == nil && began.IsZero() {
		began = info.ModTime()
	}
	return s.PID == 0 && time.Since(began) < patience.LabLock.Duration()
}

// lock waits until nobody is starting a daemon for the lab or removing the lab without one, which
// only the holder of the lock may do. The lock ends when the file is closed in all processes that
// have it. The error is ErrNone if the lab is gone.
func lock(ctx context.Context, name string) (*os.File, error) {
	f, err := dirlock.Wait(ctx, Dir(name), false, patience.LabLock.Duration())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w %q", ErrNone, name)
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("another command is starting lab %s, resuming it or taking it down, and makes no progress", name)
	}
	return f, err
}

// read reads a lab's state; a lab without a daemon is Orphaned.
func read(name string) (State, error) {
	s := State{Name: name}
	if !NamePattern.MatchString(name) {
		return s, fmt.Errorf("%w %q", ErrNone, name)
	}
	b, err := os.ReadFile(stateFile(name))
	if errors.Is(err, os.ErrPermission) {
		b, err = os.ReadFile(ownerFile(name))
		if errors.Is(err, os.ErrNotExist) {
			err = os.ErrPermission
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(Dir(name)); err == nil {
			s.Status = Orphaned // killed before it wrote the state
			return s, nil
		}
		return s, fmt.Errorf("%w %q", ErrNone, name)
	}
	if errors.Is(err, os.ErrPermission) {
		return s, fmt.Errorf("lab %s %w (%s)%s", name, errAnothers, ownerOf(name), asRoot)
	}
	if err != nil {
		return s, err
	}
	if s, err = Decode(b, readPlugged(name)); err != nil {
		return State{Name: name, Status: Orphaned}, nil // cut short by a crash of the machine
	}
	if !s.Alive() {
		s.Left, s.Status = s.Status, Orphaned
		if _, err := os.Stat(changingFile(name)); err == nil && s.Left == Up {
			s.Left = Changing
		}
	}
	return s, nil
}

// List returns the labs of this machine, by name; those of other users are left out.
func List() ([]State, error) {
	entries, err := os.ReadDir(RunDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []State
	for _, e := range entries {
		if !e.IsDir() || !NamePattern.MatchString(e.Name()) {
			continue
		}
		if s, err := Load(e.Name()); err == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// asRoot is the hint for labs of other users.
const asRoot = "; root can use it:  sudo trivet …"

// errAnothers says that a lab belongs to somebody else.
var errAnothers = errors.New("belongs to another user")

// Others lists the existing labs that the caller may not see, each with its owner: "campus (root)".
func Others() (out []string) {
	entries, _ := os.ReadDir(RunDir())
	for _, e := range entries {
		if !e.IsDir() || !NamePattern.MatchString(e.Name()) {
			continue
		}
		if _, err := read(e.Name()); errors.Is(err, errAnothers) {
			out = append(out, fmt.Sprintf("%s (%s)", e.Name(), ownerOf(e.Name())))
		}
	}
	return out
}

// ownerOf is the owner of a lab, as far as others can tell.
func ownerOf(name string) string {
	info, err := os.Stat(ownerFile(name))
	if err != nil {
		return "root"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "?"
	}
	return userName(int(stat.Uid))
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return fmt.Sprint("user ", uid)
}

// ErrTaken says that there is a lab of a name already.
var ErrTaken = errors.New("there is already a lab")

// Anothers says whose lab has a name, if it is not one of the user's own.
func Anothers(name string) (owner string, yes bool) {
	s, err := Load(name)
	if errors.Is(err, ErrNone) || err == nil && s.Owner == Owner() {
		return "", false
	}
	return ownerOf(name), true
}

// OwnName is the default name of the user's lab: the name itself, or if another user's lab has it,
// the name followed by the user's own.
func OwnName(name string) string {
	if _, taken := Anothers(name); !taken {
		return name
	}
	behind := "-" + strings.ReplaceAll(userName(Owner()), " ", "-")
	return CleanName(name[:min(len(name), max(1, 40-len(behind)))] + behind)
}

// Otherwise says what a user can do if a lab has the name already.
func Otherwise(name string) string {
	if owner, yes := Anothers(name); yes {
		return "it is " + owner + "'s; choose another name"
	}
	return "choose another name, or take it down:  trivet down " + name
}

// Choose returns the lab of that name; without a name, the only lab, or if there are several users'
// labs, the only one of the user's own.
func Choose(name string) (State, error) {
	if name != "" {
		s, err := Load(name)
		if errors.Is(err, ErrNone) {
			return s, fmt.Errorf("there is no lab %s; %s", name, labList())
		}
		return s, err
	}
	labs, err := List()
	if own := slices.DeleteFunc(slices.Clone(labs), func(s State) bool { return s.Owner != Owner() }); len(own) == 1 {
		labs = own
	}
	switch {
	case err != nil:
		return State{}, err
	case len(labs) == 0 && len(Others()) > 0:
		return State{}, fmt.Errorf("none of the labs that are up is yours: %s%s", strings.Join(Others(), ", "), asRoot)
	case len(labs) == 0:
		return State{}, fmt.Errorf("%w; bring one up:  trivet up linear,3", ErrNone)
	case len(labs) > 1:
		return State{}, fmt.Errorf("which lab? Give --lab NAME (or set TRIVET_LAB); %s", labList())
	}
	return labs[0], nil
}

func labList() string {
	labs, _ := List()
	if len(labs) == 0 {
		return "no lab is up"
	}
	names := lists.Map(labs, func(l State) string { return l.Name })
	slices.Sort(names)
	return "there are " + strings.Join(names, ", ")
}

// Alive says whether the lab's daemon runs.
func (s State) Alive() bool {
	return s.PID != 0 && process.Started(s.PID) == s.PIDStart
}

// KillDaemon kills the daemon, if it runs, and waits until it and all that it holds are gone.
func (s State) KillDaemon() error {
	if s.Alive() {
		if err := unix.Kill(s.PID, unix.SIGKILL); err != nil && s.Alive() {
			return fmt.Errorf("end the daemon of lab %s (process %d): %w", s.Name, s.PID, err)
		}
		if err := s.WaitDaemon(); err != nil {
			return err
		}
	}
	return s.waitDead()
}

// waitDead waits until a dead daemon has released its files and devices: a process becomes a zombie
// when its first thread ends, while its other threads may still hold them.
func (s State) waitDead() error {
	for ends := patience.ProcessEnd.Begin(); !ends.Over(); time.Sleep(5 * time.Millisecond) {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.PID))
		if len(threads) < 2 || s.Alive() || process.Started(s.PID) != 0 {
			return nil
		}
	}
	return fmt.Errorf("the daemon of lab %s (process %d) has died, but its threads do not end", s.Name, s.PID)
}

// WaitDaemon waits until the daemon, which is about to end, has ended.
func (s State) WaitDaemon() error {
	for ends := patience.ProcessEnd.Begin(); !ends.Over(); time.Sleep(5 * time.Millisecond) {
		if !s.Alive() {
			return nil
		}
	}
	return fmt.Errorf("the daemon of lab %s (process %d) does not end", s.Name, s.PID)
}
