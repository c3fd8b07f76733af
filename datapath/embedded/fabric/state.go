package fabric

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/monotonic"
)

// switchState is what is on disk of the embedded switches, which live in the daemon: should that
// die, the next one goes on with it.
type switchState struct {
	Origin   int64 // when the switches' clock began, on the machine's (CLOCK_MONOTONIC, ns)
	Switches []pipeline.Saved
	Credited []cache.Credited
}

func (f *fabric) stateFile() string { return filepath.Join(f.site.Dir(), "switches") }

// Resume reads what a process that has died has written: see TakeOver.
func (f *fabric) Resume(context.Context) (err error) {
	f.before, err = readSwitchState(f.stateFile())
	return err
}

// start is Origin as a time of this process.
func (s *switchState) start() time.Time {
	return monotonic.Zero().Add(time.Duration(s.Origin))
}

// The state is written every second, and soon after a change; of a lab whose state takes long to
// write, as seldom as makes it a fiftieth of a processor. While only counters change, it is a
// smaller share, within bounds.
const (
	saveEvery = time.Second
	saveSoon  = 50 * time.Millisecond
	saveShare = 50
	calmShare = 400
	calmMost  = time.Minute
)

// rests says for how long the state is not written again that took so much of a processor to write:
// even if something changes, and beyond that if nothing does. Time in which the writer waited does
// not count: what changed on a busy machine would else be kept the later, the busier it is.
func rests(took time.Duration) (least, more time.Duration) {
	least = max(saveSoon, saveShare*took)
	return least, max(saveEvery, min(calmShare*took, calmMost)) - least
}

// save writes the state until the switches are closed.
func (s *switches) save() {
	runtime.LockOSThread() // whose time is taken
	defer runtime.UnlockOSThread()
	for least, more := rests(0); ; {
		select {
		case <-s.stop:
			return
		case <-time.After(least):
		}
		select {
		case <-s.stop:
			return
		case <-s.fast.Changes():
		case <-time.After(max(0, more)):
		}
		begin := threadTime()
		state := switchState{Origin: int64(s.Start().Sub(monotonic.Zero()))}
		state.Switches, state.Credited = s.fast.Save()
		err := disk.ReplaceBy(s.file, 0, func(w io.Writer) error { return gob.NewEncoder(w).Encode(state) })
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the lab's directory goes before the daemon
			slog.Warn("the state of the switches could not be saved", "error", err)
		}
		least, more = rests(threadTime() - begin)
	}
}

// threadTime is what the calling thread has used of a processor.
func threadTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used) // cannot fail: the clock exists, and so does the memory
	return time.Duration(used.Nano())
}

// readSwitchState reads what a daemon has written; nil: there were no embedded switches.
func readSwitchState(file string) (*switchState, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &switchState{}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(s); err != nil {
		return nil, fmt.Errorf("the state of the embedded switches, %s: %w", file, err)
	}
	return s, nil
}

// restore makes new switches what those were that another process had.
func (s *switches) restore() error {
	var errs []error
	for _, a := range s.agents {
		if v := s.saved[a.Switch().DatapathID()]; v != nil {
			delete(s.saved, v.DatapathID)
			if err := a.Switch().Restore(v); err != nil {
				errs = append(errs, fmt.Errorf("switch %s: %w", a.Switch().Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// beginSaving begins to write the state, once.
func (s *switches) beginSaving() { s.started.Do(func() { s.saving.Go(s.save) }) }

// TakeOver ends a Resume. Until it is called, packets of known flows go as they did when the other
// process died, and others wait for nothing: it is time for it when controllers have said again
// what there is to say.
func (f *fabric) TakeOver() {
	s := f.now.Load()
	if f.before == nil || s == nil {
		return
	}
	flows, err := s.fast.TakeOver(f.before.Credited)
	if err != nil {
		slog.Warn("not all of the kernel's forwarding entries could be taken over", "error", err)
	}
	slog.Info("took over the kernel's forwarding entries", "flows", flows)
	f.before = nil
	s.Release()
	s.beginSaving()
}
