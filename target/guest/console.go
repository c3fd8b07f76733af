package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// leave is the key that ends a console: Ctrl-], as with telnet.
const leave = 0x1d

// Console connects this process's input and output to the console of the machine in a directory,
// until its input ends or contains Ctrl-].
func Console(args []string) error {
	if len(args) != 1 {
		return errors.New("the directory of a virtual machine is missing")
	}
	at, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer at.Close()
	// QEMU accepts one connection at a time, and makes others wait silently.
	if err := unix.Flock(int(at.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("somebody is at the console of %s already", filepath.Base(args[0]))
	}
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), consoleSocket))
	if err != nil {
		return fmt.Errorf("the console of %s: %w", filepath.Base(args[0]), err)
	}
	defer conn.Close()
	fmt.Fprintf(os.Stderr, "The console of %s; Ctrl-] leaves it.\r\n", filepath.Base(args[0]))
	if term.IsTerminal(0) {
		old, err := term.MakeRaw(0)
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(0, old) }()
	}
	signal.Ignore(unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP)
	over := make(chan error, 2)
	go func() {
		_, err := io.Copy(os.Stdout, conn)
		if err == nil {
			err = errors.New("the virtual machine has ended")
		}
		over <- err
	}()
	go func() { over <- typed(conn, os.Stdin) }()
	err = <-over
	fmt.Fprint(os.Stderr, "\r\n")
	return err
}

// typed passes typed bytes on, up to leave.
func typed(to io.Writer, from io.Reader) error {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		text, _, left := bytes.Cut(buffer[:n], []byte{leave})
		if _, err := to.Write(text); err != nil {
			return err
		}
		switch {
		case left || errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
