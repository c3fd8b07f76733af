package controller_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// fake is the switch side of a connection.
type fake struct {
	t      *testing.T
	conn   net.Conn
	reader *openflow.Reader
	writer *openflow.Writer
	flows  []openflow.FlowStats // what it has when it connects
	groups []openflow.GroupDesc
}

// connect makes a switch that has done its handshake, with ports 1 and 2.
func connect(t *testing.T, c *controller.Controller, dpid uint64) *fake {
	t.Helper()
	return connectWith(t, c, dpid, nil, nil)
}

// connectWith is connect for a switch that already has flow entries and groups.
func connectWith(t *testing.T, c *controller.Controller, dpid uint64, flows []openflow.FlowStats, groups []openflow.GroupDesc) *fake {
	t.Helper()
	ours, theirs := net.Pipe()
	go c.Meet(theirs)
	f := &fake{t: t, conn: ours, reader: openflow.NewReader(ours, 0), writer: openflow.NewWriter(ours), flows: flows, groups: groups}
	t.Cleanup(func() { ours.Close() })
	f.greet(dpid)
	return f
}

// greet does the handshake.
func (f *fake) greet(dpid uint64) {
	f.t.Helper()
	f.expect(openflow.TypeHello)
	f.send(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
	f.expect(openflow.TypeFeaturesRequest)
	f.send(&openflow.FeaturesReply{DatapathID: dpid, Tables: 4})
	f.expect(openflow.TypeSetConfig)
	for range 3 {
		m := f.expect(openflow.TypeMultipartRequest).(*openflow.MultipartRequest)
		f.send(&openflow.MultipartReply{Xid: m.Xid, Body: map[openflow.MultipartType]openflow.MultipartBody{
			openflow.MultipartPortDesc: openflow.PortDescList{
				{Number: 1, HWAddr: openflow.MAC{2, 0, 0, 0, byte(dpid), 1}, Name: "p1"},
				{Number: 2, HWAddr: openflow.MAC{2, 0, 0, 0, byte(dpid), 2}, Name: "p2"}},
			openflow.MultipartGroupDesc: openflow.GroupDescList(f.groups),
			openflow.MultipartFlow:      openflow.FlowStatsList(f.flows),
		}[m.Body.MultipartType()]})
	}
}

func (f *fake) send(m openflow.Message) {
	f.t.Helper()
	if err := f.writer.Write(m); err != nil {
		f.t.Fatal(err)
	}
	if err := f.writer.Flush(); err != nil {
		f.t.Fatal(err)
	}
}

// next returns the next message; nil when the controller has closed the connection.
func (f *fake) next() openflow.Message {
	f.t.Helper()
	_ = f.conn.SetReadDeadline(time.Now().Add(time.Minute))
	m, err := f.reader.Read()
	if err == io.EOF || err == io.ErrClosedPipe {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// expect returns the next message, of a type. To others that ask whether the switch is alive, as it
// has said nothing for a while, it answers.
func (f *fake) expect(want openflow.Type) openflow.Message {
	f.t.Helper()
	m := f.next()
	for m != nil && m.Type() == openflow.TypeEchoRequest && want != openflow.TypeEchoRequest {
		f.send(m.(*openflow.EchoRequest).Reply())
		m = f.next()
	}
	if m == nil || m.Type() != want {
		f.t.Fatalf("got %v, want %v", m, want)
	}
	return m
}

// recorder is an app that counts what it is told, and panics when a packet tells it to.
type recorder struct {
	controller.Base
	mu     sync.Mutex
	ups    []uint64
	downs  []uint64
	frames [][]byte
	up     chan *controller.Switch
}

func newRecorder() *recorder { return &recorder{up: make(chan *controller.Switch, 10)} }

func (r *recorder) Name() string { return "recorder" }

func (r *recorder) SwitchUp(s *controller.Switch) {
	r.mu.Lock()
	r.ups = append(r.ups, s.DPID())
	r.mu.Unlock()
	r.up <- s
}

func (r *recorder) SwitchDown(s *controller.Switch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.downs = append(r.downs, s.DPID())
}

func (r *recorder) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	r.mu.Lock()
	r.frames = append(r.frames, append([]byte(nil), p.Data...))
	r.mu.Unlock()
	if p.EtherType == 0xdead {
		panic("an app that fails")
	}
	_ = s.Send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: p.InPort, Actions: []openflow.Action{openflow.Output(2)}, Data: p.Data})
	return true
}

