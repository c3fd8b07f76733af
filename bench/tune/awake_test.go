package tune

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/measure/environment"
)

// holdCommand makes this test keep processors awake by loops, say where they are, and stay.
const holdCommand = "__hold"

// TestMain also plays the parts in which the program starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case AwakeCommand:
			fmt.Fprintln(os.Stderr, Awake(os.Args[2]))
			os.Exit(1)
		case holdCommand:
			if _, err := loops(CPUs{0}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println("holds")
			time.Sleep(time.Minute)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// without makes this machine one that has no device to ask for latency.
func without(t *testing.T) {
	t.Helper()
	before := latencyDevice
	latencyDevice = filepath.Join(t.TempDir(), "none")
	t.Cleanup(func() { latencyDevice = before })
}

// loopsBelow are the threads that run by SCHED_IDLE in processes which a process has started, by
// the processors that they are bound to.
func loopsBelow(t *testing.T, parent int) map[string]int {
	t.Helper()
	out := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(strings.Split(dir, "/")[2])
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil || process.Parent(pid) != parent {
			continue
		}
		words := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		if len(words) < 39 || words[38] != strconv.Itoa(unix.SCHED_IDLE) { // policy, the 41st (proc_pid_stat(5))
			continue
		}
		_, after, _ := strings.Cut(string(status), "Cpus_allowed_list:")
		list, _, _ := strings.Cut(after, "\n")
		out[strings.TrimSpace(list)] = pid
	}
	return out
}

// TestAwakeLoops proves that where the kernel cannot be asked each processor has a loop that yields
// to all others while the settings hold, that it is gone afterwards, and that isolated processors,
// onto which loops could not get, are refused as what this machine lacks.
func TestAwakeLoops(t *testing.T) {
	asRoot(t)
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	without(t)
	all, err := online()
	if err != nil {
		t.Fatal(err)
	}
	restore, err := Apply(Settings{Awake: true})
	if err != nil {
		t.Fatal(err)
	}
	found := loopsBelow(t, os.Getpid())
	for _, cpu := range all {
		if found[strconv.Itoa(cpu)] == 0 {
			t.Errorf("processor %d has no loop: %v", cpu, found)
		}
	}
	if _, err := Apply(Settings{Awake: true}); !errors.Is(err, errTuned) {
		t.Errorf("a second one is not refused: %v", err)
	}
	if err := restore(); err != nil {
		t.Error(err)
	}
	if left := loopsBelow(t, os.Getpid()); len(left) > 0 {
		t.Errorf("loops are left: %v", left)
	}
	var lacking *lack.Error
	if _, err := Apply(Settings{Awake: true, Isolate: all[:1].String()}); len(all) > 1 && !errors.As(err, &lacking) {
		t.Errorf("isolated processors: %v", err)
	}
	if _, err := Apply(Settings{Awake: true, Permanent: true}); err == nil || !strings.Contains(err.Error(), "only for as long") {
		t.Errorf("for good: %v", err)
	}
	if _, err := loops(CPUs{4000}); err == nil || !strings.Contains(err.Error(), "processor 4000") {
		t.Errorf("a processor that there is not: %v", err)
	}
}

// TestAwakeKilled proves that loops end with the process that wants them, also where it is killed.
func TestAwakeKilled(t *testing.T) {
	asRoot(t)
	cmd := exec.Command("/proc/self/exe", holdCommand, "")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	var loop int
	for _, loop = range loopsBelow(t, cmd.Process.Pid) {
	}
	if loop == 0 {
		t.Error("it has no loop")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for deadline := time.Now().Add(20 * time.Second); loop > 0 && process.Started(loop) != 0; time.Sleep(10 * time.Millisecond) {
		if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", loop)); strings.Contains(string(state), ") Z ") {
			break // nobody here reaps it
		}
		if time.Now().After(deadline) {
			_ = unix.Kill(loop, unix.SIGKILL)
			t.Fatal("the loop outlives the process that wanted it")
		}
	}
}

// TestAwakeDevice proves that the kernel is asked for no latency, and for how long; and that it is
// only where it has a driver of sleep states: without one it would not mind.
func TestAwakeDevice(t *testing.T) {
	before := [2]string{latencyDevice, cpuDir}
	latencyDevice, cpuDir = filepath.Join(t.TempDir(), "latency"), t.TempDir()
	t.Cleanup(func() { latencyDevice, cpuDir = before[0], before[1] })
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(latencyDevice, "")
	driver := filepath.Join(cpuDir, "cpuidle", "current_driver")
	for text, want := range map[string]string{"": environment.ByLoops, "none\n": environment.ByLoops, "intel_idle\n": environment.ByLatency} {
		if write(driver, text); AwakeBy() != want {
			t.Errorf("with the driver %q by %s, want %s", text, AwakeBy(), want)
		}
	}
	write(driver, "haltpoll\n")
	open := func() (n int) {
		all, _ := filepath.Glob("/proc/self/fd/*")
		for _, fd := range all {
			if to, err := os.Readlink(fd); err == nil && to == latencyDevice {
				n++
			}
		}
		return n
	}
	end, err := keepAwake(CPUs{0})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(latencyDevice); err != nil || string(b) != "\x00\x00\x00\x00" || open() != 1 {
		t.Errorf("%q, %v, open %d times", b, err, open())
	}
	if err := end(); err != nil || open() != 0 {
		t.Errorf("%v, open %d times", err, open())
	}
	if err := os.Remove(latencyDevice); err != nil || AwakeBy() != environment.ByLoops {
		t.Errorf("without the device by %s (%v)", AwakeBy(), err)
	}
}
