package site

import (
	"net"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/internal/patience"
)

// hearing records when data last arrived on a connection.
type hearing struct {
	last atomic.Int64 // nanoseconds since epoch
	lost atomic.Bool  // the connection was closed because of silence
}

// epoch is the origin of these times: monotonic, because the wall clock may be set.
var epoch = time.Now()

type heardConn struct {
	net.Conn
	heard *hearing
}

func (c heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.last.Store(int64(time.Since(epoch)))
	}
	return n, err
}

// listen sends keepalives, as ssh's ServerAliveInterval does, and closes the connection when
// nothing has arrived for patience.Silence. The answer to a keepalive may take longer, as it may be
// queued behind other data.
func (l *Login) listen() {
	answered := make(chan error, 1)
	asking, pause := false, patience.Silence.Duration()/3
	var asked *patience.Wait // limits how long an answer may be queued behind other data
	heard := l.heard.last.Load()
	silence := patience.Silence.Since(epoch.Add(time.Duration(heard)))
	for {
		if !asking {
			asking, asked = true, patience.Command.Begin()
			go func() {
				_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
				answered <- err
			}()
		}
		select {
		case err := <-answered:
			if err != nil {
				return // the connection is closed
			}
			asking = false
			time.Sleep(pause)
		case <-time.After(pause):
			if last := l.heard.last.Load(); last != heard {
				heard, silence = last, patience.Silence.Since(epoch.Add(time.Duration(last)))
			}
			if silence.Over() || asked.Over() {
				l.heard.lost.Store(true)
				l.client.Close()
				return
			}
		}
	}
}
