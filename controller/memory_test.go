package controller_test

import (
	"context"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// local is a switch of this process: it answers what it must and keeps what it is sent.
type local struct {
	peer *controller.Memory
	got  chan openflow.Message
}

func (l *local) Handle(m openflow.Message) {
	reply := func(r openflow.Message) {
		r.SetTransaction(m.Transaction())
		l.peer.Reply(r)
	}
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		reply(&openflow.FeaturesReply{DatapathID: 7, Tables: 4})
	case *openflow.MultipartRequest:
		reply(&openflow.MultipartReply{Body: map[openflow.MultipartType]openflow.MultipartBody{
			openflow.MultipartPortDesc:  openflow.PortDescList{{Number: 1, Name: "p1"}},
			openflow.MultipartGroupDesc: openflow.GroupDescList{}, openflow.MultipartFlow: openflow.FlowStatsList{},
		}[m.Body.MultipartType()]})
	case *openflow.BarrierRequest:
		reply(&openflow.BarrierReply{})
	case *openflow.SetConfig:
	default:
		l.got <- m
	}
}

func (l *local) Close() { l.peer.Closed() }

// Proves that to apps a switch of the same process is like any other: it comes up with its ports,
// its packets are answered in order, requests to it are answered too, and what it sends before it
// closes is delivered.
func TestMemory(t *testing.T) {
	app := newRecorder()
	c := start(t, app)
	l := &local{got: make(chan openflow.Message, 1000)}
	l.peer = c.NewMemory("s7")
	if err := l.peer.Join(l); err != nil {
		t.Fatal(err)
	}
	s := <-app.up
	if s.DPID() != 7 || len(s.Ports()) != 1 {
		t.Fatalf("dpid %d, %d ports", s.DPID(), len(s.Ports()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 20)
	data[12] = 0x08
	for i := range 500 {
		data[14], data[15] = byte(i>>8), byte(i)
		l.peer.Asynchronous(&openflow.PacketIn{Match: openflow.NewMatch(openflow.InPort(1)), Data: data}) // the switch reuses data
	}
	for i := range 500 {
		m := (<-l.got).(*openflow.PacketOut)
		if got := int(m.Data[14])<<8 | int(m.Data[15]); got != i {
			t.Fatalf("answer %d is to packet %d", i, got)
		}
	}
	l.Close()
	until.True(t, "the switch goes down", func() bool {
		app.mu.Lock()
		defer app.mu.Unlock()
		return len(app.downs) == 1
	})
	if err := s.Barrier(ctx); err != controller.ErrGone {
		t.Errorf("a barrier after the end: %v", err)
	}
}

// Proves that a switch of the same process takes the place of one over a connection that has just
// been taken away, even before that connection is known to have ended.
func TestMemoryReplaces(t *testing.T) {
	app := newRecorder()
	c := start(t, app)
	before := connect(t, c, 7)
	<-app.up
	joined := make(chan error, 1)
	l := &local{got: make(chan openflow.Message, 1000)}
	l.peer = c.NewMemory("s7")
	go func() { joined <- l.peer.Join(l) }()
	select {
	case err := <-joined:
		t.Fatal("it does not wait for the other to go: ", err)
	case <-time.After(100 * time.Millisecond): // too short a wait can only let a wrong program pass, never fail a right one
	}
	before.conn.Close()
	if err := <-joined; err != nil {
		t.Fatal(err)
	}
}
