package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"trivet.dev/trivet/topology"
)

// A lab of 10,000 routers has a state of megabytes, and links that go down and come up many times a
// second. Such a change is a line in a file beside the state, which counts as long as the state is
// the one that it was written for. The lab's owner has a copy of it, too.

func pluggedFile(name string) string      { return filepath.Join(Dir(name), "plugged") }
func ownerPluggedFile(name string) string { return filepath.Join(Dir(name), "owner-plugged") }

// plugged is a line: a link is up, or not any more.
type plugged struct {
	Serial int64 `json:"serial"` // of the state
	Link   int   `json:"link"`   // its place there
	Down   bool  `json:"down"`
}

// maxPlugged is how long the file may become, in bytes: reading it takes milliseconds.
const maxPlugged = 256 << 10

// errMore says that more has changed than a line can tell.
var errMore = errors.New("more than links that were pulled or plugged has changed")

// notePlugged writes what has changed since the state was another one, if that is no more than
// links that were pulled or plugged.
func (s *State) notePlugged(was State) error {
	changed, ok := onlyPlugged(was.Topology, s.Topology)
	if info, err := os.Stat(pluggedFile(s.Name)); !ok || !slices.Equal(was.Dead, s.Dead) || s.Serial == 0 ||
		err == nil && info.Size() > maxPlugged {
		return errMore
	}
	if len(changed) == 0 {
		return nil
	}
	var lines bytes.Buffer
	for _, i := range changed {
		b, err := json.Marshal(plugged{s.Serial, i, s.Topology.Links[i].Down})
		if err != nil {
			return err
		}
		lines.Write(append(b, '\n'))
	}
	if s.Owner != os.Geteuid() {
		if err := appendFor(s.Owner, ownerPluggedFile(s.Name), lines.Bytes()); err != nil {
			return err
		}
	}
	return appendFor(os.Geteuid(), pluggedFile(s.Name), lines.Bytes())
}

// appendFor adds to a file that only this user may read.
func appendFor(uid int, file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chown(uid, -1), f.Close())
}

// dropPlugged removes the files, whose lines do not count any more.
func (s *State) dropPlugged() {
	_ = os.Remove(pluggedFile(s.Name))
	_ = os.Remove(ownerPluggedFile(s.Name))
}

// readPlugged reads the file, or the owner's copy; nothing where there is none.
func readPlugged(name string) []byte {
	b, err := os.ReadFile(pluggedFile(name))
	if errors.Is(err, os.ErrPermission) {
		b, _ = os.ReadFile(ownerPluggedFile(name))
	}
	return b
}

// replay makes the links what the lines say that were written for this state. One that was cut
// short was not written: the change that it tells of has not ended.
func (s *State) replay(lines []byte) {
	for line := range bytes.Lines(lines) {
		var p plugged
		if json.Unmarshal(line, &p) == nil && p.Serial == s.Serial && s.Topology != nil && p.Link >= 0 &&
			p.Link < len(s.Topology.Links) {
			s.Topology.Links[p.Link].Down = p.Down
		}
	}
}

// onlyPlugged returns the links that are up in one of two topologies and down in the other; false
// where anything else differs, as far as that can be told at a glance: what is the same in both is
// shared.
func onlyPlugged(old, new *topology.Topology) (changed []int, is bool) {
	if old == nil || new == nil || len(old.Links) != len(new.Links) || !slices.Equal(old.Nodes, new.Nodes) {
		return nil, false
	}
	a, b := *old, *new
	a.Nodes, a.Links, b.Nodes, b.Links = nil, nil, nil, nil
	if !reflect.DeepEqual(a, b) {
		return nil, false
	}
	for i, l := range new.Links {
		if l == old.Links[i] {
			continue
		}
		was := *old.Links[i]
		if was.Down = l.Down; !reflect.DeepEqual(&was, l) {
			return nil, false
		}
		changed = append(changed, i)
	}
	return changed, true
}

// Decode reads a state, and what was written beside it, as they are on disk.
func Decode(state, lines []byte) (s State, err error) {
	if err = json.Unmarshal(state, &s); err == nil {
		s.replay(lines)
	}
	return s, err
}
