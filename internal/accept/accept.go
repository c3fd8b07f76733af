// Package accept takes connections from a listener for as long as it is open.
package accept

import (
	"errors"
	"net"
	"time"
)

// Next is Accept that waits where it cannot be had just now, as when the process has too many open
// files: what runs goes on, and who wants to connect is taken later. wait, which may be nil, is
// told the reason each time. The error is net.ErrClosed when the listener is closed.
func Next(l net.Listener, wait func(error)) (net.Conn, error) {
	for {
		conn, err := l.Accept()
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return conn, err
		}
		if wait != nil {
			wait(err)
		}
		time.Sleep(pause)
	}
}

const pause = 100 * time.Millisecond
