package local

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/process"
)

// TestPIDNamespace proves that a node's PID namespace is that of its first process, and that
// neither a process that has ended nor another one that has got its number since is taken for that.
func TestPIDNamespace(t *testing.T) {
	l := &Lab{Dir: t.TempDir()}
	if err := os.Mkdir(l.nsDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	first := exec.Command("sleep", "600")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	})
	pid := first.Process.Pid
	const ended = "the first process of h1 has ended"
	for _, c := range []struct{ file, wrong string }{
		{"", ""},
		{fmt.Sprintf("%d %d\n", pid, process.Started(pid)), ""},
		{fmt.Sprintf("%d %d\n", pid, process.Started(pid)-1), ended},
		{fmt.Sprintf("%d %d\n", 1<<22, 7), ended}, // more than the kernel gives
		{"7", "ns/pid-h1: "},
	} {
		if c.file != "" {
			if err := os.WriteFile(l.initFile("h1"), []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f, err := l.pidNamespace("h1")
		if has := f != nil; has != (c.file != "" && c.wrong == "") || c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q: %v, %v", c.file, has, err)
		}
		if f != nil {
			f.Close()
		}
	}
}
