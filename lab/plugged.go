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

// The state of a lab of 10,000 routers takes megabytes, and links may go down and come up many
// times a second. Such a change is not written to the state, but as a line to a file beside it,
// which counts only for the state with the same serial number. The lab's owner gets a copy of the
// file.

func pluggedFile(name string) string      { return filepath.Join(Dir(name), "plugged") }
func ownerPluggedFile(name string) string { return filepath.Join(Dir(name), "owner-plugged") }

// plugged is a line of that file: a link went up or down.
type plugged struct {
	Serial int64 `json:"serial"` // of the state
	Link   int   `json:"link"`   // its index in the state's topology
	Down   bool  `json:"down"`
}

// maxPlugged is how long the file may become, in bytes: reading it takes milliseconds.
const maxPlugged = 256 << 10

// errMore says that more has changed than such lines can express.
var errMore = errors.New("more than links that were pulled or plugged has changed")

// notePlugged writes the changes since the state was, if only links were pulled or plugged;
// otherwise it returns errMore.
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

// replay applies the lines that were written for this state to its links. An incomplete line is
// ignored: its change was never confirmed.
func (s *State) replay(lines []byte) {
	for line := range bytes.Lines(lines) {
		var p plugged
		if json.Unmarshal(line, &p) == nil && p.Serial == s.Serial && s.Topology != nil && p.Link >= 0 &&
			p.Link < len(s.Topology.Links) {
			s.Topology.Links[p.Link].Down = p.Down
		}
	}
}

// onlyPlugged returns the links whose up or down state differs between two topologies; false if
// anything else differs. It compares by identity where it can, as unchanged nodes and links are
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

// Decode reads a state, and the lines written beside it, from their contents on disk.
func Decode(state, lines []byte) (s State, err error) {
	if err = json.Unmarshal(state, &s); err == nil {
		s.replay(lines)
	}
	return s, err
}
