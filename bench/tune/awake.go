package tune

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/measure/environment"
)

// AwakeCommand is the argument that makes the program keep processors awake: see Awake.
const AwakeCommand = "__awake"

// latencyDevice is a device with which a program limits how long a processor may take to wake, in
// microseconds, while it keeps it open (Documentation/power/pm_qos_interface.rst).
var latencyDevice = "/dev/cpu_dma_latency"

// wakes is the timeout for the loops to start, and to end.
const wakes = 5 * time.Second

// AwakeBy says how processors are kept awake on this machine: by the kernel, if its cpuidle driver
// honours the device, else by loops.
func AwakeBy() string {
	driver, err := os.ReadFile(filepath.Join(cpuDir, "cpuidle", "current_driver"))
	_, missing := os.Stat(latencyDevice)
	if name := strings.TrimSpace(string(driver)); err != nil || missing != nil || name == "" || name == "none" {
		return environment.ByLoops
	}
	return environment.ByLatency
}

// keepAwake keeps processors from sleeping until end is called, or this process has ended.
func keepAwake(cpus CPUs) (end func() error, err error) {
	if AwakeBy() == environment.ByLoops {
		return loops(cpus)
	}
	f, err := os.OpenFile(latencyDevice, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("keep processors awake: %w", err)
	}
	if _, err := f.Write(binary.NativeEndian.AppendUint32(nil, 0)); err != nil {
		return nil, errors.Join(fmt.Errorf("keep processors awake: %w", err), f.Close())
	}
	return f.Close, nil
}

// loops starts a process with a thread on each processor that runs when nothing else does. The
// process ends when its input does, which this process holds.
func loops(cpus CPUs) (end func() error, err error) {
	cmd := exec.Command("/proc/self/exe", AwakeCommand, cpus.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to handle
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("keep processors awake: %w", err)
	}
	late := time.AfterFunc(wakes, func() { _ = cmd.Process.Kill() })
	_, err = bufio.NewReader(out).ReadString('\n')
	if !late.Stop() || err != nil {
		_ = in.Close()
		_ = cmd.Wait()
		return nil, fmt.Errorf("keep processors awake: the loops did not begin: %s", strings.TrimSpace(said.String()))
	}
	return func() error {
		late := time.AfterFunc(wakes, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			why := strings.TrimSpace(said.String())
			return fmt.Errorf("processors were not kept awake all the time: %w: %s", err, why)
		}
		return nil
	}, nil
}

// Awake runs a loop on each of a list of processors, with the policy SCHED_IDLE (sched(7)):
// everything else takes precedence, and the kernel considers a processor with only the loop idle.
// It prints "awake" once all loops run, and exits when its input ends; it returns only with an
// error.
func Awake(list string) error {
	cpus, err := ParseCPUs(list)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1) // a collection would wait for the loops, which may not run for long
	runtime.GOMAXPROCS(len(cpus) + 2)
	begun := make(chan error, len(cpus))
	for _, cpu := range cpus {
		go func() {
			runtime.LockOSThread()
			err := yielding(cpu)
			if begun <- err; err != nil {
				return
			}
			//lint:ignore SA5002 that is all that it is to do
			for {
			}
		}()
	}
	for range cpus {
		if err := <-begun; err != nil {
			return err
		}
	}
	fmt.Println("awake")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
	return nil
}

// yielding binds the calling thread to a processor, where it yields to all others. With this
// policy, its niceness only affects how the kernel accounts for its time.
func yielding(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processor %d: %w", cpu, err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19); err != nil {
		return fmt.Errorf("niceness: %w", err)
	}
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: 19}
	if err := unix.SchedSetAttr(0, &idle, 0); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}
