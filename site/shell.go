package site

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/patience"
)

// Session opens a session, for programs whose streams the caller needs.
func (l *Login) Session(ctx context.Context) (*ssh.Session, error) {
	return answered(ctx, l, l.client.NewSession)
}

// answered calls ask, and returns its result. If the machine's SSH server does not answer in time,
// the connection is closed, as it is of no use any more. When ctx ends, answered returns but the
// connection stays, because others use it, too.
func answered[T io.Closer](ctx context.Context, l *Login, ask func() (T, error)) (none T, err error) {
	type answer struct {
		what T
		err  error
	}
	got := make(chan answer, 1)
	late := patience.Answer.Begin()
	inTime := late.AfterFunc(l.Close)
	go func() {
		what, err := ask()
		if !inTime() && err != nil {
			err = fmt.Errorf("its SSH server has not answered within %s", late)
		}
		got <- answer{what, err}
	}()
	select {
	case a := <-got:
		return a.what, a.err
	case <-ctx.Done():
		go func() {
			if a := <-got; a.err == nil {
				a.what.Close()
			}
		}()
		return none, ctx.Err()
	}
}

// Listen makes the machine's SSH server forward connections to a port of its loopback address.
func (l *Login) Listen(ctx context.Context, port int) (net.Listener, error) {
	listener, err := answered(ctx, l, func() (net.Listener, error) {
		return l.client.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: its SSH server does not pass port %d of its own on to us: %w", l.Machine.Name,
			port, err)
	}
	return listener, nil
}

// Wait returns when the connection has ended.
func (l *Login) Wait() { _ = l.client.Wait() }
