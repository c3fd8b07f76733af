package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/qemu"
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
