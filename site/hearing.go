package site

import (
	"net"
	"sync/atomic"
	"time"
)

// silence is how long nothing may be heard of a machine, though it was asked whether it is there,
// before the connection is taken for lost. TCP itself would wait for a quarter of an hour.
const silence = 15 * time.Second

// hearing is when something was last heard on a connection.
type hearing struct {
	last atomic.Int64 // nanoseconds of the clock
	lost atomic.Bool  // the connection was closed because of silence
}

type heardConn struct {
	net.Conn
	heard *hearing
}

func (c heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.last.Store(time.Now().UnixNano())
	}
	return n, err
}

// listen asks the machine now and then whether it is there, as ssh's ServerAliveInterval does, and
// closes the connection when nothing comes back: neither the answer, which may have to wait behind
// what is sent, nor anything else.
func (l *Login) listen() {
	answered := make(chan error, 1)
	asking := false
	for {
		if !asking {
			asking = true
			go func() {
				_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
				answered <- err
			}()
		}
		select {
		case err := <-answered:
			if err != nil {
				return // it is closed
			}
			asking = false
			time.Sleep(silence / 3)
		case <-time.After(silence / 3):
			if time.Since(time.Unix(0, l.heard.last.Load())) > silence {
				l.heard.lost.Store(true)
				l.client.Close()
				return
			}
		}
	}
}
