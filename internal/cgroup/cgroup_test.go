package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

func init() { runtime.LockOSThread() } // the first thread is not to be left in a group

// TestProcesses proves, with real processes in real groups, that the processes in a tree of groups,
// including groups further down, are found and ended, and that one in a sibling group is neither.
func TestProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	c, err := Find()
	if err != nil {
		t.Skip(err)
	}
	top := filepath.Join(c.roots()[0], fmt.Sprintf("trivet-test-%d", os.Getpid()))
	started := map[string]*exec.Cmd{}
	for _, path := range []string{"", "lab", "lab/h1", "beside"} {
		dir := filepath.Join(top, path)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("no group can be made here: %v", err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if path == "" {
			continue
		}
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
		started[path] = cmd
	}
	want := []int{started["lab"].Process.Pid, started["lab/h1"].Process.Pid}
	got := Below(filepath.Join(top, "lab"))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("in the lab's groups are %v, and %v were found", want, got)
	}
	killAll(filepath.Join(top, "lab"))
	for _, path := range []string{"lab", "lab/h1"} {
		if err := started[path].Wait(); err == nil || started[path].ProcessState.String() != "signal: killed" {
			t.Errorf("what was in %s: %v", path, started[path].ProcessState)
		}
	}
	if got := Below(filepath.Join(top, "lab")); len(got) != 0 {
		t.Errorf("%v are left", got)
	}
	if err := started["beside"].Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the one beside: %v", err)
	}
}

// TestProcessesOfOthers proves that processes of another PID namespace, which a group shows as 0,
// are skipped: signalling 0 would end the sender, and all of its process group.
func TestProcessesOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0\n12\n0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Below(dir); !slices.Equal(got, []int{12}) {
		t.Errorf("%v", got)
	}
}

// TestLimited proves that a node's processes, including those already running, are in a group of
// version 1's cpu controller from the time it has a limit, and not before: all processes of a group
// would together count as one against those in no group.
func TestLimited(t *testing.T) {
	c, err := Find()
	if err != nil || c.CPU == "" || c.CPU == c.roots()[0] || os.Geteuid() != 0 {
		t.Skip("needs root and version 1's cpu controller")
	}
	lab := fmt.Sprintf("test-limited-%d", os.Getpid())
	t.Cleanup(func() { _ = c.Remove(lab) })
	in := func(cmd *exec.Cmd) bool { return slices.Contains(Below(group(c.CPU, lab)), cmd.Process.Pid) }
	start := func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", "sleep 600 & sleep 600 & wait")
		if err := c.Start(lab, "h1", cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	if cmd := start(); in(cmd) {
		t.Error("a process without a limit is in a group")
	}
	node := &topology.Node{Name: "h1", CPU: topology.CPU{CPUs: 0.5}}
	if err := c.Set(lab, &topology.Node{Name: "h1"}, node); err != nil {
		t.Fatal(err)
	}
	if cmd := start(); !in(cmd) {
		t.Error("a process that is started with a limit is in no group")
	}
	until.True(t, "all six are in the group with the limit", func() bool {
		return len(c.Processes(lab, "h1")) == 6 && len(Below(group(c.CPU, lab))) == 6
	})
}

// versionOne are the machine's hierarchies of version 1, where all that labs need is there, and a
// lab in them that goes away with the test.
func versionOne(t *testing.T) (c Hierarchies, lab string) {
	c, err := Find()
	if c.V2 = ""; err != nil || c.CPU == "" || os.Geteuid() != 0 {
		t.Skip("needs root and version 1's cpu controller")
	}
	lab = fmt.Sprintf("test-v1-%d", os.Getpid())
	if err := errors.Join(c.MakeLab(lab), c.Make(lab, &topology.Node{Name: "h1"})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Remove(lab); err != nil {
			t.Error(err)
		}
	})
	return c, lab
}

// TestStarting proves, with version 1, that a process which is just starting another one in a group
// is none of that group's, so that it is neither ended nor limited with it; and that the one which
// it starts gets a limit that is set meanwhile.
func TestStarting(t *testing.T) {
	c, lab := versionOne(t)
	cmd := exec.Command("sleep", "600")
	entered, limited := make(chan error), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, as in Start
		_, err := c.Bear(cmd, lab, "h1")
		entered <- err
		<-limited
		entered <- cmd.Start()
	}()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	if pids := c.Processes(lab, "h1"); len(pids) > 0 {
		t.Errorf("%v are in the group; this is %d", pids, os.Getpid())
	}
	if err := c.Limit(lab, "h1", topology.CPU{CPUs: 0.5}); err != nil {
		t.Error(err)
	}
	if own, err := os.ReadFile("/proc/self/cgroup"); err != nil || strings.Contains(string(own), lab) {
		t.Errorf("this process is in the lab: %s %v", own, err)
	}
	close(limited)
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if pids := Below(group(c.CPU, lab, "h1")); !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("%v have the limit; %d should", pids, cmd.Process.Pid)
	}
}

// TestFirstThread proves, with version 1, that a process whose first thread has ended, while
// another runs, is found in its group and ended.
func TestFirstThread(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	c, lab := versionOne(t)
	cmd := exec.Command(python, "-c", "import ctypes, threading, time\n"+
		"threading.Thread(target=time.sleep, args=(600,)).start()\n"+
		fmt.Sprintf("ctypes.CDLL(None).syscall(%d, 0)", unix.SYS_EXIT))
	if err := c.Start(lab, "h1", cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until.True(t, "its first thread ends", func() bool { return process.Started(cmd.Process.Pid) == 0 })
	if pids := c.Processes(lab, "h1"); !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Fatalf("%v are in the group; %d should be", pids, cmd.Process.Pid)
	}
	if err := c.Kill(lab, "h1"); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.String() != "signal: killed" {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

// TestKill proves, with version 1, that of processes which start others all the time, and end, none
// is left.
func TestKill(t *testing.T) {
	c, lab := versionOne(t)
	cmd := exec.Command("sh", "-c", "next() { next & }; for i in 1 2 3 4 5 6 7 8 9 10; do next; done")
	if err := c.Start(lab, "h1", cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := c.Kill(lab, "h1"); err != nil {
		t.Error(err)
	}
	if pids := c.Processes(lab, "h1"); len(pids) > 0 {
		t.Errorf("%v are left", pids)
	}
}

// TestMakeLab proves that a lab gets its group while other labs, each the last one, take away the
// group above.
func TestMakeLab(t *testing.T) {
	c := Hierarchies{Any: t.TempDir()} // plain directories, which are made and removed as groups are
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Remove(group(c.Any))
			}
		}
	}()
	for range 2000 {
		if err := c.MakeLab("lab"); err != nil {
			t.Error(err)
			break
		}
		if err := os.Remove(group(c.Any, "lab")); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-ended
}
