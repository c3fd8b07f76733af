package bench

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

// session is the controller's end of a connection with one switch.
type session struct {
	dpid     uint64
	conn     net.Conn
	packetIn func(*session, *openflow.PacketIn) // called by the goroutine that reads

	mu      sync.Mutex
	writer  *openflow.Writer
	next    openflow.Xid
	waiting map[openflow.Xid]chan openflow.Message
	refused error
	ended   chan struct{}
}

// meet greets a switch and starts to read.
func meet(conn net.Conn, packetIn func(*session, *openflow.PacketIn)) (*session, error) {
	s := &session{conn: conn, packetIn: packetIn, writer: openflow.NewWriter(conn), next: 100, waiting: map[openflow.Xid]chan openflow.Message{}, ended: make(chan struct{})}
	if err := s.send(&openflow.Hello{Versions: openflow.Versions(openflow.Version)}); err != nil {
		return nil, err
	}
	go s.read()
	m, err := s.ask(func(x openflow.Xid) openflow.Message { return &openflow.FeaturesRequest{Xid: x} })
	if err != nil {
		return nil, err
	}
	f, ok := m.(*openflow.FeaturesReply)
	if !ok {
		return nil, fmt.Errorf("a switch answers FEATURES_REQUEST by %v", m.Type())
	}
	s.dpid = f.DatapathID
	return s, nil
}

func (s *session) read() {
	defer close(s.ended)
	reader, parts := openflow.NewReader(s.conn, 0), openflow.Reassembler{}
	for {
		m, err := reader.Read()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *openflow.EchoRequest:
			_ = s.send(m.Reply())
		case *openflow.PacketIn:
			if s.packetIn != nil {
				s.packetIn(s, m)
			}
		case *openflow.Error:
			s.mu.Lock()
			s.refused = fmt.Errorf("switch %d refuses message %d: %v", s.dpid, m.Transaction(), m.Code)
			s.mu.Unlock()
		case *openflow.MultipartReply:
			if whole, err := parts.Reply(m); err == nil && whole != nil {
				s.answer(whole)
			}
		case *openflow.BarrierReply, *openflow.FeaturesReply:
			s.answer(m)
		}
	}
}

func (s *session) answer(m openflow.Message) {
	s.mu.Lock()
	c := s.waiting[openflow.Xid(m.Transaction())]
	delete(s.waiting, openflow.Xid(m.Transaction()))
	s.mu.Unlock()
	if c != nil {
		c <- m
	}
}

// send writes messages together.
func (s *session) send(list ...openflow.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if err := s.writer.Write(m); err != nil {
			return err
		}
	}
	return s.writer.Flush()
}

// ask sends a request and waits for its answer.
func (s *session) ask(request func(openflow.Xid) openflow.Message) (openflow.Message, error) {
	c := make(chan openflow.Message, 1)
	s.mu.Lock()
	s.next++
	x := s.next
	s.waiting[x] = c
	s.mu.Unlock()
	if err := s.send(request(x)); err != nil {
		return nil, err
	}
	select {
	case m := <-c:
		return m, nil
	case <-s.ended:
		return nil, fmt.Errorf("switch %d has gone", s.dpid)
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("switch %d does not answer", s.dpid)
	}
}

// barrier waits until what was asked for before is done, and says if something was refused.
func (s *session) barrier() error {
	_, err := s.ask(func(x openflow.Xid) openflow.Message { return &openflow.BarrierRequest{Xid: x} })
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.refused)
}

// flows asks for all entries.
func (s *session) flows() (openflow.FlowStatsList, error) {
	m, err := s.ask(func(x openflow.Xid) openflow.Message {
		return &openflow.MultipartRequest{Xid: x, Body: openflow.AllFlows()}
	})
	if err != nil {
		return nil, err
	}
	list, ok := m.(*openflow.MultipartReply).Body.(openflow.FlowStatsList)
	if !ok {
		return nil, fmt.Errorf("switch %d answers something else than flows", s.dpid)
	}
	return list, nil
}

// replace has a switch forget all entries, and take others.
func (s *session) replace(flows []openflow.Message) error {
	forget := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
	forget.Table = openflow.TableAll
	if err := s.send(append([]openflow.Message{forget}, flows...)...); err != nil {
		return err
	}
	return s.barrier()
}

// flow is an entry in the syntax of ovs-ofctl.
func flow(format string, args ...any) *openflow.FlowMod {
	m, err := openflow.ParseFlow(fmt.Sprintf(format, args...))
	if err != nil {
		panic(err)
	}
	return m
}

// office is a controller that does what the test says.
type office struct {
	address string

	mu       sync.Mutex
	sessions map[uint64]*session
}

// newOffice listens on loopback until the test ends.
func newOffice(t *testing.T, packetIn func(*session, *openflow.PacketIn)) *office {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	o := &office{address: "tcp:" + l.Addr().String(), sessions: map[uint64]*session{}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				s, err := meet(conn, packetIn)
				if err != nil {
					conn.Close()
					return
				}
				o.mu.Lock()
				o.sessions[s.dpid] = s
				o.mu.Unlock()
			}()
		}
	}()
	return o
}

// wait returns the sessions with switches 1 to n, in order, when they are there.
func (o *office) wait(t *testing.T, n int) (list []*session) {
	t.Helper()
	for range 3000 {
		list = list[:0]
		o.mu.Lock()
		for dpid := range uint64(n) {
			if s := o.sessions[dpid+1]; s != nil {
				list = append(list, s)
			}
		}
		o.mu.Unlock()
		if len(list) == n {
			return list
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%d of %d switches have come", len(list), n)
	return nil
}
