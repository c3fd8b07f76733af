package controller

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// Timeouts of a connection.
const (
	idleTime = 15 * time.Second // of silence before an ECHO_REQUEST is sent
	echoTime = 15 * time.Second // to wait for the ECHO_REPLY

	// sharedTime replaces both in a cluster. Standbys must take over well before links time out: a
	// master that is cut off sends no discovery probes either.
	sharedTime = 4 * time.Second
)

// maxWaiting limits the bytes queued for a switch: some 500,000 flow entries. Queues are per
// switch, so one that reads nothing, or too slowly, loses its connection without affecting the
// others.
const maxWaiting = 64 << 20

// A session is one connection with a switch.
type session struct {
	core
	conn   net.Conn
	reader *openflow.Reader
	parts  openflow.Reassembler
	in     openflow.PacketIn // the last one, and its bytes; both reused
	out    *openflow.Outbox
	meter  meter
}

func newSession(c *Controller, conn net.Conn) *session {
	s := &session{core: newCore(c), conn: conn, out: openflow.NewOutbox(conn)}
	s.reader = openflow.NewReader(metered{conn, &s.meter}, 0)
	s.out.Sent = func(n int) { s.meter.add(0, n, second()) }
	return s
}

func (s *session) peer() string {
	if a := s.conn.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return s.conn.LocalAddr().String()
}

// run talks to the peer until one side ends the connection; the error says why.
func (s *session) run() error {
	defer func() {
		if s.sw != nil {
			s.sw.dropPorts()
		}
	}()
	if err := s.handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if err := s.controller.join(s.sw); err != nil {
		return err
	}
	s.controller.waiting.Leave(s.conn)
	defer s.core.down(s.sw)
	s.controller.log.Info("switch up", "switch", s.sw.Name(), "peer", s.peer(), "ports", len(s.sw.ports))
	s.out.Hold()
	s.greeted(s.sw)
	if err := s.out.Release(); err != nil {
		return err
	}
	return s.loop()
}

// handshake is HELLO, FEATURES, SET_CONFIG and the ports (OpenFlow 1.3.5, section 6.3.2).
func (s *session) handshake() error {
	if err := s.conn.SetDeadline(time.Now().Add(patience.OpenFlow.Duration())); err != nil {
		return err
	}
	own := &openflow.Hello{Versions: openflow.Versions(openflow.Version)}
	if err := s.send(own); err != nil {
		return err
	}
	hello, err := expect[*openflow.Hello](s)
	if err != nil {
		return err
	}
	if _, err := openflow.Negotiate(own, hello); err != nil {
		return s.refuse(err)
	}
	if err := s.send(&openflow.FeaturesRequest{}); err != nil {
		return err
	}
	features, err := expect[*openflow.FeaturesReply](s)
	if err != nil {
		return err
	}
	if features.AuxiliaryID != 0 {
		return errors.New("auxiliary connections are not supported")
	}
	if s.controller.Allowed != nil {
		if err := s.controller.Allowed(s.conn, features.DatapathID); err != nil {
			return err
		}
	}
	s.sw = s.controller.newSwitch(s, features)
	config := &openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{MissSendLen: openflow.MaxLenNoBuffer}}
	ports := &openflow.MultipartRequest{Xid: askPorts, Body: openflow.NoBody(openflow.MultipartPortDesc)}
	if err := s.sendAll(config, ports); err != nil {
		return err
	}
	if s.controller.Owner == nil {
		return s.readState(askPorts)
	}
	if err := s.readAnswers(askPorts); err != nil {
		return err
	}
	return standby(s.askEarly)
}

// The xids of the handshake's requests.
const (
	askPorts openflow.Xid = 1 + iota
	askGroups
	askFlows
	askStanding
	firstXid uint32 = 16 // of requests after the handshake
)

// readState reads the switch's groups, its flow entries and whatever else is asked for.
func (s *session) readState(more ...openflow.Xid) error {
	groups := &openflow.MultipartRequest{Xid: askGroups, Body: openflow.NoBody(openflow.MultipartGroupDesc)}
	flows := &openflow.MultipartRequest{Xid: askFlows, Body: openflow.AllFlows()}
	if err := s.sendAll(groups, flows); err != nil {
		return err
	}
	return s.readAnswers(append(more, askGroups, askFlows)...)
}

// readAnswers waits for the answers to these requests. Meanwhile it keeps port changes and, for a
// new master, packets; all other messages are dropped, as they answer nothing that an app has asked
// for.
func (s *session) readAnswers(asked ...openflow.Xid) error {
	open := map[openflow.Xid]bool{}
	for _, xid := range asked {
		open[xid] = true
	}
	for len(open) > 0 {
		m, err := s.next()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *openflow.PacketIn:
			s.sw.hold(m)
		case *openflow.RoleReply:
			s.role(s.sw, m)
		case *openflow.Error:
			if s.role(s.sw, m) {
				continue
			}
			if m.Xid != askGroups && m.Xid != askFlows { // e.g. a switch without groups
				return fmt.Errorf("the switch refuses: %v", m)
			}
			delete(open, m.Xid)
		case *openflow.MultipartReply:
			if !open[m.Xid] {
				continue // nobody has asked
			}
			whole, err := s.parts.Reply(m)
			if err != nil {
				return err
			}
			if whole != nil {
				s.sw.takeState(whole.Body)
				delete(open, whole.Xid)
			}
		}
	}
	return nil
}

