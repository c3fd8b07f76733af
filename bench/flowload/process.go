package flowload

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
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
		stat, err := process.Stat(p)
		if err != nil {
			if i == 0 {
				return 0, fmt.Errorf("the controller's process: %w", err)
			}
			continue // a child that has just ended: its parent's count has it
		}
		sum += time.Duration(int(stat.UTime)+int(stat.STime)+stat.CUTime+stat.CSTime) * clockTick
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
	for _, pid := range family(pid) {
		p, err := procfs.NewProc(pid)
		if err != nil {
			continue // it has just ended
		}
		if status, err := p.NewStatus(); err == nil {
			rss += status.VmRSS
		}
		if rollup, err := p.ProcSMapsRollup(); err == nil {
			pss += rollup.Pss
		}
	}
	return rss, pss
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
	u := &Usage{CPUSeconds: m.controllerUsed, CPUShare: m.controllerUsed / m.seconds,
		Waited: m.kept.Seconds() / m.seconds}
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
// (/proc/PID/task/TID/schedstat).
func waitTime(pid int) (sum time.Duration) {
	threads, _ := procfs.AllThreads(pid)
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // else it has just ended
			sum += time.Duration(s.WaitingNanoseconds)
		}
	}
	return sum
}
