package controller_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// logged is a controller whose log is kept.
type logged struct {
	*controller.Controller
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logs waits until the log says something.
func (l *logged) logs(t *testing.T, what string) {
	t.Helper()
	until.True(t, "a line of the log with "+what, func() bool { return strings.Contains(l.String(), what) })
}

func startLogged(t *testing.T, apps ...controller.App) *logged {
	t.Helper()
	l := &logged{}
	c, err := controller.New(slog.New(slog.NewTextHandler(l, nil)), apps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l.Controller = c
	return l
}

// overTCP serves on a TCP socket and returns its address.
func overTCP(t *testing.T, c *controller.Controller) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { _ = c.Serve(l) }()
	return l.Addr().String()
}

// connectTCP makes a switch that has done its handshake over a real socket, with a small receive
// buffer.
func connectTCP(t *testing.T, address string, dpid uint64) *fake {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, conn: conn, reader: openflow.NewReader(conn, 0), writer: openflow.NewWriter(conn)}
	f.greet(dpid)
	return f
}

// counting counts what a switch has on its connection.
type counting struct {
	net.Conn
	read, written uint64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read += uint64(n)
	return n, err
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written += uint64(n)
	return n, err
}

// Proves that the controller counts what the switch itself has sent and received, to the byte, with
// the handshake, what apps send outside of events, and what waits for a while.
func TestSouthbound(t *testing.T) {
	r := newRecorder()
	c := start(t, r)
	conn, err := net.Dial("tcp", overTCP(t, c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	wire := &counting{Conn: conn}
	f := &fake{t: t, conn: wire, reader: openflow.NewReader(wire, 0), writer: openflow.NewWriter(wire)}
	f.greet(7)
	sw := <-r.up
	f.send(packetIn(0x0800))
	for range 20 {
		if err := sw.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 1, Data: make([]byte, 50_000)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 21 { // one is the app's answer
		f.expect(openflow.TypePacketOut)
	}
	until.True(t, "both have counted the same", func() bool {
		s, ok := sw.Southbound()
		return ok && s.Received == wire.written && s.Sent == wire.read && s.Sent > 1_000_000
	})
	// The window is longer than this test, unless the machine stands still.
	if s, _ := sw.Southbound(); s.Recent > s.Received+s.Sent {
		t.Errorf("%+v", s)
	}
}

const waiting = 16 << 20 // bytes: more than socket buffers hold

func sendMany(s *controller.Switch, bytes int) (sent int, err error) {
	for ; sent < bytes; sent += 60_000 {
		if err := s.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 1, Data: make([]byte, 59_960)}); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Proves that sending to a switch that does not read blocks neither the sender nor the handling of
// another switch's events, and that everything arrives, in order, once it reads.
func TestDeafSwitchHoldsNobodyUp(t *testing.T) {
	r := newRecorder()
	c := start(t, r)
	address := overTCP(t, c)
	deaf := connectTCP(t, address, 1)
	s := <-r.up
	good := connectTCP(t, address, 2)
	<-r.up
	if _, err := sendMany(s, waiting); err != nil {
		t.Fatal("the switch does not read yet: ", err)
	}
	answer := make(chan error, 1)
	go func() { answer <- s.Barrier(context.Background()) }()
	good.send(packetIn(0x0800))
	good.expect(openflow.TypePacketOut)
	for n := 0; n < waiting; n += 60_000 {
		deaf.expect(openflow.TypePacketOut)
	}
	deaf.send(&openflow.BarrierReply{Xid: openflow.Xid(deaf.expect(openflow.TypeBarrierRequest).Transaction())})
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// Proves that at most 64 MiB wait for a switch that does not read: beyond that its connection ends,
// the log says why, and another switch is unaffected.
func TestDeafSwitchIsLeft(t *testing.T) {
	r := newRecorder()
	c := startLogged(t, r)
	address := overTCP(t, c.Controller)
	good := connectTCP(t, address, 2)
	<-r.up
	connectTCP(t, address, 1)
	s := <-r.up
	sent, err := sendMany(s, 1<<30)
	if !errors.Is(err, openflow.ErrNotReading) {
		t.Error("a gigabyte is taken for a switch that does not read: ", err)
	}
	why := "more than 64 MiB are queued for it"
	if sent < 64<<20 { // for which this machine takes longer than a switch may read nothing
		why = "has accepted nothing for"
	}
	c.logs(t, why)
	until.True(t, "the switch is gone", func() bool { return c.Switch(1) == nil })
	good.send(packetIn(0x0800))
	good.expect(openflow.TypePacketOut)
}

// heap is how many MiB of memory are in use.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// flood sends the same message until most bytes are sent or the connection is closed, and returns
// how many MiB were sent, and by how many MiB the memory in use grew at most. Now and then it says
// that it is alive, which the parts of a message do not, and calls meanwhile.
func (f *fake) flood(m openflow.Message, most int, meanwhile func()) (sent, peak float64) {
	f.t.Helper()
	b, alive, n, before := m.AppendTo(nil), (&openflow.EchoRequest{}).AppendTo(nil), 0, heap()
	for next := 0; n < most; n += len(b) {
		_ = f.conn.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err := f.conn.Write(b); err != nil {
			break
		}
		if n >= next {
			next, peak = n+8<<20, max(peak, heap()-before)
			_, _ = f.conn.Write(alive)
			meanwhile()
		}
	}
	return float64(n) / (1 << 20), peak
}

// Proves that a peer cannot fill the controller's memory with the parts of an endless answer: it is
// disconnected after 64 MiB, the log says why, the memory is freed, and another switch is served
// meanwhile.
func TestEndlessAnswers(t *testing.T) {
	flows := make(openflow.FlowStatsList, 1000)
	ports := make(openflow.PortStatsList, 500)
	for name, body := range map[string]openflow.MultipartBody{
		"flows": flows, "ports": ports, "experimenter": openflow.ExperimenterMultipart{Experimenter: 7, Data: make([]byte, 60_000)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			c := startLogged(t, r)
			address := overTCP(t, c.Controller)
			good := connectTCP(t, address, 2)
			<-r.up
			bad := connectTCP(t, address, 1)
			s := <-r.up
			before := heap()
			answer := make(chan error, 1)
			go func() {
				_, err := s.Request(context.Background(), &openflow.MultipartRequest{Body: openflow.AllFlows()})
				answer <- err
			}()
			x := openflow.Xid(bad.expect(openflow.TypeMultipartRequest).Transaction())
			sent, peak := bad.flood(&openflow.MultipartReply{Xid: x, Flags: openflow.MultipartMore, Body: body}, 311<<20, func() {
				good.send(packetIn(0x0800))
				good.expect(openflow.TypePacketOut)
			})
			if err := <-answer; err == nil {
				t.Error("that is an answer")
			}
			c.logs(t, "more than 67108864 bytes in incomplete messages")
			good.send(packetIn(0x0800))
			good.expect(openflow.TypePacketOut)
			until.True(t, "memory is given back", func() bool { return heap()-before < 16 })
			t.Logf("%.0f MiB sent, %.0f MiB in use at most", sent, peak)
			if sent > 200 {
				t.Errorf("%.0f MiB were taken", sent)
			}
			if peak > 700 {
				t.Errorf("%.0f MiB were in use", peak)
			}
		})
	}
}

// Proves that parts nobody has asked for are dropped as they arrive: they use no memory, and the
// peer is not disconnected.
func TestAnswersToNobody(t *testing.T) {
	r := newRecorder()
	f := connectTCP(t, overTCP(t, start(t, r)), 1)
	<-r.up
	sent, peak := f.flood(&openflow.MultipartReply{Xid: 99, Flags: openflow.MultipartMore, Body: make(openflow.FlowStatsList, 1000)}, 100<<20, func() {})
	if sent < 100 || peak > 32 {
		t.Errorf("%.0f MiB sent, %.0f MiB in use at most", sent, peak)
	}
	f.send(&openflow.EchoRequest{Xid: 5})
	for f.expect(openflow.TypeEchoReply).Transaction() != 5 { // those that showed that it is alive
	}
}
