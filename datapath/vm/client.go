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

// Requests that use a channel of their own, as they may be long, and take long.
const (
	askLoad  = "load"
	askShown = "shown"
)

// longest limits requests and answers, in bytes.
const longest = 8 * topology.MaxConfigFile

// answer is a guest's answer about the configuration of the topology's author.
type answer struct {
	Shown string `json:"shown"` // the running configuration, or as it was just after loading

	Error   string `json:"error,omitempty"`
	Program string `json:"program,omitempty"` // that has failed, if that is the error
	Said    string `json:"said,omitempty"`
}

// ErrGuest wraps an error that a guest has answered, as opposed to giving no answer.
var ErrGuest = errors.New("in the virtual machine")

// Load has a guest run its programs as a Spec says, with the configuration of the topology's
// author, and returns the running configuration just after loading, as the programs' client prints
// it. A guest's error is an ErrGuest; if a program has failed, it is also a *routerd.Failure.
func Load(ctx context.Context, c *ssh.Client, s *Spec) (shown string, err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	ctx, cancel := patience.GuestProgram.Context(ctx)
	defer cancel()
	return converse(ctx, c, askLoad, text)
}

// Shown returns the running configuration, as the programs' client prints it.
func Shown(ctx context.Context, c *ssh.Client) (string, error) {
	ctx, cancel := patience.Query.Context(ctx)
	defer cancel()
	return converse(ctx, c, askShown, nil)
}

// converse sends the agent a request on a channel of its own. If the guest does not answer in time,
// the connection is closed.
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

// mostSaid limits a guest's error messages, in bytes: they become part of ours.
const mostSaid = 64 << 10

// request sends the agent a request. If the guest does not answer in time, the connection is
// closed.
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

// ExecCommand is the argument with which this program, in a node, runs a command in the node's
// guest.
const ExecCommand = "__guest-exec"

// Enclose wraps a node's command in one that runs it in the guest.
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
