package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPython runs the tests of the Python packages: trivet against labs, and mininet as scripts use
// it.
func TestPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	files, err := filepath.Glob("../../python/tests/test_*.py")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no tests of the Python packages")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file, err := filepath.Abs(file)
			must(t, err)
			cmd := m.command("python3", file)
			cmd.Env = append(cmd.Env, "TRIVET="+trivet, "TRIVET_LAB="+m.name, "PYTHONDONTWRITEBYTECODE=1")
			if r := m.do(cmd); r.code != 0 {
				t.Errorf("exit code %d:\n%s\n%s", r.code, r.out, r.err)
			}
		})
	}
}

// TestMininetCommand proves that trivet mn and trivet run find the packages and run them, in a
// checkout and where make install puts them, and say what is wrong.
func TestMininetCommand(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	t.Parallel()
	m := newMachine(t)
	m.env = []string{"TRIVET_LAB=" + m.name}
	if out := m.ok("mn", "--version"); out != "2.3.0\n" {
		t.Errorf("mn --version says %q", out)
	}
	script := m.file("net.py", "import sys, trivet, mininet\nprint(sys.argv[1:])\n")
	if out := m.ok("run", script, "--bw", "3"); out != "['--bw', '3']\n" {
		t.Errorf("the script has printed %q", out)
	}
	m.want(2, "run")
	m.want(1, "run", "/no/such.py")
}
