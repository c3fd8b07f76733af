package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/version"
)

// alivePath is answered as long as the daemon runs, whatever else it is doing.
const alivePath = "/v1/alive"

// askAfter is the interval at which a client that waits for an answer asks whether the daemon is
// alive.
const askAfter = time.Second

// untilSilent returns a context that ends, with an error as its cause, when the daemon does not
// even answer whether it is alive: an answer to anything else may take arbitrarily long. Daemons on
// other machines are watched by the connections to their sites instead.
func (c *Client) untilSilent(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.elsewhere {
		return context.WithCancel(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		looks := time.NewTicker(askAfter)
		defer looks.Stop()
		var alive chan error // nil: nothing is being asked
		for stopped := 0; ; {
			select {
			case <-ctx.Done():
				return
			case err := <-alive:
				if alive = nil; err != nil {
					end(err)
					return
				}
			case <-looks.C:
				if alive == nil {
					alive = make(chan error, 1)
					go func(to chan<- error) { to <- c.askAlive(ctx) }(alive)
				}
				if stopped++; !isStopped(c.pid) {
					stopped = 0
				}
				if stopped == looksStopped {
					end(c.silent(nil))
					return
				}
			}
		}
	}()
	return ctx, func() { end(context.Canceled) }
}

// looksStopped is how many consecutive polls must find a process stopped: it may be continued at
// once.
const looksStopped = 4

// isStopped says whether somebody has stopped a process, by a signal or a debugger.
func isStopped(pid int) bool {
	stat, err := process.Stat(pid)
	return pid != 0 && err == nil && (stat.State == "T" || stat.State == "t")
}

// askAlive returns an error if the daemon does not answer in time. If the daemon has ended,
// askAlive returns none: the broken connection of the pending request says more.
func (c *Client) askAlive(ctx context.Context) error {
	within, cancel := patience.Daemon.Context(ctx)
	defer cancel()
	conn, err := c.dial(within)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(within, func() { conn.Close() })()
		var req *http.Request
		if req, err = http.NewRequest("GET", "http://lab"+alivePath, nil); err != nil {
			return nil
		}
		req.Header.Set(VersionHeader, version.Version)
		if err = req.Write(conn); err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
	}
	if err == nil || ctx.Err() != nil || !errors.Is(within.Err(), context.DeadlineExceeded) {
		return nil
	}
	return c.silent(within.Err())
}

// silent is the error for a daemon that does not answer; it says why, as far as the process shows
// it.
func (c *Client) silent(err error) error {
	if isStopped(c.pid) {
		return fmt.Errorf("lab %s does not answer: its process (pid %d) is stopped; kill -CONT %d lets it go on",
			c.name, c.pid, c.pid)
	}
	return fmt.Errorf("lab %s does not answer: its process (pid %d) has said nothing for %s (its log: %s/daemon.log)",
		c.name, c.pid, patience.Daemon.Within(err), Dir(c.name))
}
