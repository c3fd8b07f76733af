package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func (a *app) mn() *cobra.Command {
	return &cobra.Command{
		Use:   "mn [OPTION...]",
		Short: "Mininet's command: trivet mn --topo tree,3 --test pingall",
		Long: "Mininet's command mn, with all its options, on Trivet (trivet mn --help lists them):\n" +
			"it brings a network up, runs tests or a prompt in it, and takes it down. --python PYTHON, before them, names another Python\n" +
			"(see trivet run).",
		Example:            "  sudo trivet mn --topo linear,4 --link tc,bw=10 --test pingall\n  sudo trivet mn --custom lab.py --topo mytopo",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if needsRoot(args) {
				if err := needRoot("mn"); err != nil {
					return err
				}
			}
			asked, args, err := pythonFlag(args)
			if err != nil {
				return err
			}
			return a.runPython(asked, customFiles(args), append([]string{"-c", startMn}, args...))
		},
	}
}

// startMn runs mininet.mn without the current directory in the module path, where python3 -m puts
// it: as root, no file that happens to be there may be imported.
const startMn = `import sys; del sys.path[0]; import runpy; runpy.run_module("mininet.mn", run_name="__main__", alter_sys=True)`

// needsRoot says whether mn does more than print something.
func needsRoot(args []string) bool {
	return !slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "--help" || a == "--version" })
}

func (a *app) runScript() *cobra.Command {
	return &cobra.Command{
		Use:   "run [--python PYTHON] SCRIPT [ARGUMENT...]",
		Short: "Run a Mininet script, or one that imports trivet, with Trivet's Python packages",
		Long: "Run a Python program that imports mininet or trivet: both are Trivet's own then. The program is run as it is,\n" +
			"as root (to read only a script's topology, confined, there is trivet up).\n\n" +
			"Which Python runs it: that of --python (an interpreter, or a virtual environment); of the environment that is active\n" +
			"(VIRTUAL_ENV, CONDA_PREFIX), also where sudo was called in it, if the script is a file of who called sudo; of the\n" +
			"environment that Trivet is installed in; python3 in PATH. It is said if it is not the last.",
		Example:            "  sudo trivet run linuxrouter.py\n  sudo trivet run --python ~/env measure.py",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, args, err := pythonFlag(args)
			switch {
			case err != nil:
				return err
			case len(args) == 0:
				return usagef("say which script to run:  sudo trivet run net.py")
			case args[0] == "-h" || args[0] == "--help":
				return cmd.Help()
			case strings.HasPrefix(args[0], "-"):
				return usagef("%s: the script comes first, its options behind it", args[0])
			}
			if wrong := wrongWord(cmd, args[0], args[1:]); wrong != nil {
				return wrong
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], errors.Unwrap(err))
			}
			if info.IsDir() {
				if _, err := os.Stat(filepath.Join(args[0], "__main__.py")); err != nil {
					return fmt.Errorf("%s is a directory; name the script in it:  sudo trivet run %s", args[0],
						filepath.Join(args[0], "net.py"))
				}
			}
			if onlyDefines(args[0]) {
				a.warn(args[0] + " only defines topologies (topos), which mn brings up:  sudo trivet mn --custom " +
					args[0] + " --topo NAME")
			}
			return a.runPython(asked, args[:1], args)
		},
	}
}

// pythonFlag takes --python from the front of arguments.
func pythonFlag(args []string) (python string, rest []string, err error) {
	if len(args) == 0 {
		return "", args, nil
	}
	name, python, joined := strings.Cut(args[0], "=")
	switch {
	case name != "--python":
		return "", args, nil
	case !joined && len(args) > 1:
		python, args = args[1], args[1:]
	}
	if python == "" {
		return "", nil, usagef("--python needs a value: an interpreter, or the directory of a virtual environment")
	}
	return python, args[1:], nil
}

// customFiles returns the programs that mn runs.
func customFiles(args []string) (files []string) {
	for i, a := range args {
		value, ok := strings.CutPrefix(a, "--custom=")
		if a == "--custom" && i+1 < len(args) {
			value, ok = args[i+1], true
		}
		if ok {
			files = append(files, strings.Split(value, ",")...)
		}
	}
	return files
}

// runPython becomes Python, with Trivet's packages before others with their names. files are the
// programs to run.
func (a *app) runPython(asked string, files, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	packages, err := findPackages(self)
	if err != nil {
		return err
	}
	python, err := a.choosePython(asked, self, files)
	if err != nil {
		return err
	}
	path := packages
	for _, dir := range filepath.SplitList(os.Getenv("PYTHONPATH")) {
		if filepath.IsAbs(dir) { // others depend on the user's directory
			path += ":" + dir
		}
	}
	set := map[string]string{"PYTHONPATH": path, "TRIVET": cmp.Or(os.Getenv("TRIVET"), self)}
	if python.variable != "" { // activate it for the script's children, too
		set[python.variable] = python.environment
		set["PATH"] = filepath.Dir(python.file) + ":" + os.Getenv("PATH")
	}
	for name, value := range set {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return syscall.Exec(python.file, append([]string{python.file}, args...), os.Environ())
}

// findPackages finds the Python packages: where make install puts them, in the checkout that the
// program was built in, or in the environment that the wheel is installed in.
func findPackages(self string) (string, error) {
	here := filepath.Dir(real(self))
	dirs := []string{filepath.Join(here, "../share/trivet/python"), filepath.Join(here, "../python")}
	for _, packages := range []string{"site-packages", "dist-packages"} {
		found, _ := filepath.Glob(filepath.Join(here, "../lib*/python3*", packages))
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "mininet", "mn.py")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("the Python packages are not at %s: run  make install", dirs[0])
}

// real resolves symbolic links.
func real(file string) string {
	if to, err := filepath.EvalSymlinks(file); err == nil {
		return to
	}
	return file
}
