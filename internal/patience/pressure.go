package patience

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// pressure is how long, since boot, runnable tasks were delayed: some task for lack of a processor,
// all tasks for lack of a disk or of memory (pressure-stall information,
// Documentation/accounting/psi.rst), and the machine for lack of its host's processors (steal in
// proc(5)). Values that the kernel does not provide are 0.
type pressure struct{ processor, disk, memory, stolen time.Duration }

// look is replaced by tests.
var look = lately

// lately returns a recent reading or a new one: controllers wait for thousands of switches at a
// time.
func lately() pressure {
	last.Lock()
	defer last.Unlock()
	if time.Since(last.at) > 50*time.Millisecond {
		last.at, last.seen = time.Now(), lookAtMachine()
	}
	return last.seen
}

var last struct {
	sync.Mutex
	at   time.Time
	seen pressure
}

func lookAtMachine() (p pressure) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return p
	}
	if s, err := proc.PSIStatsForResource("cpu"); err == nil {
		p.processor = stalled(s.Some)
	}
	if s, err := proc.PSIStatsForResource("io"); err == nil {
		p.disk = stalled(s.Full)
	}
	if s, err := proc.PSIStatsForResource("memory"); err == nil {
		p.memory = stalled(s.Full)
	}
	if s, err := proc.Stat(); err == nil { // average over the processors
		p.stolen = time.Duration(s.CPUTotal.Steal * float64(time.Second) / float64(runtime.NumCPU()))
	}
	return p
}

func stalled(line *procfs.PSILine) time.Duration {
	if line == nil {
		return 0
	}
	return time.Duration(line.Total) * time.Microsecond
}

// since returns the longest of the delays since an earlier reading: they overlap.
func (p pressure) since(was pressure) time.Duration {
	return max(0, p.processor-was.processor, p.disk-was.disk, p.memory-was.memory, p.stolen-was.stolen)
}
