package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/monotonic"
)

// switchState is the stored state of the embedded switches, which live in the daemon: if it dies,
// the next daemon continues from that. See stateLog.
type switchState struct {
	Origin   int64 // origin of the switches' clock, on the machine's (CLOCK_MONOTONIC, ns)
	Switches []pipeline.Saved
	Gone     []uint64 // datapath ids of removed switches
	Credited []cache.Credited
	More     bool // the same snapshot continues in the next record
}

func (f *fabric) stateFile() string { return filepath.Join(f.site.Dir(), "switches") }

// Resume reads the state stored by a process that has died: see TakeOver.
func (f *fabric) Resume(context.Context) (err error) {
	f.before, err = readSwitchState(f.stateFile())
	return err
}

// start returns Origin as a time of this process.
func (s *switchState) start() time.Time {
	return monotonic.Zero().Add(time.Duration(s.Origin))
}

// Changes are written every second, and soon after they are made, but at most for a fiftieth of a
// processor's time. If only counters change, or nothing does, which is found out by looking at each
// switch, the share is much smaller, within limits: packets of known flows are counted in the
// kernel, where nothing is lost, and probes change switches' counters all the time.
const (
	saveEvery = time.Second
	saveSoon  = 50 * time.Millisecond
	saveShare = 50
	calmShare = 2000
	calmMost  = 5 * time.Minute
)

// rests returns how long not to write the state again after a write that took so much processor
// time: even if something changes, and additionally if nothing does. Time in which the writer
// waited does not count: otherwise, the busier the machine, the older the stored state.
func rests(took time.Duration) (least, more time.Duration) {
	least = max(saveSoon, saveShare*took)
	return least, max(saveEvery, min(calmShare*took, calmMost)) - least
}

// save writes the state until the switches are closed.
func (s *switches) save() {
	runtime.LockOSThread() // whose processor time is measured
	defer runtime.UnlockOSThread()
	kept := stateLog{name: s.file}
	defer kept.close()
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
		err := kept.save(int64(s.Start().Sub(monotonic.Zero())), s.fast.Save)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the lab's directory is removed before the daemon ends
			slog.Warn("the state of the switches could not be saved", "error", err)
		}
		least, more = rests(threadTime() - begin)
	}
}

// taker returns the switches that have changed since the call with these marks, those removed, and
// which part of the kernel's counters is included: see cache.Engine.Save.
type taker func(pipeline.Marks) (changed []pipeline.Saved, gone []uint64, credited []cache.Credited)

// stateLog writes the file of the switches' state: all switches, followed by changes, so that a
// change of one switch costs one and no change costs nothing. It is a sequence of records, each a
// part of a switchState preceded by its length and its checksum (CRC-32C), 4 bytes each,
// little-endian: a record that a dying daemon has not completed is detected and ignored.
type stateLog struct {
	name     string
	marks    pipeline.Marks // state in the file
	credited []cache.Credited
	file     *os.File // nil: nothing can be appended, so the file is rewritten
	encoder  *gob.Encoder
	record   bytes.Buffer // output of the encoder
	size     int
	whole    int // its size when it was last rewritten
}