// askEarly sends a request before the switch has been announced, and returns the answer.
func (s *session) askEarly(m openflow.Message) (openflow.Message, error) {
	m.SetTransaction(uint32(askStanding))
	if err := s.send(m); err != nil {
		return nil, err
	}
	for {
		got, err := s.next()
		if err != nil || got.Transaction() == uint32(askStanding) {
			return got, err
		}
	}
}

// readAgain reads the state of a connected switch anew.
func (s *session) readAgain() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(patience.OpenFlow.Duration())); err != nil {
		return err
	}
	return s.readState()
}

// refuse answers with an error and returns it.
func (s *session) refuse(err error) error {
	var answer *openflow.Error
	if errors.As(err, &answer) {
		_ = s.send(answer)
	}
	return err
}

// read returns the next message. A malformed one is answered with an ERROR that says why, and ends
// the connection.
func (s *session) read() (openflow.Message, error) {
	b, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	m, err := openflow.Decode(b)
	var wrong *openflow.DecodeError
	if errors.As(err, &wrong) {
		_ = s.send(wrong.Reply(b))
	}
	return m, err
}

// next returns the next message. It answers echo requests itself, and keeps port changes until the
// switch has been announced.
func (s *session) next() (openflow.Message, error) {
	for {
		m, err := s.read()
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *openflow.EchoRequest:
			if err := s.send(&openflow.EchoReply{Xid: m.Xid, Data: m.Data}); err != nil {
				return nil, err
			}
			continue
		case *openflow.PortStatus:
			if s.sw != nil {
				s.sw.changePort(m.Reason, m.Port)
			}
			continue
		}
		return m, nil
	}
}

// expect reads messages until one of type T arrives; others are skipped.
func expect[T openflow.Message](s *session) (want T, err error) {
	for {
		m, err := s.next()
		if err != nil {
			return want, err
		}
		switch m := m.(type) {
		case T:
			return m, nil
		case *openflow.Error:
			return want, fmt.Errorf("the switch refuses: %v", m)
		}
	}
}

// silence returns the timeout for a switch: shorter than usual where this controller is master and
// has standbys.
func (s *session) silence(usual time.Duration) time.Duration {
	if s.controller.Owner != nil && s.sw.Acts() {
		return sharedTime
	}
	return usual
}

// loop handles messages until the connection ends. Everything that has arrived is handled before
// what the apps wrote is sent: one write answers many packets. Parts of an unfinished multipart
// message do not count as a sign of life.
func (s *session) loop() error {
	asked := false
	for until := time.Now().Add(s.silence(idleTime)); ; {
		if err := s.conn.SetReadDeadline(until); err != nil {
			return err
		}
		b, err := s.reader.Next()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked, until = true, time.Now().Add(s.silence(echoTime))
			if err := s.send(&openflow.EchoRequest{}); err != nil {
				return err
			}
			continue
		case errors.As(err, &timeout) && timeout.Timeout():
			return errors.New("the switch does not answer echo requests")
		case errors.Is(err, io.EOF):
			return errors.New("closed by the switch")
		case err != nil:
			return err
		}
		alive, err := s.burst(b)
		if err != nil {
			return err
		}
		if err := s.settle(s.sw, s.readAgain); err != nil {
			return err
		}
		if alive {
			asked, until = false, time.Now().Add(s.silence(idleTime))
		}
	}
}

// burst handles a message and those that have arrived with it, and reports whether any of them
// counts as a sign of life.
func (s *session) burst(b []byte) (alive bool, err error) {
	s.out.Hold()
	for {
		alive = alive || !openflow.IsPart(b)
		if err = s.handle(b); err == nil && s.reader.Ready() {
			if b, err = s.reader.Next(); err == nil {
				continue
			}
		}
		return alive, errors.Join(err, s.out.Release())
	}
}

func (s *session) handle(b []byte) error {
	if openflow.ParseHeader(b).Type == openflow.TypePacketIn {
		return s.packetIn(b)
	}
	m, err := openflow.Decode(b)
	if err != nil {
		var wrong *openflow.DecodeError
		if errors.As(err, &wrong) {
			_ = s.send(wrong.Reply(b))
		}
		return fmt.Errorf("malformed message: %w", err)
	}
	switch m := m.(type) {
	case *openflow.EchoRequest:
		return s.send(&openflow.EchoReply{Xid: m.Xid, Data: m.Data})
	case *openflow.MultipartReply:
		if openflow.IsPart(b) { // the requester may have given up
			s.parts.Keep(s.awaits)
		}
		if !s.awaits(m.Xid) {
			return nil
		}
		whole, err := s.parts.Reply(m)
		if err != nil || whole == nil {
			return err
		}
		s.answer(whole)
	case *openflow.Error:
		s.parts.Forget(m.Xid)
		s.event(s.sw, m)
	default:
		s.event(s.sw, m)
	}
	return nil
}

// packetIn is the hot path: it allocates nothing but what the apps keep.
func (s *session) packetIn(b []byte) error {
	if err := openflow.DecodeInto(b, &s.in); err != nil {
		return fmt.Errorf("malformed message: %w", err)
	}
	s.packetEvent(s.sw, &s.in)
	return nil
}

// send sends a message and never blocks: while events are handled, it is sent after them.
func (s *session) send(m openflow.Message) error {
	if s.isGone() {
		return ErrGone
	}
	return s.out.Add(m, maxWaiting)
}

func (s *session) sendAll(messages ...openflow.Message) error {
	for _, m := range messages {
		if err := s.send(m); err != nil {
			return err
		}
	}
	return nil
}
