package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// partWithout is the state of a part whose daemon has died, of a target which counts how often it
// is removed, and fails to be until it may.
func partWithout(t *testing.T, keep time.Duration) (s State, removed *atomic.Int64, may *atomic.Bool) {
	t.Helper()
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	removed, may = new(atomic.Int64), new(atomic.Bool)
	target := t.Name()
	Targets[target] = Maker{Remove: func(s State, _ Stage, _ func(string)) error {
		if removed.Add(1); !may.Load() {
			return errors.New("no room")
		}
		return os.RemoveAll(Dir(s.Name))
	}}
	t.Cleanup(func() { delete(Targets, target) })
	s = State{Name: "part", Status: Up, Target: target, Owner: os.Geteuid(), Created: time.Now(), Part: &Part{Keep: topology.Duration(keep)}, Topology: &topology.Topology{}}
	writeLab(t, &s)
	return s, removed, may
}

func writeLab(t *testing.T, s *State) {
	t.Helper()
	err := errors.Join(os.MkdirAll(Dir(s.Name), 0o755), os.WriteFile(filepath.Join(Dir(s.Name), "daemon.log"), nil, 0o600), s.Save())
	if err != nil {
		t.Fatal(err)
	}
}

// keep runs a keeper, and says when it has found the lab, and when it has ended.
func keep(name string) (found, ended chan error) {
	found, ended = make(chan error, 1), make(chan error, 1)
	k := keeper{name: name, every: 5 * time.Millisecond, again: 5 * time.Millisecond, found: func() { found <- nil }}
	go func() { ended <- k.run() }()
	return found, ended
}

// inTime is what a channel has within a minute.
func inTime(t *testing.T, what string, c chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(time.Minute):
		t.Fatal("in vain: ", what)
		return nil
	}
}

// TestKeeper proves that a keeper takes a part down whose daemon has died, again and again if that
// fails, which the log says.
func TestKeeper(t *testing.T) {
	s, removed, may := partWithout(t, time.Millisecond)
	_, ended := keep(s.Name)
	until.True(t, "it is tried three times", func() bool { return removed.Load() >= 3 })
	if log, _ := os.ReadFile(filepath.Join(Dir(s.Name), "daemon.log")); !strings.Contains(string(log), "no room") {
		t.Errorf("the log says %q", log)
	}
	may.Store(true)
	if err := inTime(t, "the part goes down", ended); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(Dir(s.Name)); !os.IsNotExist(err) {
		t.Errorf("it is there still: %v", err)
	}
}

// TestKeeperOfAnother proves that a keeper ends when the lab of that name is another one, be it a
// part or not, and leaves it alone.
func TestKeeperOfAnother(t *testing.T) {
	for _, c := range []struct {
		name string
		part *Part
	}{{"part", &Part{Keep: topology.Duration(time.Millisecond)}}, {"whole", nil}} {
		t.Run(c.name, func(t *testing.T) {
			s, removed, may := partWithout(t, time.Hour)
			may.Store(true)
			found, ended := keep(s.Name)
			_ = inTime(t, "the keeper finds the lab", found)
			other := s
			other.Created, other.Part = s.Created.Add(time.Second), c.part
			writeLab(t, &other)
			if err := inTime(t, "the keeper ends", ended); err != nil || removed.Load() != 0 {
				t.Errorf("%v; the other lab was removed %d times", err, removed.Load())
			}
		})
	}
}

// TestKeeperStranger proves that a keeper does not wait for a process that only has the number of
// the part's daemon.
func TestKeeperStranger(t *testing.T) {
	s, removed, may := partWithout(t, time.Millisecond)
	may.Store(true)
	stranger := exec.Command("sleep", "600")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	s.PID, s.PIDStart = stranger.Process.Pid, process.Started(stranger.Process.Pid)-1
	writeLab(t, &s)
	held, err := lock(t.Context(), s.Name) // as a command has it that resumes the lab: it is up then, for others
	if err != nil {
		t.Fatal(err)
	}
	found, ended := keep(s.Name)
	_ = inTime(t, "the keeper finds the lab so", found)
	held.Close()
	if err := inTime(t, "the part goes down", ended); err != nil || removed.Load() != 1 {
		t.Errorf("%v; it was removed %d times", err, removed.Load())
	}
}

// TestPartSlow proves that a part that takes longer to come up than it may be without its head
// comes up, and goes down by itself if no head leads it then.
func TestPartSlow(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.setState(func(s *State) { s.Part = &Part{Keep: topology.Duration(10 * time.Millisecond)} })
	e.while = map[string]func(){"up": func() { time.Sleep(500 * time.Millisecond) }}
	d.changing.Lock()
	d.up()
	steps, _ := d.progress.since(0)
	if at := slices.IndexFunc(steps, func(p Progress) bool { return p.End }); at < 0 || steps[at].Error != "" {
		t.Fatalf("it does not come up: %+v", steps)
	}
	gone := make(chan error, 1)
	go func() { <-d.gone; gone <- nil }()
	if _ = inTime(t, "it goes down", gone); e.removed != 1 {
		t.Errorf("it was removed %d times", e.removed)
	}
}

// TestLostHead proves that a part without a head goes down by itself, again and again if that
// fails, and no more once the head is back.
func TestLostHead(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.setState(func(s *State) { s.Status, s.Part = Up, &Part{Keep: topology.Duration(time.Millisecond)} })
	d.head = &head{again: time.Millisecond}
	may := func(err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.fail["remove"] = err
	}
	tried := func() (n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, what := range e.did {
			if what == "remove" {
				n++
			}
		}
		return n
	}
	more := func(than int) {
		t.Helper()
		until.True(t, "it is tried again", func() bool { return tried() > than })
	}
	may(errors.New("no room"))
	d.lostHead()
	more(2)
	d.head.mu.Lock() // as serveHead does
	d.head.alone.Stop()
	d.head.alone, d.head.is = nil, true
	d.head.mu.Unlock()
	d.changing.Lock() // an attempt that is under way ends first
	removed := d.removed
	d.changing.Unlock()
	if removed {
		t.Error("it is removed, though there is no room")
	}
	was := tried()
	for end := time.Now().Add(time.Minute); ; { // one that was about to begin may come yet
		time.Sleep(50 * time.Millisecond)
		now := tried()
		if now == was {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("though the head is back, it was tried %d times more", now-was)
		}
		was = now
	}
	may(nil)
	d.lostHead()
	more(was)
	until.True(t, "it is removed", func() bool {
		d.changing.Lock()
		defer d.changing.Unlock()
		return d.removed
	})
}

// TestHeadInTime proves that a part stays when its head is back before going down has begun, also
// if the time is up.
func TestHeadInTime(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.setState(func(s *State) { s.Part = &Part{Keep: topology.Duration(time.Hour)} })
	d.head = &head{again: time.Hour}
	d.lostHead()
	d.head.mu.Lock() // as serveHead does
	d.head.alone.Reset(0)
	time.Sleep(50 * time.Millisecond)
	d.head.alone, d.head.is = nil, true
	d.head.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.did, "remove") {
		t.Error("it goes down")
	}
}