func start(t *testing.T, apps ...controller.App) *controller.Controller {
	t.Helper()
	c, err := controller.New(slog.New(slog.NewTextHandler(io.Discard, nil)), apps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func packetIn(etherType uint16) *openflow.PacketIn {
	frame := make([]byte, 60)
	copy(frame, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, byte(etherType >> 8), byte(etherType)})
	return &openflow.PacketIn{Buffer: openflow.BufferNone, TotalLen: 60, Match: openflow.NewMatch(openflow.InPort(1)), Data: frame}
}

// Proves that a switch is accepted, its ports are known, its echoes are answered, and that apps are
// told when it connects, sends packets and disconnects.
func TestLifeOfASwitch(t *testing.T) {
	r := newRecorder()
	c := start(t, r)
	f := connect(t, c, 7)
	s := <-r.up
	if ports := s.Ports(); s.DPID() != 7 || len(ports) != 2 || ports[1].Name != "p2" {
		t.Fatalf("switch %d with ports %v", s.DPID(), ports)
	}
	f.send(&openflow.EchoRequest{Xid: 99, Data: []byte("alive?")})
	if e := f.expect(openflow.TypeEchoReply).(*openflow.EchoReply); e.Xid != 99 || string(e.Data) != "alive?" {
		t.Errorf("echo: %v", e)
	}
	f.send(packetIn(0x0800))
	if out := f.expect(openflow.TypePacketOut).(*openflow.PacketOut); out.Actions[0].Port != 2 || len(out.Data) != 60 {
		t.Errorf("answer: %v", out)
	}
	f.conn.Close()
	deadline := time.Now().Add(time.Minute)
	for c.Switch(7) != nil && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if c.Switch(7) != nil || s.Send(&openflow.EchoRequest{}) == nil {
		t.Error("the switch is still there")
	}
}

// Proves that an answer reaches its requester, by xid, and that an ERROR becomes the request's
// error.
func TestRequests(t *testing.T) {
	r := newRecorder()
	f := connect(t, start(t, r), 1)
	s := <-r.up
	answers := make(chan error, 2)
	for range 2 {
		go func() { answers <- s.Barrier(context.Background()) }()
	}
	first, second := f.expect(openflow.TypeBarrierRequest), f.expect(openflow.TypeBarrierRequest)
	f.send(&openflow.Error{Xid: openflow.Xid(second.Transaction()), Code: openflow.BadRequestBadType})
	if err := <-answers; err == nil {
		t.Error("an ERROR is no answer")
	}
	f.send(&openflow.BarrierReply{Xid: openflow.Xid(first.Transaction())})
	if err := <-answers; err != nil {
		t.Error(err)
	}
	f.conn.Close()
	if err := s.Barrier(context.Background()); err == nil {
		t.Error("a switch that is gone answers")
	}
}

// Proves that an app that panics loses only that event: the next packet is handled.
func TestAppFails(t *testing.T) {
	r := newRecorder()
	f := connect(t, start(t, r), 1)
	<-r.up
	f.send(packetIn(0xdead))
	f.send(packetIn(0x0800))
	f.expect(openflow.TypePacketOut)
}

// Proves that malformed bytes close that connection, with an ERROR that says why, and leave another
// switch unaffected.
func TestMalformed(t *testing.T) {
	r := newRecorder()
	c := start(t, r)
	good, bad := connect(t, c, 1), connect(t, c, 2)
	<-r.up
	<-r.up
	go func() { _, _ = bad.conn.Write([]byte{4, 14, 0, 8, 0, 0, 0, 1}) }() // a FLOW_MOD of eight bytes
	if e := bad.expect(openflow.TypeError).(*openflow.Error); e.Code != openflow.BadRequestBadLen {
		t.Errorf("answer: %v", e)
	}
	if m := bad.next(); m != nil {
		t.Errorf("the connection goes on: %v", m)
	}
	good.send(packetIn(0x0800))
	good.expect(openflow.TypePacketOut)
}

// Proves that a second switch with the datapath id of a connected one is refused, and the first
// stays connected.
func TestStolenID(t *testing.T) {
	r := newRecorder()
	c := start(t, r)
	first := connect(t, c, 5)
	s := <-r.up
	second := connect(t, c, 5)
	if m := second.next(); m != nil {
		t.Errorf("the thief is served: %v", m)
	}
	if c.Switch(5) != s {
		t.Error("the first switch is gone")
	}
	first.send(packetIn(0x0800))
	first.expect(openflow.TypePacketOut)
}

// Proves that a peer of another version is refused with HELLO_FAILED.
func TestOtherVersion(t *testing.T) {
	c := start(t, newRecorder())
	ours, theirs := net.Pipe()
	go c.Meet(theirs)
	f := &fake{t: t, conn: ours, reader: openflow.NewReader(ours, 0), writer: openflow.NewWriter(ours)}
	f.expect(openflow.TypeHello)
	f.send(&openflow.Hello{Version: 1})
	if e := f.expect(openflow.TypeError).(*openflow.Error); e.Code != openflow.HelloFailedIncompatible {
		t.Errorf("answer: %v", e)
	}
}
