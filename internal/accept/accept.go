// Package accept accepts connections for as long as a listener is open.
package accept

import (
	"errors"
	"net"
	"time"
)

// Next is Accept, but retries while Accept fails temporarily, as when the process has too many open
// files: clients are accepted later. wait, which may be nil, is called with the reason each time.
// The error is net.ErrClosed once the listener is closed.
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
