package agent

import (
	"errors"
	"sync"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// Peer is the other end of a session: a controller. Its methods may be called concurrently, and
// must not block: packets may wait for them.
type Peer interface {
	// Reply takes an answer to a message passed to Session.Handle, before that returns. A multipart
	// reply is passed as a whole, however long.
	Reply(openflow.Message)

	// Asynchronous takes PACKET_IN, FLOW_REMOVED and PORT_STATUS. It may drop the message, and must
	// copy PACKET_IN data that it keeps. The same message may be passed to other peers.
	Asynchronous(openflow.Message)

	// Closed is called once, when the switch ends the session.
	Closed()
}

// Session is the switch's side of a session with one controller.
type Session struct {
	agent    *Agent
	peer     Peer
	controls bool // false: a management program

	handling sync.Mutex // serializes messages
	parts    openflow.Reassembler

	mu       sync.Mutex // guards what follows
	role     openflow.Role
	async    openflow.AsyncMasks
	missSend uint16
	closed   bool
}

const defaultMissSend = 128 // bytes (section 7.3.2)

// Join starts a session with a controller in the same process. Messages are passed as values; there
// is no HELLO, as both ends are this program. It returns nil if the agent is closed.
func (a *Agent) Join(peer Peer) *Session { return a.join(peer, true) }

func (a *Agent) join(peer Peer, controls bool) *Session {
	s := &Session{agent: a, peer: peer, controls: controls, role: openflow.RoleEqual, missSend: defaultMissSend,
		// Requests in more parts than this are not supported.
		parts: openflow.Reassembler{MaxPending: 4, MaxBytes: 4 << 20}}
	if controls {
		s.async = openflow.DefaultAsync()
	}
	if !a.add(s) {
		return nil
	}
	return s
}

// Close ends the session; either side may call it.
func (s *Session) Close() {
	s.mu.Lock()
	before := s.closed
	s.closed = true
	s.mu.Unlock()
	if !before {
		s.agent.remove(s)
		s.peer.Closed()
	}
}

// Role returns the controller's role.
func (s *Session) Role() openflow.Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role
}

func (s *Session) setRole(r openflow.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role = r
}

// wants reports whether the controller has asked for such a message, given its role (section
// 6.3.5).
func (s *Session) wants(m openflow.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	if s.role == openflow.RoleSlave {
		i = 1
	}
	switch m := m.(type) {
	case *openflow.PacketIn:
		return s.async.PacketIn[i]>>m.Reason&1 == 1
	case *openflow.FlowRemoved:
		return s.async.FlowRemoved[i]>>m.Reason&1 == 1
	case *openflow.PortStatus:
		return s.async.PortStatus[i]>>m.Reason&1 == 1
	}
	return false
}

// Joined implements controller.Insight by pipeline.Switch.Joined.
func (s *Session) Joined(port uint32) (dpid uint64, far uint32, ok bool) {
	return s.agent.sw.Joined(port)
}

// Activity implements controller.Insight by pipeline.Switch.Activity.
func (s *Session) Activity() uint64 { return s.agent.sw.Activity() }

// Handle processes a message; answers are passed to Peer.Reply. When it returns, everything is
// done, and the message may be reused.
func (s *Session) Handle(m openflow.Message) {
	s.handling.Lock()
	defer s.handling.Unlock()
	if err := s.handle(m); err != nil {
		s.peer.Reply(errorFor(m, err))
	}
}

// errorFor makes the ERROR for a rejected message, of which it includes the first 64 bytes (section
// 7.4.4).
func errorFor(m openflow.Message, err error) *openflow.Error {
	answer := &openflow.Error{Code: openflow.BadRequestBadType}
	var refusal *pipeline.Refusal
	var malformed *openflow.DecodeError
	switch {
	case errors.As(err, &refusal):
		answer.Code = refusal.Code
	case errors.As(err, &malformed):
		answer.Code = malformed.Code
	}
	b := m.AppendTo(nil)
	answer.Data = b[:min(len(b), 64)]
	answer.SetTransaction(m.Transaction())
	return answer
}

func (s *Session) reply(to openflow.Message, m openflow.Message) {
	m.SetTransaction(to.Transaction())
	s.peer.Reply(m)
}

