package verify

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// processors is the total time and the idle time of all processors since boot, in seconds.
type processors struct{ all, idle float64 }

func readProcessors() (p processors) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return p
	}
	stat, err := proc.Stat()
	if err != nil {
		return p
	}
	c := stat.CPUTotal
	p.idle = c.Idle + c.Iowait
	p.all = p.idle + c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return p
}

// leastIdle is the share of the processors' time that must be idle: otherwise packets that are late
// or missing may be the machine's fault.
const leastIdle = 0.1

// busySince says whether the machine had hardly any idle time since then.
func (p processors) busySince() bool {
	now := readProcessors()
	return now.idle-p.idle < leastIdle*(now.all-p.all)
}

// machine records the machine's own state over a time: whether something waited for a processor
// (/proc/pressure/cpu), and how late a timer was.
type machine struct {
	busy    bool // hardly any idle time in total
	moments []moment
}

// moment is one reading: the time since boot that something has waited, and the lateness of the
// timer.
type moment struct {
	at           int64 // nanoseconds since 1970
	waited, late time.Duration
}

const (
	momentary = 5 * time.Millisecond  // from one moment to the next
	usual     = 15 * time.Millisecond // lateness of a timer at rest, on a kernel with slow ticks
)

// watch records the machine's state until end, which returns it.
func watch() (end func() *machine) {
	m, before := &machine{}, readProcessors()
	pressure, _ := os.Open("/proc/pressure/cpu") // nil if the kernel does not have it
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		late, last := time.Duration(0), time.Now()
		ticker := time.NewTicker(momentary)
		defer ticker.Stop()
		for {
			m.moments = append(m.moments, moment{time.Now().UnixNano(), waitedFor(pressure), late})
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			now := time.Now()
			late += max(0, now.Sub(last)-momentary-usual)
			last = now
		}
	})
	return func() *machine {
		close(stop)
		group.Wait()
		pressure.Close()
		m.busy = before.busySince()
		return m
	}
}

// waitedFor reads the time for which something has waited for a processor: "some …
// total=MICROSECONDS".
func waitedFor(pressure *os.File) time.Duration {
	b := make([]byte, 256)
	n, _ := pressure.ReadAt(b, 0)
	line, _, _ := strings.Cut(string(b[:n]), "\n")
	_, total, _ := strings.Cut(line, "total=")
	us, _ := strconv.ParseInt(total, 10, 64)
	return time.Duration(us) * time.Microsecond
}

// excuses says whether the machine may be the reason why something took longer than it should, by
// so much, between two times: for half of that time something waited for a processor, or nothing
// ran at all.
func (m *machine) excuses(from, to int64, by time.Duration) bool {
	if m == nil || len(m.moments) == 0 {
		return false
	}
	if m.busy {
		return true
	}
	find := func(t int64) int {
		i, _ := slices.BinarySearchFunc(m.moments, t,
			func(a moment, t int64) int { return int(max(-1, min(1, a.at-t))) })
		return i
	}
	last := len(m.moments) - 1
	a, b := m.moments[max(0, find(from)-1)], m.moments[min(last, find(to))]
	return max(b.waited-a.waited, b.late-a.late) >= by/2
}
