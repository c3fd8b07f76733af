package patience

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// pressure is for how long, since the machine has started, what wanted to go on could not: some
// task for want of a processor, all of them for want of a disk or of memory (pressure-stall
// information, Documentation/accounting/psi.rst), and the machine as a whole for want of its host's
// processors (steal in proc(5)). What the kernel does not tell is 0.
type pressure struct{ processor, disk, memory, stolen time.Duration }

// look is replaced by tests.
var look = lately

// lately is the last look at the machine, or a new one: controllers wait for thousands of switches
// at a time.
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

func lookAtMachine() pressure {
	return pressure{stallOf("cpu", "some"), stallOf("io", "full"), stallOf("memory", "full"), stolen()}
}

// since is the longest of the times since an earlier look: they overlap.
func (p pressure) since(was pressure) time.Duration {
	return max(0, p.processor-was.processor, p.disk-was.disk, p.memory-was.memory, p.stolen-was.stolen)
}

func stallOf(what, whose string) time.Duration {
	text, err := os.ReadFile("/proc/pressure/" + what)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if total, is := bytes.CutPrefix(line, []byte(whose+" ")); is {
			_, total, _ = bytes.Cut(total, []byte("total="))
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(total)), 10, 64)
			return time.Duration(n) * time.Microsecond
		}
	}
	return 0
}

// userHZ is in how many parts of a second proc(5) counts; the same on all architectures of Go's.
const userHZ = 100

// stolen is for how long the host took each of the processors, on average.
func stolen() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if f := bytes.Fields(line); len(f) > 8 && string(f[0]) == "cpu" {
		n, _ := strconv.ParseInt(string(f[8]), 10, 64)
		return time.Duration(n) * time.Second / userHZ / time.Duration(runtime.NumCPU())
	}
	return 0
}
