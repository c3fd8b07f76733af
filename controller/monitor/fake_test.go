package monitor

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// fake is the switch side of a connection, with counters that a test sets.
type fake struct {
	t      *testing.T
	dpid   uint64
	conn   net.Conn
	reader *openflow.Reader

	mu     sync.Mutex
	writer *openflow.Writer
	ports  openflow.PortStatsList
	flows  openflow.FlowStatsList
	groups openflow.GroupDescList

	// The controller asks too, when they meet. From the first question for ports' counters on it is
	// the monitor.
	monitored bool
	mute      bool          // does not answer
	work      time.Duration // that an answer takes
	asked     map[openflow.MultipartType]int
	active    int // requests that are being answered
	most      int
}

var errRefused = openflow.BadRequestBadMultipart

// meet connects a switch with ports 1 and 2 of 10 Mbit/s, prepared by some functions, that answers
// until the test ends.
func meet(t *testing.T, c *controller.Controller, dpid uint64, prepare ...func(*fake)) *fake {
	t.Helper()
	ours, theirs := net.Pipe()
	go c.Meet(theirs)
	f := &fake{t: t, dpid: dpid, conn: ours, reader: openflow.NewReader(ours, 0), writer: openflow.NewWriter(ours),
		asked: map[openflow.MultipartType]int{}}
	t.Cleanup(func() { ours.Close() })
	for _, p := range prepare {
		p(f)
	}
	go f.serve()
	return f
}

func (f *fake) send(m openflow.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.writer.Write(m), f.writer.Flush())
}

func (f *fake) serve() {
	for {
		m, err := f.reader.Read()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *openflow.Hello:
			_ = f.send(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
		case *openflow.FeaturesRequest:
			_ = f.send(&openflow.FeaturesReply{Xid: m.Xid, DatapathID: f.dpid, Tables: 4, Buffers: 1})
		case *openflow.EchoRequest:
			_ = f.send(m.Reply())
		case *openflow.MultipartRequest:
			f.answer(m)
		}
	}
}

func (f *fake) answer(m *openflow.MultipartRequest) {
	f.mu.Lock()
	f.monitored = f.monitored || m.Body.MultipartType() == openflow.MultipartPortStats
	mute, work := f.mute && f.monitored, f.work
	if f.monitored {
		f.asked[m.Body.MultipartType()]++
		f.active++
	} else {
		work = 0
	}
	reply := &openflow.MultipartReply{Xid: m.Xid}
	switch m.Body.MultipartType() {
	case openflow.MultipartPortDesc:
		reply.Body = openflow.PortDescList{
			{Number: 1, Name: "one", HWAddr: openflow.MAC{2, 1}, CurrentSpeed: 10_000},
			{Number: 2, Name: "two\xff", CurrentSpeed: 10_000, State: openflow.PortStateLinkDown},
		}
	case openflow.MultipartPortStats:
		reply.Body = append(openflow.PortStatsList(nil), f.ports...)
	case openflow.MultipartTable:
		reply.Body = openflow.TableStatsList{{Table: 0, Active: uint32(len(f.flows)), Lookups: 10, Matched: 7}, {Table: 1, Lookups: 5, Matched: NoCounter}}
	case openflow.MultipartAggregate:
		reply.Body = openflow.AggregateStats{Flows: uint32(len(f.flows)), Packets: 3, Bytes: 4}
	case openflow.MultipartFlow:
		reply.Body = append(openflow.FlowStatsList(nil), f.flows...)
	case openflow.MultipartGroupDesc:
		reply.Body = f.groups
	case openflow.MultipartGroup:
		reply.Body = openflow.GroupStatsList{{Group: 9, Packets: 11, Bytes: 12}}
	}
	refuse := m.Body.MultipartType() == openflow.MultipartGroupDesc && f.groups == nil
	monitored := f.monitored
	f.most = max(f.most, f.active)
	f.mu.Unlock()
	go func() {
		time.Sleep(work)
		if monitored {
			f.set(func() { f.active-- })
		}
		switch {
		case mute:
		case refuse:
			_ = f.send(&openflow.Error{Xid: m.Xid, Code: errRefused})
		default:
			_ = f.send(reply)
		}
	}()
}

// set changes the fake under its lock.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) count(t openflow.MultipartType) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[t]
}

// begin starts a controller with the app.
func begin(t *testing.T, o Options) (*App, *controller.Controller) {
	t.Helper()
	a := New(o)
	c, err := controller.New(slog.New(slog.NewTextHandler(t.Output(), nil)), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return a, c
}
