package flowload

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Proves that the processor time of a process is counted with that of its children: a shell that
// does nothing but have another one count is charged for it.
func TestCPUTimeOfChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 60' & wait")
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer endGroup(cmd)
	for range 1000 {
		used, err := cpuTime(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if used >= 50*time.Millisecond {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("no processor time after 20 s")
}

// Proves that a meter sees what this process does, and memory what it holds.
func TestMeter(t *testing.T) {
	m, err := startMeter(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for x, began := uint64(1), ownTime(); ownTime()-began < 100*time.Millisecond; x *= 3 {
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	var r Result
	m.usage(&r)
	if r.Generator.CPUSeconds < 0.1 || r.Controller.CPUSeconds < 0.05 || r.Controller.RSS < 1<<20 || r.Controller.PSS < 1<<19 {
		t.Errorf("generator %+v, controller %+v", r.Generator, r.Controller)
	}
	if _, err := cpuTime(1 << 30); err == nil {
		t.Error("a process that does not exist has processor time")
	}
}

// ownGroup and endGroup start a command in a process group and end that with all that is in it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func endGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
}
