package delayline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"trivet.dev/trivet/topology"
)

// maxWorkers is how many threads move frames: more would take processors away from the hosts'
// programs.
const maxWorkers = 2

// Engine moves the frames of lines. Its methods, and those of its lines, may be called
// from any goroutine.
type Engine struct {
	mu      sync.Mutex
	workers []*worker
	lines   map[*Line]bool
	closed  bool
}

// NewEngine starts an engine. Its lines together hold at most memory bytes of frames; 0 means a
// quarter of the machine's memory.
func NewEngine(memory int64) (*Engine, error) {
	if memory <= 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return nil, fmt.Errorf("delay line: size of memory: %w", err)
		}
		memory = int64(uint64(info.Totalram) * uint64(info.Unit) / 4)
	}
	budget := new(atomic.Int64)
	budget.Store(memory)
	e := &Engine{lines: map[*Line]bool{}}
	for range min(maxWorkers, runtime.NumCPU()) {
		w, err := newWorker(budget)
		if err != nil {
			for _, w := range e.workers {
				_ = w.stop()
			}
			return nil, fmt.Errorf("delay line: %w", err)
		}
		e.workers = append(e.workers, w)
	}
	e.processors(+1)
	return e, nil
}

var errEngineClosed = errors.New("delay line: the engine is closed")

// processors gives Go's scheduler one more processor per worker, or takes it back. A worker that
// wakes up needs one; if goroutines held all of them, it would wait for up to 10 ms. With one of
// its own, only the operating system decides when it runs, and that knows the worker's priority.
func (e *Engine) processors(sign int) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + sign*len(e.workers))
}

// Options are what a line may need in addition to its impairments.
type Options struct {
	// Plain says which ends need complete frames: no super-packets, and no checksums left to be
	// filled in. Open vSwitch's user-space datapath is such an end.
	Plain [2]bool
	// Devices are the modelled devices at the ends.
	Devices [2]Device
	// Seed makes losses and jitter repeatable; with 0 they differ every time.
	Seed uint64
}

// Add joins two TAP devices (see OpenTap), in any namespaces, by a line: ab impairs what end a
// sends, ba what end b sends. From then on the line owns the descriptors; after an error they
// remain the caller's.
func (e *Engine) Add(a, b int, ab, ba topology.Impairment, opts Options) (*Line, error) {
	for _, fd := range []int{a, b} {
		if err := prepareTap(fd); err != nil {
			return nil, err
		}
	}
	if opts.Seed == 0 {
		opts.Seed = rand.Uint64()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errEngineClosed
	}
	w := e.workers[0]
	for _, other := range e.workers[1:] {
		if other.load() < w.load() {
			w = other
		}
	}
	l, err := newLine(e, w, [2]int{a, b}, [2]topology.Impairment{ab, ba}, opts)
	if err == nil {
		e.lines[l] = true
	}
	return l, err
}

// Close closes all lines and ends the threads.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return errEngineClosed
	}
	e.closed = true
	lines := e.lines
	e.lines = map[*Line]bool{}
	e.mu.Unlock()
	var errs []error
	for l := range lines {
		_, err := l.close()
		errs = append(errs, err)
	}
	for _, w := range e.workers {
		errs = append(errs, w.stop())
	}
	e.processors(-1)
	return errors.Join(errs...)
}
