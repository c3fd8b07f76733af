package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

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
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		all, got := c.Processes(lab, "h1"), Below(group(c.CPU, lab))
		// A thread that starts a process enters the group and ends, except a process's first one.
		got = slices.DeleteFunc(got, func(pid int) bool { return pid == os.Getpid() })
		if len(all) == 6 && len(got) == 6 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %v only %v are in the group with the limit", all, got)
		}
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
