package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/internal/bearer"
)

// Listener is a listener and its access control: on a Unix socket, root and the user who runs the
// controller are admitted; on TCP, on this machine only, clients with the token.
type Listener struct {
	Address  string // with which it can be opened again: unix:PATH or tcp:127.0.0.1:PORT
	Token    string // for TCP
	listener net.Listener
}

// Open listens on unix:PATH, or on tcp:127.0.0.1:PORT with the token.
func Open(address, token string) (*Listener, error) {
	network, at, _ := strings.Cut(address, ":")
	switch network {
	case "unix":
		l, err := openUnix(at)
		if err != nil {
			return nil, err
		}
		return &Listener{Address: address, listener: l}, nil
	case "tcp":
		a, err := netip.ParseAddrPort(at)
		if err != nil || !a.Addr().IsLoopback() {
			return nil, fmt.Errorf("--api %s: the API is for this machine; write tcp:127.0.0.1:PORT (from elsewhere: ssh -L PORT:127.0.0.1:PORT)", address)
		}
		if len(token) < bearer.MinToken {
			return nil, fmt.Errorf("the API's token has %d characters; it needs at least %d", len(token),
				bearer.MinToken)
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			return nil, err
		}
		return &Listener{Address: "tcp:" + l.Addr().String(), Token: token, listener: l}, nil
	}
	return nil, fmt.Errorf("--api %q: write unix:PATH or tcp:127.0.0.1:PORT", address)
}

// openUnix listens on a socket for its owner, replacing one on which nothing listens any more.
func openUnix(path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("--api unix:%s: something is already listening there", path)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	mask := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(mask)
	if err != nil {
		return nil, err
	}
	return accept.Of(os.Getuid(), l.(*net.UnixListener)), nil
}

// Serve serves requests until the listener is closed.
func (s *Server) Serve(l *Listener) error {
	if l.Token != "" {
		guarded := bearer.Server{Handler: s.Handler()}
		guarded.SetKeys(bearer.KeyOf(l.Token))
		return guarded.Serve(l.listener)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10}
	err := server.Serve(l.listener)
	if errors.Is(err, net.ErrClosed) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
	return err
}

// Close stops accepting clients.
func (l *Listener) Close() error { return l.listener.Close() }
