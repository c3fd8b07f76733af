package flowload

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process took of the machine.
type Usage struct {
	CPUSeconds float64 `json:"cpu_seconds"`         // with its threads and its children
	CPUShare   float64 `json:"cpu_share"`           // of one processor
	Waited     float64 `json:"waited,omitempty"`    // share of the time in which its threads waited for a processor
	RSS        uint64  `json:"rss_bytes,omitempty"` // at the end
	PSS        uint64  `json:"pss_bytes,omitempty"`
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all of Linux's architectures
// that Go knows.
const clockTick = 10 * time.Millisecond

// cpuTime returns the processor time of a process with all its threads, and of its children, alive
// and dead (proc_pid_stat(5)). Its resolution is 10 ms.
func cpuTime(pid int) (sum time.Duration, err error) {
	for i, p := range family(pid) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			if i == 0 {
				return 0, fmt.Errorf("the controller's process: %w", err)
			}
			continue // a child that has just ended: its parent's count has it
		}
		after := string(b[strings.LastIndexByte(string(b), ')')+1:]) // the name may hold anything
		fields := strings.Fields(after)
		if len(fields) < 15 {
			return 0, fmt.Errorf("/proc/%d/stat has %d fields", p, len(fields))
		}
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/%d/stat: %w", p, err)
			}
			sum += time.Duration(n) * clockTick
		}
	}
	return sum, nil
}

// family returns a process and all that descend from it.
func family(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, l := range lists {
			b, _ := os.ReadFile(l)
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					pids = append(pids, n)
				}
			}
		}
	}
	return pids
}

// memory returns the resident and the proportional set size of a process and its children, in
// bytes.
func memory(pid int) (rss, pss uint64) {
	for _, p := range family(pid) {
		rss += kilobytes(fmt.Sprintf("/proc/%d/status", p), "VmRSS:")
		pss += kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", p), "Pss:")
	}
	return rss, pss
}

func kilobytes(file, key string) uint64 {
	b, _ := os.ReadFile(file)
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == key {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n * 1024
		}
	}
	return 0
}

// meter samples processor times at the ends of a period.
type meter struct {
	pid                 int
	at                  time.Time
	controller, own     time.Duration
	waited, kept        time.Duration // by us and by the controller, for a processor
	seconds             float64
	controllerUsed, ran float64 // seconds of processor
}

func startMeter(pid int) (*meter, error) {
	m := &meter{pid: pid, at: time.Now(), own: ownTime(), waited: waitTime(os.Getpid())}
	if pid == 0 {
		return m, nil
	}
	var err error
	m.controller, err = cpuTime(pid)
	m.kept = waitTime(pid)
	return m, err
}

// stop ends the period.
func (m *meter) stop() error {
	m.seconds = time.Since(m.at).Seconds()
	m.ran = (ownTime() - m.own).Seconds()
	m.waited = waitTime(os.Getpid()) - m.waited
	if m.pid == 0 {
		return nil
	}
	now, err := cpuTime(m.pid)
	m.controllerUsed = (now - m.controller).Seconds()
	m.kept = waitTime(m.pid) - m.kept
	return err
}

// usage writes the period down.
func (m *meter) usage(r *Result) {
	r.Generator = Usage{CPUSeconds: m.ran, CPUShare: m.ran / m.seconds, Waited: m.waited.Seconds() / m.seconds}
	if m.pid == 0 {
		return
	}
	u := &Usage{CPUSeconds: m.controllerUsed, CPUShare: m.controllerUsed / m.seconds, Waited: m.kept.Seconds() / m.seconds}
	u.RSS, u.PSS = memory(m.pid)
	r.Controller = u
}

// ownTime is the processor time of this process.
func ownTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// waitTime is how long the threads of a process could have run and had no processor
// (/proc/PID/task/TID/schedstat, second number, ns).
func waitTime(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if fields := strings.Fields(string(b)); len(fields) >= 2 {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}
