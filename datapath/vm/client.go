package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
)

// Dial reaches a guest's agent from the network namespace of its node, in which the calling thread
// must be.
func Dial(ctx context.Context) (*ssh.Client, error) {
	conn, err := net.DialTimeout("tcp4", agentAt, patience.Agent.Duration())
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(patience.Agent.Duration()))
	c, channels, requests, err := ssh.NewClientConn(conn, agentAt, &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, channels, requests), nil
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
	s, err := client.NewSession()
	if err != nil {
		return 0, err
	}
	s.Stdin, s.Stdout, s.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH)
	if term.IsTerminal(0) {
		columns, rows, err := term.GetSize(0)
		if err != nil {
			return 0, err
		}
		old, err := term.MakeRaw(0)
		if err != nil {
			return 0, err
		}
		defer func() { _ = term.Restore(0, old) }()
		if err := s.RequestPty(os.Getenv("TERM"), rows, columns, ssh.TerminalModes{}); err != nil {
			return 0, err
		}
	}
	what, err := json.Marshal(ask{args[1:], os.Environ(), args[0]})
	if err != nil {
		return 0, err
	}
	if err := s.Start(string(what)); err != nil {
		return 0, err
	}
	go func() {
		for n := range signals {
			if n == unix.SIGWINCH {
				if columns, rows, err := term.GetSize(0); err == nil {
					_ = s.WindowChange(rows, columns)
				}
				continue
			}
			_ = s.Signal(ssh.Signal(strings.TrimPrefix(unix.SignalName(n.(unix.Signal)), "SIG")))
		}
	}()
	err = s.Wait()
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	case errors.As(err, &missing):
		return 0, errors.New("the virtual machine has ended")
	}
	return 0, err
}
