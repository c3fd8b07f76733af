package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func (a *app) mn() *cobra.Command {
	return &cobra.Command{
		Use:   "mn [OPTION...]",
		Short: "Mininet's command: trivet mn --topo tree,3 --test pingall",
		Long: "Mininet's command mn, with all its options, on Trivet (trivet mn --help lists them):\n" +
			"it brings a network up, runs tests or a prompt in it, and takes it down.",
		Example:            "  sudo trivet mn --topo linear,4 --link tc,bw=10 --test pingall\n  sudo trivet mn --custom lab.py --topo mytopo",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if needsRoot(args) {
				if err := needRoot("mn"); err != nil {
					return err
				}
			}
			return runPython(append([]string{"-c", startMn}, args...))
		},
	}
}

// startMn runs mininet.mn without the directory that the user is in on the path of modules, where
// python3 -m puts it: as root no file that happens to lie there may stand for a module.
const startMn = `import sys; del sys.path[0]; import runpy; runpy.run_module("mininet.mn", run_name="__main__", alter_sys=True)`

// needsRoot says whether mn does more than print something.
func needsRoot(args []string) bool {
	for _, a := range args {
		if a == "-h" || a == "--help" || a == "--version" {
			return false
		}
	}
	return true
}

func (a *app) runScript() *cobra.Command {
	return &cobra.Command{
		Use:   "run SCRIPT [ARGUMENT...]",
		Short: "Run a Mininet script, or one that imports trivet, with Trivet's Python packages",
		Long: "Run a Python program that imports mininet or trivet: both are Trivet's own then. The program is run as it is,\n" +
			"as root (to read only a script's topology, confined, there is trivet up).",
		Example:            "  sudo trivet run linuxrouter.py",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
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
					return fmt.Errorf("%s is a directory; name the script in it:  sudo trivet run %s", args[0], filepath.Join(args[0], "net.py"))
				}
			}
			if onlyDefines(args[0]) {
				a.warn(args[0] + " only defines topologies (topos), which mn brings up:  sudo trivet mn --custom " + args[0] + " --topo NAME")
			}
			return runPython(args)
		},
	}
}

// runPython goes on as Python, with Trivet's packages before others of their names.
func runPython(args []string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("python3 is not installed:  apt install python3")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	packages, err := findPackages(self)
	if err != nil {
		return err
	}
	env := os.Environ()
	path := packages
	for _, dir := range filepath.SplitList(os.Getenv("PYTHONPATH")) {
		if filepath.IsAbs(dir) { // others depend on where the user is
			path += ":" + dir
		}
	}
	env = append(env, "PYTHONPATH="+path)
	if os.Getenv("TRIVET") == "" {
		env = append(env, "TRIVET="+self)
	}
	return syscall.Exec(python, append([]string{"python3"}, args...), env)
}

// findPackages finds the Python packages: where make install puts them, in the checkout that the
// program was built in, or in the wheel that it came with.
func findPackages(self string) (string, error) {
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	here := filepath.Dir(self)
	for _, dir := range []string{"../share/trivet/python", "../python", "../.."} {
		dir = filepath.Join(here, dir)
		if _, err := os.Stat(filepath.Join(dir, "mininet", "mn.py")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("the Python packages are not at %s: run  make install",
		filepath.Join(here, "../share/trivet/python"))
}
