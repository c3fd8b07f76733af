package e2e

import (
	"fmt"
	"os"
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

// TestWhichPython proves that trivet run takes the Python that is asked for, else that of the
// environment that is active, also where sudo was called in it, but not for somebody else's
// program, else that of the environment that Trivet is installed in; and that it says so.
func TestWhichPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	t.Parallel()
	m := newMachine(t)
	env := filepath.Join(m.dir, "env")
	python := filepath.Join(env, "bin/python3")
	packages := filepath.Join(env, "lib/python3.0/site-packages") // no Python looks there by itself
	checkout, err := filepath.Abs("../../python")
	must(t, err)
	m.sh("mkdir -p " + filepath.Dir(python) + " " + packages + " && cp -r " + checkout + "/mininet " + checkout + "/trivet " + packages +
		" && cp " + trivet + " " + env + "/bin && ln -s $(python3 -c 'import sys; print(sys.executable)') " + python +
		" && echo home = $(dirname $(readlink -f " + python + ")) >" + env + "/pyvenv.cfg && ln -s " + env + "/bin/trivet " + m.dir)
	script := m.file("net.py", "import os, sys, trivet\nprint(sys.prefix, os.environ.get('VIRTUAL_ENV', ''), trivet.__file__, trivet._binary.find())\n")
	sudo := filepath.Join(m.dir, "sudo") // a shell of that name, with the environment that sudo keeps to itself
	m.sh("cp -L /bin/sh " + sudo)
	own := filepath.Join(m.dir, "trivet")
	asSudo := "VIRTUAL_ENV=" + env + " SUDO_USER=bob SUDO_UID=%s " + sudo + " -c 'unset VIRTUAL_ENV; " + trivet + " run " + script + "; exit $?'"
	for _, c := range []struct{ name, shell, prefix, active, packages, program, said string }{
		{"nothing special", trivet + " run " + script, "", "", checkout, trivet, ""},
		{"asked", trivet + " run --python " + env + " " + script, env, env, checkout, trivet, "Python: " + python + "\n"},
		{"asked for an interpreter", trivet + " run --python=" + python + " " + script, env, "", checkout, trivet, "Python: " + python + "\n"},
		{"active", "VIRTUAL_ENV=" + env + " " + trivet + " run " + script, env, env, checkout, trivet, "Python: " + python + " (VIRTUAL_ENV)\n"},
		{"sudo's", fmt.Sprintf(asSudo, "0"), env, env, checkout, trivet, "Python: " + python + " (the environment that bob has called sudo in)\n"},
		{"sudo's, another's program", fmt.Sprintf(asSudo, "1000"), "", "", checkout, trivet,
			"Python: not that of " + env + ", which is active, as " + script + " is not a file of bob; to take it:  --python " + env + "\n"},
		{"the wheel's", own + " run " + script, env, "", packages, env + "/bin/trivet", "Python: " + python + " (Trivet's own environment)\n"},
	} {
		cmd := m.command("sh", "-c", c.shell)
		cmd.Env = append(os.Environ(), "VIRTUAL_ENV=", "CONDA_PREFIX=", "TRIVET=", "PYTHONPATH=/nix", "PYTHONDONTWRITEBYTECODE=1")
		r := m.do(cmd)
		prefix := c.prefix
		if prefix == "" {
			prefix = m.sh("python3 -c 'import sys; print(sys.prefix)'")
		}
		want := fmt.Sprintf("%s %s %s/trivet/__init__.py %s\n", prefix, c.active, c.packages, c.program)
		if r.code != 0 || r.out != want || r.err != c.said {
			t.Errorf("%s: want\n%s%s%s", c.name, want, c.said, r)
		}
	}
	r := m.run("run", "--python", m.dir, script)
	contains(t, r.err, "--python "+m.dir+": there is no bin/python3 in it")
	m.want(1, "run", "--python", "/no/such", script)
	m.want(2, "run", "--python")
	module := m.command("python3", "-m", "trivet", "--version")
	module.Env = append(os.Environ(), "PYTHONPATH="+checkout, "TRIVET="+trivet)
	if r := m.do(module); r.out != m.ok("--version") {
		t.Error("python -m trivet: ", r)
	}
}
