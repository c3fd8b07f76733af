package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"trivet.dev/trivet/openflow"
)

// Switch is a connected datapath.
type Switch struct {
	session line
	dpid    uint64
	strange bool // not named in any file: stricter limits apply

	controller *Controller

	features openflow.FeaturesReply
	station

	had   *state // discarded when SwitchUp returns
	stale atomic.Bool

	mu    sync.Mutex
	ports map[uint32]openflow.Port
	full  bool // the limit on ports has been reached, and logged
}

// state is what a switch had when it connected.
type state struct {
	flows  openflow.FlowStatsList
	groups openflow.GroupDescList
}

// DPID is the datapath id.
func (s *Switch) DPID() uint64 { return s.dpid }

// Name is the datapath id as people write it, for logs.
func (s *Switch) Name() string { return fmt.Sprintf("%016x", s.dpid) }

// Features returns the switch's answer to FEATURES_REQUEST.
func (s *Switch) Features() openflow.FeaturesReply { return s.features }

// Ports returns the physical and logical ports, by number.
func (s *Switch) Ports() []openflow.Port {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Values(s.ports))
	slices.SortFunc(out, func(a, b openflow.Port) int { return int(a.Number) - int(b.Number) })
	return out
}

// Send queues a message. Messages sent while an event of the switch is handled go out together
// afterwards. An error means that the connection has ended, and SwitchDown follows soon; or, with
// ErrStandby, that another controller is master.
func (s *Switch) Send(m openflow.Message) error {
	if !s.Acts() && openflow.Changes(m) {
		return ErrStandby
	}
	return s.session.send(m)
}

// Request sends a message and waits for its answer: the message with the same xid, or all parts of
// a multipart reply joined. An ERROR is returned as an error (*openflow.Error). Request must not be
// called while an event of the switch is handled.
func (s *Switch) Request(ctx context.Context, m openflow.Message) (openflow.Message, error) {
	return s.session.await(ctx, m, s.Send)
}

// Ask requests statistics of type B, as Request does; an empty list is returned as nil.
func Ask[B openflow.MultipartBody](ctx context.Context, s *Switch, body openflow.MultipartBody) (b B, err error) {
	m, err := s.Request(ctx, &openflow.MultipartRequest{Body: body})
	if err != nil {
		return b, fmt.Errorf("%v: %w", body.MultipartType(), err)
	}
	if reply, ok := m.(*openflow.MultipartReply); ok {
		if b, ok = reply.Body.(B); ok || reply.Body == nil {
			return b, nil
		}
	}
	return b, fmt.Errorf("requested %v, received %v", body.MultipartType(), m.Type())
}

// Barrier waits until the switch has done everything sent before.
func (s *Switch) Barrier(ctx context.Context) error {
	_, err := s.Request(ctx, &openflow.BarrierRequest{})
	return err
}

// Do sends messages that have no answer (FLOW_MOD, GROUP_MOD, …) and waits until the switch has
// done them. If it refuses some, the first refusal is returned (*openflow.Error). Do must not be
// called while an event of the switch is handled.
func (s *Switch) Do(ctx context.Context, messages ...openflow.Message) error {
	refusals := make([]<-chan openflow.Message, len(messages))
	for i, m := range messages {
		var err error
		if refusals[i], err = s.session.postBy(m, s.Send); err != nil {
			return err
		}
		defer s.session.withdraw(m)
	}
	if err := s.Barrier(ctx); err != nil {
		return err
	}
	for _, r := range refusals {
		select {
		case got := <-r:
			if refusal, ok := got.(*openflow.Error); ok {
				return refusal
			}
		default:
		}
	}
	return nil
}

// ErrGone means that the connection to a switch has ended.
var ErrGone = errors.New("the switch is gone")

// Renew makes the apps start over with the switch, as if it had disconnected and connected again,
// because someone else has changed their entries. Call it while an event of the switch is handled.
func (s *Switch) Renew() { s.stale.Store(true) }

func (s *Switch) insight() Insight {
	if m, ok := s.session.(*Memory); ok {
		i, _ := m.dp.(Insight)
		return i
	}
	return nil
}

// Joined is Insight.Joined; ok is false for a switch without Insight.
func (s *Switch) Joined(port uint32) (dpid uint64, far uint32, ok bool) {
	if i := s.insight(); i != nil {
		return i.Joined(port)
	}
	return 0, 0, false
}

// Activity is Insight.Activity; ok is false for a switch without Insight.
func (s *Switch) Activity() (now uint64, ok bool) {
	if i := s.insight(); i != nil {
		return i.Activity(), true
	}
	return 0, false
}

// takeState takes one answer of the handshake.
func (s *Switch) takeState(body openflow.MultipartBody) {
	switch list := body.(type) {
	case openflow.PortDescList:
		for _, p := range list {
			if p.Number <= openflow.PortMax {
				s.changePort(openflow.PortAdd, p)
			}
		}
	case openflow.GroupDescList:
		s.had.groups = list
	case openflow.FlowStatsList:
		s.had.flows = list
	}
}

// changePort applies a PORT_STATUS and reports whether anything changed.
func (s *Switch) changePort(reason openflow.PortReason, p openflow.Port) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, had := s.ports[p.Number]
	switch {
	case reason == openflow.PortDelete:
		delete(s.ports, p.Number)
		if had && s.strange {
			s.controller.strange.Add(-1)
		}
		return had
	case !had && !s.mayHaveMore():
		return false
	case !had && s.strange:
		s.controller.strange.Add(1)
	}
	s.ports[p.Number] = p
	return true
}

// mayHaveMore reports whether the switch may have one more port; if not, it logs that once. mu must
// be held.
func (s *Switch) mayHaveMore() bool {
	if len(s.ports) < maxPorts &&
		(!s.strange || len(s.ports) < maxStrangePort && s.controller.strange.Load() < maxStrangers) {
		return true
	}
	if !s.full {
		s.controller.log.Warn("the switch reports too many ports; further ones are ignored", "switch", s.Name(),
			"ports", len(s.ports))
	}
	s.full = true
	return false
}

// dropPorts subtracts the ports of a switch that is gone from the total.
func (s *Switch) dropPorts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strange {
		s.controller.strange.Add(-int64(len(s.ports)))
		s.strange = false
	}
}
