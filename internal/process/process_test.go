package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"trivet.dev/trivet/test/until"
)

// TestStarted proves that the start of a process stays the same and differs from that of a later
// process, even for one whose name looks like the end of the name field; that a process that has
// ended, waited for or not, has none; and that its parent is found.
func TestStarted(t *testing.T) {
	own := Started(os.Getpid())
	if own == 0 || Started(os.Getpid()) != own {
		t.Fatalf("this process started at %d, then at %d", own, Started(os.Getpid()))
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "a) Z 1 (b) ")
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := Started(cmd.Process.Pid); got < own || got == 0 {
		t.Errorf("%q started at %d, and this process before it at %d", program, got, own)
	}
	if got := Parent(cmd.Process.Pid); got != os.Getpid() {
		t.Errorf("the parent of %q is said to be %d, not %d", program, got, os.Getpid())
	}
	_ = cmd.Process.Kill()
	until.True(t, "a process that was killed counts as one no more", func() bool { return Started(cmd.Process.Pid) == 0 })
	_ = cmd.Wait()
	if got := Started(cmd.Process.Pid); got != 0 {
		t.Errorf("a process that has ended started at %d", got)
	}
}
