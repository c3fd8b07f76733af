package config

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// complaint matches the number of the line in a tool's error.
var complaint = regexp.MustCompile(`(?:-|stdin):(\d+)|line:? (\d+)(?:: %)?|bird: \S+\.conf:(\d+)(?::\d+)?`)

// try has a tool check a text in a place where it cannot change anything. Errors that contain
// passes are ignored, as they only concern that place.
func try(ctx context.Context, n *topology.Node, c topology.ConfigFile, passes string, command ...string) error {
	said, err := alone(ctx, nil, c.Text, command...)
	if err == nil || passes != "" && strings.Contains(said, passes) {
		return nil
	}
	return complained(n, c, said, err)
}

// complained turns the output of a tool that has refused a text into an error.
func complained(n *topology.Node, c topology.ConfigFile, said string, err error) error {
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	line := 0
	if m := complaint.FindStringSubmatch(said); m != nil {
		line, _ = strconv.Atoi(m[1] + m[2] + m[3])
		if m[1] == "" { // no number: the problem itself says where
			first = strings.TrimSpace(strings.Replace(first, m[0], "", 1))
		}
	}
	var problems topology.Problems
	problems.Add(c.Position(line), "", "%s of %s: %s", c.Kind, n.Name, cmp.Or(first, err.Error()))
	return problems.Err()
}

// alone runs a program in a network namespace of its own, if this process is root's; as may name
// another user.
func alone(ctx context.Context, as *syscall.Credential, input string, command ...string) (said string, err error) {
	ctx, cancel := patience.Query.Context(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Env = strings.NewReader(input), append(os.Environ(), "LC_ALL=C")
	if as != nil { // that user can read its processes' environment
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Credential: as}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// lines calls f with each line of a text that is neither empty nor a comment, and its number.
func lines(c topology.ConfigFile, f func(number int, line string)) {
	for i, line := range strings.Split(c.Text, "\n") {
		if !isComment(line) {
			f(i+1, strings.TrimSpace(line))
		}
	}
}

// complain returns a function that adds problems of a text.
func complain(n *topology.Node, c topology.ConfigFile,
	problems *topology.Problems) func(line int, hint, format string, args ...any) {
	return func(line int, hint, format string, args ...any) {
		problems.Add(c.Position(line), hint, "%s of %s: %s", c.Kind, n.Name, fmt.Sprintf(format, args...))
	}
}

// firewalled says whether a node's network namespace has any firewall rules: most nodes have none,
// and then no program need be run to list them.
func firewalled(in datapath.Running) (some bool, err error) {
	err = in.Inside(func() error {
		some, err = hasRules()
		return err
	})
	return some, err
}
