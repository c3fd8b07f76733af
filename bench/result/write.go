package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// Writer appends lines to a result file. Lines are written completely or not at all: what a full
// disk or a crash leaves of one is removed.
type Writer struct {
	file *os.File
	size int64 // size of complete lines
}

// Create creates a file, which must not exist. It fills in Record and Schema of the header.
func Create(path string, h Header) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s already exists; resume it, or choose another name", path)
	}
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f}
	if err = w.lock(); err == nil {
		h.Record, h.Schema = KindHeader, Schema
		err = w.write(h)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return w, nil
}

// Open opens a file to continue it: it removes an incomplete last line, and returns the contents.
func Open(path string) (*Writer, *Run, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	w := &Writer{file: f}
	run, err := w.open()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return w, run, nil
}

func (w *Writer) open() (*Run, error) {
	if err := w.lock(); err != nil {
		return nil, err
	}
	run, err := Read(w.file)
	if err != nil {
		return nil, err
	}
	w.size = run.Size
	if err := w.cut(); err != nil {
		return nil, err
	}
	return run, nil
}

// lock keeps two runs from writing to one file; it goes with the process.
func (w *Writer) lock() error {
	for lets := patience.FileLock.Begin(); unix.Flock(int(w.file.Fd()),
		unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(10 * time.Millisecond) {
		if lets.Over() {
			return errors.New("another run is writing to this file")
		}
	}
	return nil
}

func (w *Writer) cut() error {
	if err := w.file.Truncate(w.size); err != nil {
		return err
	}
	_, err := w.file.Seek(w.size, io.SeekStart)
	return err
}

// Append writes samples: all of them or, if it fails, none.
func (w *Writer) Append(samples ...Sample) error {
	lines := make([]any, len(samples))
	for i, s := range samples {
		if err := s.Check(); err != nil {
			return err
		}
		s.Record = KindSample
		lines[i] = s
	}
	return w.write(lines...)
}

// Resume records that the run continues.
func (w *Writer) Resume(r Resume) error {
	r.Record = KindResume
	return w.write(r)
}

// Look records that the run was judged.
func (w *Writer) Look(l Look) error {
	l.Record, l.Time = KindLook, time.Now().UTC()
	return w.write(l)
}

// Machines records the state of machines made for the run.
func (w *Writer) Machines(m Machines) error {
	m.Record, m.Time = KindMachines, time.Now().UTC()
	return w.write(m)
}

func (w *Writer) write(records ...any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // ends each with a line end
	e.SetEscapeHTML(false)
	for _, r := range records {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	n, err := w.file.Write(b.Bytes())
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return errors.Join(err, w.cut())
	}
	w.size += int64(n)
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }
