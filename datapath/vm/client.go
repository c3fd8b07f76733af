package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/topology"
)

// Dial reaches a guest's agent from the network namespace of its node, in which the calling thread
// must be.
func Dial(ctx context.Context) (*ssh.Client, error) {
	return qemu.Login(ctx, agentAt, &ssh.ClientConfig{})
}

// Routes returns the guest's routing table, in the format of /proc/net/route (proc(5)).
func Routes(ctx context.Context, c *ssh.Client) (string, error) {
	text, err := request(ctx, c, "routes", nil)
	return string(text), err
}

// Set changes settings of the guest's kernel.
func Set(ctx context.Context, c *ssh.Client, list []datapath.Setting) error {
	payload, err := json.Marshal(list)
	if err == nil {
		_, err = request(ctx, c, "settings", payload)
	}
	return err
}

// What is asked for by a channel of its own, as it may be long, and take long.
const (
	askLoad  = "load"
	askShown = "shown"
)

// longest is the most of what is asked for, or answered, in bytes.
const longest = 8 * topology.MaxConfigFile

// answer is what a guest says of a configuration of its owner's.
type answer struct {
	Shown string `json:"shown"` // what runs, or did when it had just been loaded

	Error   string `json:"error,omitempty"`
	Program string `json:"program,omitempty"` // that has failed, if that is the error
	Said    string `json:"said,omitempty"`
}

// ErrGuest is an error that a guest has answered with, rather than not at all.
var ErrGuest = errors.New("in the virtual machine")

// Load has a guest run its programs, of which a Spec says how, with the configuration of its
// owner's, and returns what the programs' client showed when it had just been loaded. An error of
// the guest's is an ErrGuest; if a program has failed, it is a *routerd.Failure, too.
func Load(ctx context.Context, c *ssh.Client, s *Spec) (shown string, err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	ctx, cancel := patience.GuestProgram.Context(ctx)
	defer cancel()
	return converse(ctx, c, askLoad, text)
}

// Shown returns what the programs' client shows.
func Shown(ctx context.Context, c *ssh.Client) (string, error) {
	ctx, cancel := patience.Query.Context(ctx)
	defer cancel()
	return converse(ctx, c, askShown, nil)
}

// converse asks the agent something by a channel of its own. A guest that does not answer in time
// loses the connection.
func converse(ctx context.Context, c *ssh.Client, kind string, text []byte) (string, error) {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	ch, requests, err := c.OpenChannel(kind, nil)
	if err != nil {
		return "", fmt.Errorf("ask the virtual machine: %w", err)
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	if _, err := ch.Write(text); err != nil {
		return "", fmt.Errorf("ask the virtual machine: %w", err)
	}
	if err := ch.CloseWrite(); err != nil {
		return "", fmt.Errorf("ask the virtual machine: %w", err)
	}
	said, err := io.ReadAll(io.LimitReader(ch, longest))
	var is answer
	if err == nil {
		err = json.Unmarshal(said, &is)
	}
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("the virtual machine does not answer: %w", context.Cause(ctx))
	case err != nil:
		return "", fmt.Errorf("the virtual machine's answer: %w", err)
	case len(is.Program)+len(is.Said)+len(is.Error) > mostSaid:
		return "", fmt.Errorf("%w: it says more of what is wrong than %d bytes", ErrGuest, mostSaid)
	case is.Program != "":
		return "", fmt.Errorf("%w: %w", ErrGuest,
			&routerd.Failure{Program: is.Program, Said: is.Said, Err: errors.New(is.Error)})
	case is.Error != "":
		return "", fmt.Errorf("%w: %s", ErrGuest, is.Error)
	}
	return is.Shown, nil
}

// mostSaid bounds what a guest says of what is wrong, in bytes: it becomes part of messages.
const mostSaid = 64 << 10

// request asks the agent something. A guest that does not answer in time loses the connection.
func request(ctx context.Context, c *ssh.Client, kind string, payload []byte) ([]byte, error) {
	ctx, cancel := patience.Machine.Context(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	ok, answer, err := c.SendRequest(kind, true, payload)
	if err == nil && !ok {
		err = fmt.Errorf("the agent's answer to %s: %s", kind, answer)
	}
	return answer, err
}

// ExecCommand is the argument with which this program stands in a node for a command in its guest.
const ExecCommand = "__guest-exec"

// Enclose makes a command of a node one that runs in its guest.
func Enclose(cmd *exec.Cmd, program string) {
	command := cmd.Args
	if len(command) == 0 {
		command = []string{cmd.Path}
	}
	if strings.Contains(cmd.Path, "/") {
		command = append([]string{cmd.Path}, command[1:]...)
	}
	cmd.Args = append([]string{program, ExecCommand, cmd.Dir}, command...)
	cmd.Path, cmd.Dir, cmd.Err = program, "/", nil
}

// Exec runs a command in the guest of the node that this process is in: a directory and the command
// are given. Its input and output, terminal, signals and exit code are this process's.
func Exec(args []string) int {
	code, err := execIn(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "trivet:", err)
		return 126
	}
	return code
}

func execIn(args []string) (int, error) {
	if len(args) < 2 {
		return 0, errors.New("no command")
	}
	client, err := Dial(context.Background())
	if err != nil {
		return 0, fmt.Errorf("the virtual machine does not answer: %w", err)
	}
	defer client.Close()
	what, err := json.Marshal(ask{args[1:], os.Environ(), args[0]})
	if err != nil {
		return 0, err
	}
	return qemu.RunSession(client, string(what))
}
