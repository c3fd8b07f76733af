package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"trivet.dev/trivet/internal/process"
)

// interpreter is a Python and, if an environment is active, the environment's directory and the
// variable that names it.
type interpreter struct {
	file, environment, variable string
}

// activeIn are the variables that name an active environment.
var activeIn = []string{"VIRTUAL_ENV", "CONDA_PREFIX"}

// choosePython finds the Python for programs, and prints which it is unless it is the one in PATH.
func (a *app) choosePython(asked, self string, files []string) (interpreter, error) {
	usual, _ := exec.LookPath("python3")
	python, why, err := pickPython(asked, self, files)
	switch {
	case err != nil:
		return python, err
	case python.file == "":
		if why != "" {
			a.warn(why)
		}
		if python.file = usual; usual == "" {
			return python, errors.New("python3 is not installed:  apt install python3")
		}
	case python.file != usual && len(files) > 0:
		a.warn("Python: " + python.file + why)
	}
	return python, nil
}

// pickPython picks a Python other than the one in PATH, if there is a reason; why is what to tell
// the user.
func pickPython(asked, self string, files []string) (python interpreter, why string, err error) {
	if asked != "" {
		return askedPython(asked)
	}
	if python := activePython(os.Getenv); python.file != "" {
		if in, err := exec.LookPath("python3"); err == nil && in == python.file {
			return interpreter{}, "", nil // active as usual
		}
		return python, " (" + python.variable + ")", nil
	}
	if python := activePython(sudoersEnvironment()); python.file != "" && len(files) > 0 {
		// Whoever may change the program decides what root runs anyway. For a program of somebody
		// else, an environment would give that power to a user who may only run the program.
		if other := notOwn(files); other != "" {
			return interpreter{},
				fmt.Sprintf("Python: not that of %[1]s, which is active, as %[2]s is not a file of %[3]s; "+
					"to take it:  --python %[1]s", python.environment, other, os.Getenv("SUDO_USER")), nil
		}
		return python, " (the environment that " + os.Getenv("SUDO_USER") + " has called sudo in)", nil
	}
	here := filepath.Dir(real(self))
	if _, err := os.Stat(filepath.Join(here, "../pyvenv.cfg")); err == nil {
		return interpreter{file: filepath.Join(here, "python3")}, " (Trivet's own environment)", nil
	}
	return interpreter{}, "", nil
}

func askedPython(asked string) (python interpreter, why string, err error) {
	if info, err := os.Stat(asked); err == nil && info.IsDir() {
		dir, err := filepath.Abs(asked)
		python = pythonOf(dir, activeIn[0])
		if err == nil && python.file == "" {
			err = fmt.Errorf("--python %s: there is no bin/python3 in it", asked)
		}
		return python, "", err
	}
	if python.file, err = exec.LookPath(asked); err == nil {
		python.file, err = filepath.Abs(python.file)
	}
	if err != nil {
		return python, "", fmt.Errorf("--python %s: there is no such program; "+
			"name an interpreter, or the directory of a virtual environment", asked)
	}
	return python, "", nil
}

// activePython returns the Python of the environment that is active according to getenv.
func activePython(getenv func(string) string) interpreter {
	for _, name := range activeIn {
		if dir := getenv(name); filepath.IsAbs(dir) {
			if python := pythonOf(dir, name); python.file != "" {
				return python
			}
		}
	}
	return interpreter{}
}

// pythonOf returns the Python of an environment; its file is empty if there is none.
func pythonOf(dir, variable string) interpreter {
	file := filepath.Join(dir, "bin/python3")
	if _, err := exec.LookPath(file); err != nil {
		return interpreter{}
	}
	return interpreter{file, dir, variable}
}

// sudoersEnvironment reads the environment in which sudo was called: sudo does not pass it on, but
// root finds it in /proc.
func sudoersEnvironment() func(string) string {
	data := ""
	if os.Getenv("SUDO_UID") != "" && os.Geteuid() == 0 {
		was := ""
		for pid := process.Parent(os.Getpid()); pid > 1; pid = process.Parent(pid) {
			stat, err := process.Stat(pid)
			if err != nil || was == "sudo" && stat.Comm != was {
				break
			}
			if was = stat.Comm; was == "sudo" { // sudo with a terminal has two processes
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
				data = string(b)
			}
		}
	}
	return func(name string) string {
		for _, entry := range strings.Split(data, "\x00") {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// notOwn returns a file that does not belong to the user who called sudo.
func notOwn(files []string) string {
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return file
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || fmt.Sprint(stat.Uid) != os.Getenv("SUDO_UID") {
			return file
		}
	}
	return ""
}
