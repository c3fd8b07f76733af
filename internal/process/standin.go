package process

import (
	"os"
	"os/exec"
	"strings"
)

// variable precedes, in this program's environment, the names of the variables that are for the
// program that this one stands for: what they say is nothing that this one goes by.
const variable = "TRIVET_FOR_"

// Marked are variables as they are given to this program for the one that it stands for.
func Marked(env []string) []string {
	out := make([]string, len(env))
	for i, e := range env {
		out[i] = variable + e
	}
	return out
}

// Meant are those variables among an environment.
func Meant(env []string) (out []string) {
	for _, e := range env {
		if e, marked := strings.CutPrefix(e, variable); marked {
			out = append(out, e)
		}
	}
	return out
}

// StandIn makes a command this program, which is to stand for it, with arguments and an
// environment.
func StandIn(cmd *exec.Cmd, env []string, arguments ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args, cmd.Env = append([]string{"trivet"}, arguments...), env
	cmd.Path, cmd.Dir, cmd.Err = self, "/", nil
	return nil
}
