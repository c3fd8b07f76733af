package process

import (
	"os"
	"os/exec"
	"strings"
)

// variable is the prefix, in this program's environment, of names of variables that are meant for
// the program that this one stands in for: this program ignores them.
const variable = "TRIVET_FOR_"

// Marked returns variables under the names by which a stand-in passes them on.
func Marked(env []string) []string {
	out := make([]string, len(env))
	for i, e := range env {
		out[i] = variable + e
	}
	return out
}

// Meant returns the variables of an environment that Marked has renamed, with their original names.
func Meant(env []string) (out []string) {
	for _, e := range env {
		if e, marked := strings.CutPrefix(e, variable); marked {
			out = append(out, e)
		}
	}
	return out
}

// StandIn replaces a command by this program as its stand-in, with arguments and an environment.
func StandIn(cmd *exec.Cmd, env []string, arguments ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args, cmd.Env = append([]string{"trivet"}, arguments...), env
	cmd.Path, cmd.Dir, cmd.Err = self, "/", nil
	return nil
}
