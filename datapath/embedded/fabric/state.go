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

// switchState is what is on disk of the embedded switches, which live in the daemon: should that
// die, the next one goes on with it. See stateLog.
type switchState struct {
	Origin   int64 // when the switches' clock began, on the machine's (CLOCK_MONOTONIC, ns)
	Switches []pipeline.Saved
	Gone     []uint64 // switches that are there no more, by datapath id
	Credited []cache.Credited
	More     bool // what was at one moment goes on in the next record
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

// What has changed is written every second, and soon after a change; where that takes long, as
// seldom as makes it a fiftieth of a processor. While only counters change, or nothing does, which
// takes a look at each switch, it is a much smaller share, within bounds: packets of known flows
// are counted in the kernel, where nothing is lost, and probes always change counters of switches.
const (
	saveEvery = time.Second
	saveSoon  = 50 * time.Millisecond
	saveShare = 50
	calmShare = 2000
	calmMost  = 5 * time.Minute
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
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the lab's directory goes before the daemon
			slog.Warn("the state of the switches could not be saved", "error", err)
		}
		least, more = rests(threadTime() - begin)
	}
}

// taker returns the switches that have changed since it was called with these marks, those that are
// gone, and what of the kernel's counters is in theirs: see cache.Engine.Save.
type taker func(pipeline.Marks) (changed []pipeline.Saved, gone []uint64, credited []cache.Credited)

// stateLog writes the file of the switches' state: all of them, and after that what has changed, so
// that one switch costs one and none nothing. It is a sequence of records, each a part of a
// switchState after its length and its checksum (CRC-32C), 4 bytes each, little-endian: what a
// daemon was adding when it died is told from what is whole, and does not count.
type stateLog struct {
	name     string
	marks    pipeline.Marks // of what the file has
	credited []cache.Credited
	file     *os.File // nil: nothing can be added to it, and it is written anew
	encoder  *gob.Encoder
	record   bytes.Buffer // what the encoder writes to
	size     int
	whole    int // its size when it was written anew
}

const (
	recordHead     = 8
	recordSwitches = 64      // at most; a record is in memory as a whole
	lessAnew       = 1 << 20 // bytes that are added before the file is written anew, however small it is
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save writes what has changed since the last time; where that is all, the file anew.
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
		l.close() // as it may end with half a record
	}
	return err
}

// anew writes the file anew. Until that is done the old one stays.
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

// write writes what was at one moment.
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

// decodeSwitchState returns the last state that is there as a whole, and how many bytes after it
// are of none.
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
