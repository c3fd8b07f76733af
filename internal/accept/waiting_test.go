package accept

import (
	"io"
	"net"
	"testing"
)

// from is a connection from an address.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

func pair(t *testing.T, ip string) (here net.Conn, there net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return &from{a, ip}, b
}

// TestWaiting proves that clients that connect and say nothing keep nobody out: each address has a
// limit; if many addresses do it, the oldest connection has to go; and a client that has identified
// itself no longer counts.
func TestWaiting(t *testing.T) {
	var w Waiting
	var first net.Conn
	for i := range maxAddress {
		here, there := pair(t, "192.0.2.1")
		if !w.Enter(here) {
			t.Fatal("refused after ", i)
		}
		if i == 0 {
			first = there
		}
	}
	refused, _ := pair(t, "192.0.2.1")
	if w.Enter(refused) {
		t.Error("one address may have all")
	}
	var last net.Conn
	for range maxWaiting - maxAddress {
		here, _ := pair(t, "127.0.0.1") // this machine's own address has no limit
		if !w.Enter(here) {
			t.Fatal("refused")
		}
		last = here
	}
	more, _ := pair(t, "192.0.2.2")
	if !w.Enter(more) {
		t.Fatal("others keep it out")
	}
	if _, err := first.Read(make([]byte, 1)); err != io.EOF {
		t.Error("the oldest stays: ", err)
	}
	w.Leave(last)
	if len(w.list) != maxWaiting-1 {
		t.Errorf("%d wait", len(w.list))
	}
}
