// Package process tells processes apart by more than their number, which the kernel gives to
// another one later.
package process

import "github.com/prometheus/procfs"

// Started is when a process started, in the kernel's ticks since the boot. With its number that is
// unmistakable. 0 is that there is none; a zombie is none.
func Started(pid int) uint64 {
	stat, err := stat(pid)
	if err != nil || stat.State == "Z" || stat.State == "X" {
		return 0
	}
	return stat.Starttime
}

// Parent is the number of a process's parent; 0 is that there is no such process. A zombie has one.
func Parent(pid int) int {
	stat, _ := stat(pid)
	return stat.PPID
}

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}