func (s *Session) handle(m openflow.Message) error {
	sw, now := s.agent.sw, s.agent.opt.Now()
	if s.Role() == openflow.RoleSlave && openflow.Changes(m) {
		return &pipeline.Refusal{Code: openflow.BadRequestIsSlave, Why: "a slave cannot change the switch"}
	}
	switch m := m.(type) {
	case *openflow.FlowMod:
		return s.flowMod(m)
	case *openflow.PacketOut:
		return s.agent.opt.PacketOut(sw, m)
	case *openflow.GroupMod:
		return sw.GroupMod(m, now)
	case *openflow.MeterMod:
		return sw.MeterMod(m, now)
	case *openflow.PortMod:
		return sw.PortMod(m)
	case *openflow.TableMod:
		return s.tableMod(m)
	case *openflow.MultipartRequest:
		return s.multipart(m)
	case *openflow.BarrierRequest:
		s.agent.opt.Barrier(sw)
		s.reply(m, &openflow.BarrierReply{})
	case *openflow.EchoRequest:
		s.reply(m, m.Reply())
	case *openflow.FeaturesRequest:
		s.reply(m, sw.Features())
	case *openflow.RoleRequest:
		got, err := s.agent.role(s, m.ControllerRole)
		if err != nil {
			return err
		}
		s.reply(m, &openflow.RoleReply{ControllerRole: got})
	case *openflow.QueueGetConfigRequest:
		queues, err := sw.Queues(m.Port)
		if err != nil {
			return err
		}
		s.reply(m, &openflow.QueueGetConfigReply{Port: m.Port, Queues: queues})
	case *openflow.Experimenter:
		return &pipeline.Refusal{Code: openflow.BadRequestBadExperimenter,
			Why: "experimenter messages are not supported"}
	default:
		return s.configure(m)
	}
	return nil
}

// configure handles messages about the session itself.
func (s *Session) configure(m openflow.Message) error {
	switch m := m.(type) {
	case *openflow.Hello, *openflow.EchoReply, *openflow.Error:
	case *openflow.GetConfigRequest:
		s.mu.Lock()
		config := openflow.SwitchConfig{Flags: s.agent.sw.Fragments(), MissSendLen: s.missSend}
		s.mu.Unlock()
		s.reply(m, &openflow.GetConfigReply{SwitchConfig: config})
	case *openflow.SetConfig:
		if err := s.agent.sw.SetFragments(m.Flags); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.missSend = m.MissSendLen; !s.controls && m.MissSendLen > 0 {
			s.async = openflow.DefaultAsync() // a management program that wants to see packets
		}
	case *openflow.GetAsyncRequest:
		s.mu.Lock()
		masks := s.async
		s.mu.Unlock()
		s.reply(m, &openflow.GetAsyncReply{AsyncMasks: masks})
	case *openflow.SetAsync:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.async = m.AsyncMasks
	default:
		return &pipeline.Refusal{Code: openflow.BadRequestBadType, Why: "a switch does not accept this message"}
	}
	return nil
}

func (s *Session) flowMod(m *openflow.FlowMod) error {
	if err := s.agent.sw.FlowMod(m, s.agent.opt.Now()); err != nil {
		return err
	}
	if m.Buffer != openflow.BufferNone &&
		(m.Command == openflow.FlowAdd || m.Command == openflow.FlowModify || m.Command == openflow.FlowModifyStrict) {
		return &pipeline.Refusal{Code: openflow.BadRequestBufferUnknown, Why: "packets are not buffered here"}
	}
	return nil
}

// tableMod has no effect: no bit of a table's configuration has a meaning in this version (section
// 7.3.3).
func (s *Session) tableMod(m *openflow.TableMod) error {
	if m.Table != openflow.TableAll && m.Table >= s.agent.sw.Features().Tables {
		return &pipeline.Refusal{Code: openflow.TableModFailedBadTable, Why: "there is no such table"}
	}
	if m.Config&^3 != 0 {
		return &pipeline.Refusal{Code: openflow.TableModFailedBadConfig, Why: "no such bit of the configuration"}
	}
	return nil
}

func (s *Session) multipart(m *openflow.MultipartRequest) error {
	whole, err := s.parts.Request(m)
	if err != nil || whole == nil {
		return err
	}
	if _, ok := whole.Body.(openflow.ExperimenterMultipart); ok {
		return &pipeline.Refusal{Code: openflow.BadRequestBadExperimenter,
			Why: "experimenter requests are not supported"}
	}
	body, err := s.agent.sw.Multipart(whole.Body, s.agent.opt.Now())
	if err != nil {
		return err
	}
	s.reply(m, &openflow.MultipartReply{Body: body})
	return nil
}
