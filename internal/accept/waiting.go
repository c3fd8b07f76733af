package accept

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits of connections that have not said yet who they are.
const (
	maxWaiting = 1024            // in all
	maxAddress = 256             // of one address that is not this machine's
	leastTime  = 2 * time.Second // that each has, however many come
)

// Waiting is the connections to a listener that have not said yet who they are: so many that
// whoever opens them keeps neither memory nor others from connecting. The zero Waiting is ready.
type Waiting struct {
	mu   sync.Mutex
	list []waiting // the oldest first
}

type waiting struct {
	conn  net.Conn
	from  netip.Addr
	since time.Time
}

// Enter takes a connection in, until Leave. Where there are as many as may be, the oldest is
// closed, once it has had time to say who it is; where too many are of its address, it is closed
// itself, and false returned.
func (w *Waiting) Enter(conn net.Conn) bool {
	from := remote(conn)
	for {
		w.mu.Lock()
		of := 0
		for _, x := range w.list {
			if x.from == from {
				of++
			}
		}
		if from.IsValid() && !from.IsLoopback() && of >= maxAddress {
			w.mu.Unlock()
			conn.Close()
			return false
		}
		if len(w.list) >= maxWaiting && time.Since(w.list[0].since) >= leastTime {
			go w.list[0].conn.Close() // of TLS, it may take a while
			w.list = slices.Delete(w.list, 0, 1)
		}
		if len(w.list) < maxWaiting {
			w.list = append(w.list, waiting{conn, from, time.Now()})
			w.mu.Unlock()
			return true
		}
		w.mu.Unlock()
		time.Sleep(pause / 20)
	}
}

// Leave lets a connection out: it has said who it is, or has ended.
func (w *Waiting) Leave(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = slices.DeleteFunc(w.list, func(x waiting) bool { return x.conn == conn })
}

func remote(conn net.Conn) netip.Addr {
	if a, is := conn.RemoteAddr().(*net.TCPAddr); is {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
