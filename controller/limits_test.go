package controller_test

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

// Proves that a switch which invents ports without end has no more than are believed of one that no
// file names, also when it takes some back and adds others; that the log says so once; that what it
// had is free again when it goes; and that a named one may have more.
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

// Proves that peers which connect and say nothing do not keep a switch from connecting, however
// many they are, nor memory: each has 2 s where more come than may wait.
func TestSilentPeers(t *testing.T) {
	r := newRecorder()
	address := overTCP(t, start(t, r))
	before := runtime.NumGoroutine()
	for range 3000 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Skip("no more files: ", err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	connectTCP(t, address, 1)
	<-r.up
	most := before + 2*1024 + 100
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > most; time.Sleep(5 * time.Millisecond) { // those of peers that had to go end
		if time.Now().After(end) {
			t.Fatalf("%d goroutines for them", runtime.NumGoroutine()-before)
		}
	}
}
