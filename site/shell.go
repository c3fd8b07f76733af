package site

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Quote makes one command for a shell of a program and its arguments.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// Session begins a session, for a program whose streams matter.
func (l *Login) Session() (*ssh.Session, error) { return l.client.NewSession() }

// Listen makes the machine's SSH server pass on what connects to a port of its loopback address.
func (l *Login) Listen(port int) (net.Listener, error) {
	listener, err := l.client.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("%s: its SSH server does not pass port %d of its own on to us: %w", l.Machine.Name, port, err)
	}
	return listener, nil
}

// Wait returns when the connection has ended.
func (l *Login) Wait() { _ = l.client.Wait() }
