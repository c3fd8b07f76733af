package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"trivet.dev/trivet/internal/patience"
)

// RunSession runs a command by SSH, or a shell if it is empty. Its input and output, terminal,
// signals and exit code are this process's. If the guest no longer answers, it ends with an error
// that says so.
func RunSession(client *ssh.Client, command string) (code int, err error) {
	var silent atomic.Bool
	giveUp := func() { silent.Store(true); client.Close() }
	go keepAlive(client, giveUp)
	defer func() {
		if err != nil && silent.Load() {
			code, err = 0, fmt.Errorf("the virtual machine does not answer any more (within %s)", patience.Machine)
		}
	}()
	begun := patience.Machine.AfterFunc(giveUp)
	defer begun()
	s, err := client.NewSession()
	if err != nil {
		return 0, err
	}
	s.Stdin, s.Stdout, s.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGWINCH)
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
	start := s.Shell
	if command != "" {
		start = func() error { return s.Start(command) }
	}
	if err := start(); err != nil {
		return 0, err
	}
	begun()
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
		return 0, errors.New("the virtual machine has ended the connection")
	}
	return 0, err
}

// keepAlive regularly asks a guest whether it is alive, as OpenSSH does (ssh_config(5),
// ServerAliveInterval), until the connection ends. It gives up on a guest that does not answer: TCP
// would never notice, as its other end is QEMU.
func keepAlive(client *ssh.Client, giveUp func()) {
	const each = 5 * time.Second
	for {
		answered := patience.Machine.AfterFunc(giveUp)
		_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
		answered()
		if err != nil {
			return
		}
		time.Sleep(each)
	}
}
