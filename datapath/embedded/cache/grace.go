//go:build linux

package cache

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// realtime reports whether the kernel may preempt the eBPF program for a thread (PREEMPT_RT).
var realtime = func() bool {
	_, err := os.Stat("/sys/kernel/realtime")
	return err == nil
}()

// longRun is much longer than any run of the program takes, even on a busy machine.
const longRun = 50 * time.Millisecond

// grace waits until every run of the program that had begun before has ended. Threads do not
// preempt the program: so a thread that has run on each processor need not wait any longer. That
// takes microseconds; the alternative, a grace period of RCU, takes milliseconds.
func grace() {
	if realtime || !tour() {
		const global = 1 // MEMBARRIER_CMD_GLOBAL
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
			time.Sleep(longRun)
		}
	}
}

// tour runs this thread on each processor in turn; false: it may not run on all.
func tour() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil {
		return false
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	online, err := onlineCPUs()
	if err != nil {
		return false
	}
	for _, cpu := range online {
		var only unix.CPUSet
		only.Set(cpu)
		if unix.SchedSetaffinity(0, &only) != nil {
			return false
		}
	}
	return true
}

// onlineCPUs returns the processors that are online. One that has gone offline since runs nothing.
func onlineCPUs() (list []int, err error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// parseCPUs reads a list like 0-3,5.
func parseCPUs(s string) (list []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				return nil, err
			}
		}
		for cpu := from; cpu <= to; cpu++ {
			list = append(list, cpu)
		}
	}
	return list, nil
}
