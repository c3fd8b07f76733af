package controller_test

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// Proves that a switch that no file names cannot have more ports than the limit, even if it removes
// some and adds others; that the log says so once; that its ports no longer count once it
// disconnects; and that a named switch may have more.
func TestManyPorts(t *testing.T) {
	r := newRecorder()
	c := startLogged(t, r)
	c.Named(func(dpid uint64) bool { return dpid == 2 })
	address := overTCP(t, c.Controller)
	for dpid, want := range map[uint64]int{1: 4096, 2: 10_002} {
		f := connectTCP(t, address, dpid)
		s := <-r.up
		for i := range uint32(10_000) {
			if err := f.writer.Write(&openflow.PortStatus{Reason: openflow.PortAdd, Port: openflow.Port{Number: i + 3}}); err != nil {
				t.Fatal(err)
			}
		}
		f.send(&openflow.PortStatus{Reason: openflow.PortDelete, Port: openflow.Port{Number: 3}})
		f.send(&openflow.PortStatus{Reason: openflow.PortAdd, Port: openflow.Port{Number: 1 << 20}})
		f.send(&openflow.EchoRequest{Xid: 5})
		f.expect(openflow.TypeEchoReply)
		if got := len(s.Ports()); got != want {
			t.Errorf("switch %d has %d ports, want %d", dpid, got, want)
		}
	}
	if n := strings.Count(c.String(), "reports too many ports"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
}

// Proves that peers that connect and stay silent, however many they are, do not keep a switch from
// connecting and use no memory: once more peers wait than may, each has only 2 s.
func TestSilentPeers(t *testing.T) {
	r := newRecorder()
	address := overTCP(t, start(t, r))
	before := runtime.NumGoroutine()
	for range 3000 {
		conn, err := net.Dial("tcp", address)
		if errors.Is(err, syscall.EMFILE) {
			t.Skip("no more files: ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	connectTCP(t, address, 1)
	<-r.up
	most := before + 2*1024 + 100
	// until the goroutines of the peers that were dropped have ended
	until.True(t, "the goroutines of the peers that were dropped end", func() bool { return runtime.NumGoroutine() <= most })
}