const (
	recordHead     = 8
	recordSwitches = 64      // per record, which is built in memory
	lessAnew       = 1 << 20 // bytes appended before the file is rewritten, however small it is
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save appends what has changed since the last call, or rewrites the file if that is everything.
func (l *stateLog) save(origin int64, take taker) error {
	if l.file == nil || l.size > l.whole+l.whole/2+lessAnew {
		l.close()
		l.marks = pipeline.Marks{}
	}
	state := switchState{Origin: origin}
	state.Switches, state.Gone, state.Credited = take(l.marks)
	switch {
	case l.file == nil, len(state.Switches) == len(l.marks) && len(l.marks) > 0:
		return l.anew(state)
	case len(state.Switches)+len(state.Gone) == 0 && slices.Equal(state.Credited, l.credited):
		return nil
	}
	err := l.write(l.file, state)
	if err != nil {
		l.close() // it may end with half a record
	}
	return err
}

// anew rewrites the file. The old one stays until that is complete.
func (l *stateLog) anew(state switchState) error {
	l.close()
	l.size = 0
	l.encoder = gob.NewEncoder(&l.record)
	if err := disk.ReplaceBy(l.name, 0, func(w io.Writer) error { return l.write(w, state) }); err != nil {
		return err
	}
	l.whole = l.size
	var err error
	l.file, err = os.OpenFile(l.name, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

// write writes one snapshot.
func (l *stateLog) write(w io.Writer, state switchState) error {
	l.credited = state.Credited
	for all := state.Switches; ; {
		n := min(len(all), recordSwitches)
		state.Switches, all = all[:n], all[n:]
		state.More = len(all) > 0
		l.record.Reset()
		l.record.Write(make([]byte, recordHead))
		if err := l.encoder.Encode(state); err != nil {
			return err
		}
		b := l.record.Bytes()
		binary.LittleEndian.PutUint32(b, uint32(len(b)-recordHead))
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[recordHead:], castagnoli))
		if _, err := w.Write(b); err != nil {
			return err
		}
		l.size += len(b)
		if !state.More {
			return nil
		}
		state.Gone, state.Credited = nil, nil
	}
}

func (l *stateLog) close() {
	if l.file != nil {
		l.file.Close()
	}
	l.file = nil
}

// threadTime returns the processor time used by the calling thread.
func threadTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used) // cannot fail: the clock exists, and so does the memory
	return time.Duration(used.Nano())
}

// readSwitchState reads the file of a daemon; nil: there were no embedded switches.
func readSwitchState(file string) (*switchState, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state, lost, err := decodeSwitchState(b)
	if err != nil {
		return nil, fmt.Errorf("the state of the embedded switches, %s: %w", file, err)
	}
	if lost > 0 {
		slog.Warn("the daemon died while it wrote the state of the embedded switches: they begin as they were before that",
			"file", file, "bytes", lost)
	}
	return state, nil
}

// decodeSwitchState returns the last complete state, and the number of bytes after it.
func decodeSwitchState(b []byte) (state *switchState, lost int, err error) {
	var next switchState
	switches := map[uint64]pipeline.Saved{}
	var record bytes.Buffer
	for decoder := gob.NewDecoder(&record); len(b) >= recordHead; {
		size := uint64(binary.LittleEndian.Uint32(b))
		if uint64(len(b)-recordHead) < size {
			break
		}
		content := b[recordHead : recordHead+size]
		if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
			return nil, 0, errors.New("it has been damaged since it was written: a checksum is wrong")
		}
		lost += recordHead + len(content)
		b = b[recordHead+size:]
		record.Write(content)
		var part switchState
		if err := decoder.Decode(&part); err != nil {
			return nil, 0, err
		}
		next.Origin = part.Origin
		next.Switches = append(next.Switches, part.Switches...)
		next.Gone = append(next.Gone, part.Gone...)
		next.Credited = append(next.Credited, part.Credited...)
		if part.More {
			continue
		}
		for _, dpid := range next.Gone {
			delete(switches, dpid)
		}
		for _, v := range next.Switches {
			switches[v.DatapathID] = v
		}
		state = &switchState{Origin: next.Origin, Credited: next.Credited}
		next, lost = switchState{}, 0
	}
	lost += len(b)
	if state == nil {
		return nil, 0, fmt.Errorf("it is not whole, or another version of Trivet wrote it: %d bytes of it are there: %w", lost, io.ErrUnexpectedEOF)
	}
	state.Switches = slices.Collect(maps.Values(switches))
	return state, lost, nil
}

// restore restores new switches to the saved state.
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

// beginSaving starts writing the state, once.
func (s *switches) beginSaving() { s.started.Do(func() { s.saving.Go(s.save) }) }

// TakeOver completes a Resume. Until then packets of known flows are forwarded as when the other
// process died, and others are handled without delay; it is called when controllers have installed
// their entries again.
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
