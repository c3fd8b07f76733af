// Package process distinguishes processes by more than their ids, which the kernel reuses.
package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Started is when a process started, in the kernel's ticks since the boot. Together with the
// process id this is unique. It is 0 if there is no such process, or only a zombie.
func Started(pid int) uint64 {
	stat, err := Stat(pid)
	if err != nil || stat.State == "Z" || stat.State == "X" {
		return 0
	}
	return stat.Starttime
}

// Parent is the id of a process's parent; 0 if there is no such process. A zombie still has a
// parent.
func Parent(pid int) int {
	stat, _ := Stat(pid)
	return stat.PPID
}

// Inside is the number that a process has in its own PID namespace, as it sees itself there.
func Inside(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok { // in each namespace, the innermost last
			for _, word := range strings.Fields(numbers) {
				pid, _ = strconv.Atoi(word)
			}
		}
	}
	return pid
}

// Stat is /proc/PID/stat (proc_pid_stat(5)).
func Stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// Arguments returns a process's arguments, its name first, without empty ones at the end; none: it
// has ended, or belongs to the kernel.
func Arguments(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	called := strings.TrimRight(string(text), "\x00")
	if called == "" {
		return nil
	}
	return strings.Split(called, "\x00")
}

// Since is when a process was started, by the machine's clock.
func Since(stat procfs.ProcStat) time.Time {
	seconds, err := stat.StartTime()
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(seconds * 1e3))
}

// LastWords returns the end of a program's log, for an error.
func LastWords(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ")
}
