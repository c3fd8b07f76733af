package accept

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/internal/lists"
)

// Limits for connections that have not identified themselves yet.
const (
	maxWaiting = 1024            // in all
	maxAddress = 256             // from one address that is not this machine's
	leastTime  = 2 * time.Second // that each has, however many come
)

// Waiting holds the connections to a listener that have not identified themselves yet, limited in
// number so that whoever opens them neither uses up memory nor keeps others from connecting. The
// zero value is ready to use.
type Waiting struct {
	mu   sync.Mutex
	list []waiting // the oldest first
}

type waiting struct {
	conn  net.Conn
	from  netip.Addr
	since time.Time
}

// Enter adds a connection, until Leave. If there are as many as allowed, it closes the oldest, once
// that has had leastTime to identify itself; if there are too many from conn's address, it closes
// conn and returns false.
func (w *Waiting) Enter(conn net.Conn) bool {
	from := remote(conn)
	for {
		w.mu.Lock()
		of := lists.Count(w.list, func(x waiting) bool { return x.from == from })
		if from.IsValid() && !from.IsLoopback() && of >= maxAddress {
			w.mu.Unlock()
			conn.Close()
			return false
		}
		if len(w.list) >= maxWaiting && time.Since(w.list[0].since) >= leastTime {
			go w.list[0].conn.Close() // for TLS, this may take a while
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

// Leave removes a connection that has identified itself, or has ended.
func (w *Waiting) Leave(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = slices.DeleteFunc(w.list, func(x waiting) bool { return x.conn == conn })
}

func remote(conn net.Conn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
