// Package process tells processes apart by more than their number, which the kernel gives to
// another one later.
package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Started is when a process started, in the kernel's ticks since the boot (field 22 of stat,
// proc_pid_stat(5)). With its number that is unmistakable. 0 is that there is none; a zombie is
// none.
func Started(pid int) uint64 {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return started(stat)
}

// Parent is the number of a process's parent (field 4 of stat); 0 is that there is no such process.
// A zombie has one.
func Parent(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := afterName(stat)
	if err != nil || len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

func started(stat []byte) uint64 {
	fields := afterName(stat)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	start, _ := strconv.ParseUint(fields[19], 10, 64)
	return start
}

// afterName are the fields of a stat from the third on. The second one is the process's name in
// brackets, which may hold brackets and spaces itself: what follows begins after the last bracket.
func afterName(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}
