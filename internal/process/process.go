// Package process tells processes apart by more than their number, which the kernel gives to
// another one later.
package process

import (
	"os"
	"strings"

	"github.com/prometheus/procfs"
)

// Started is when a process started, in the kernel's ticks since the boot. With its number that is
// unmistakable. 0 is that there is none; a zombie is none.
func Started(pid int) uint64 {
	stat, err := Stat(pid)
	if err != nil || stat.State == "Z" || stat.State == "X" {
		return 0
	}
	return stat.Starttime
}

// Parent is the number of a process's parent; 0 is that there is no such process. A zombie has one.
func Parent(pid int) int {
	stat, _ := Stat(pid)
	return stat.PPID
}

// Stat is /proc/PID/stat (proc_pid_stat(5)).
func Stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// LastWords is the end of a log, for an error about who wrote it.
func LastWords(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ")
}
