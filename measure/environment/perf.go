package environment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counter is a perf event, summed over all processors.
type Counter struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Share of the time in which it was counted, as events share hardware counters; Value is scaled
	// up accordingly.
	Share float64 `json:"share"`
}

var perfEvents = []struct {
	name   string
	kind   uint32
	config uint64
}{
	{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{"instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	{"cache-references", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_REFERENCES},
	{"cache-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	{"cpu-migrations", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	{"page-faults", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
}

// perf holds a file descriptor per event and processor.
type perf struct {
	fds     map[string][]int
	missing []string
}

// openPerf starts counting the events that the machine and the rights of this process allow.
func openPerf(processors []int) *perf {
	p := &perf{fds: map[string][]int{}}
	for _, e := range perfEvents {
		attr := unix.PerfEventAttr{Type: e.kind, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING}
		for _, cpu := range processors {
			fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err != nil {
				closeAll(p.fds[e.name])
				delete(p.fds, e.name)
				p.missing = append(p.missing, fmt.Sprintf("perf event %s: %s", e.name, perfReason(err)))
				break
			}
			p.fds[e.name] = append(p.fds[e.name], fd)
		}
	}
	return p
}

func perfReason(err error) string {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return "this machine has no such counter (virtual machines often have none)"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "not permitted; run as root, or set the sysctl kernel.perf_event_paranoid to 0"
	case errors.Is(err, unix.ENOSYS):
		return "this kernel has no perf events"
	}
	return err.Error()
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// close reads the counters and closes them.
func (p *perf) close() (out []Counter) {
	for _, e := range perfEvents {
		fds := p.fds[e.name]
		if len(fds) == 0 {
			continue
		}
		c := Counter{Name: e.name}
		var enabled, running float64
		for _, fd := range fds {
			var b [24]byte // value, time enabled, time running
			if n, err := unix.Read(fd, b[:]); err != nil || n != len(b) {
				continue
			}
			value, on, ran := float64(binary.NativeEndian.Uint64(b[:])), float64(binary.NativeEndian.Uint64(b[8:])),
				float64(binary.NativeEndian.Uint64(b[16:]))
			if ran > 0 {
				c.Value += value * on / ran
			}
			enabled, running = enabled+on, running+ran
		}
		closeAll(fds)
		if running == 0 {
			p.missing = append(p.missing,
				fmt.Sprintf("perf event %s: it was never counted; others use the counters", e.name))
			continue
		}
		c.Share = running / enabled
		out = append(out, c)
	}
	return out
}
