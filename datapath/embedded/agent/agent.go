// Package agent is the OpenFlow 1.3 agent of embedded switches: sessions with controllers, their
// roles, and fail modes. It connects to controllers (tcp, unix, ssl), listens for management
// programs (ovs-ofctl), and joins a controller in the same process without a socket, goroutine or
// encoding: see Agent.Join.
package agent

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// Options configure an agent. Zero values mean the defaults, but Now and PacketOut are required.
type Options struct {
	Log *slog.Logger

	// Now returns the network's time.
	Now func() time.Duration

	// PacketOut executes a PACKET_OUT; the error is a *pipeline.Refusal.
	PacketOut func(*pipeline.Switch, *openflow.PacketOut) error

	// Barrier is called before a barrier is answered; it returns when no packet is forwarded by an
	// earlier state any more.
	Barrier func(*pipeline.Switch)

	// Dial connects to a controller; nil: from the process's network namespace.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Standalone makes the switch forward by learning while no controller is connected. Otherwise
	// it keeps forwarding by its entries (fail secure, section 6.4).
	Standalone bool

	FailAfter  time.Duration // without a connection, after which Standalone takes effect; default 15 s
	MaxBackoff time.Duration // between two attempts to connect; default 8 s
	Inactivity time.Duration // of a peer, after which it is sent an echo request; default 5 s
}

// Agent represents one switch towards its controllers.
type Agent struct {
	sw  *pipeline.Switch
	opt Options

	// Changed with mu held; read without, because messages may result from a change made with mu
	// held.
	sessions atomic.Pointer[[]*Session]

	// roles is write-locked while roles change, so that a message goes to those with a role at one
	// instant: a packet goes to the old master or the new one, not to both or none.
	roles sync.RWMutex

	mu         sync.RWMutex
	targets    []*target
	listeners  []*listener
	generation uint64 // of the last election of a master
	elected    bool
	failing    *time.Timer // runs until the switch starts to forward by learning
	learns     bool        // see learn
	closed     bool
	group      sync.WaitGroup
}

// New returns an agent for a switch, without controllers; so a Standalone switch forwards by
// learning.
func New(s *pipeline.Switch, o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Barrier == nil {
		o.Barrier = func(*pipeline.Switch) {}
	}
	if o.Dial == nil {
		o.Dial = Dial
	}
	setDefault(&o.FailAfter, 15*time.Second)
	setDefault(&o.MaxBackoff, 8*time.Second)
	setDefault(&o.Inactivity, 5*time.Second)
	a := &Agent{sw: s, opt: o}
	s.SetNotify(a.tell)
	a.failMode()
	return a
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Switch returns the switch that the agent speaks for.
func (a *Agent) Switch() *pipeline.Switch { return a.sw }

// Close ends all sessions; the switch keeps forwarding by its entries.
func (a *Agent) Close() {
	a.mu.Lock()
	a.closed = true
	targets, listeners := a.targets, a.listeners
	a.targets, a.listeners = nil, nil
	if a.failing != nil {
		a.failing.Stop()
		a.failing = nil
	}
	a.mu.Unlock()
	for _, t := range targets {
		t.stop()
	}
	for _, l := range listeners {
		l.Close()
	}
	for _, s := range a.list() {
		s.Close()
	}
	a.group.Wait()
}

// add registers a session; false: the agent is closed.
func (a *Agent) add(s *Session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.setList(append(slices.Clone(a.list()), s))
	if s.controls {
		a.failMode()
	}
	return true
}

func (a *Agent) remove(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setList(slices.DeleteFunc(slices.Clone(a.list()), func(other *Session) bool { return other == s }))
	if s.controls {
		a.failMode()
	}
}

// failMode starts or ends standalone forwarding without a controller. It is called with mu held.
func (a *Agent) failMode() {
	if a.failing != nil {
		a.failing.Stop()
		a.failing = nil
	}
	if a.closed {
		a.sw.SetStandalone(false)
		return
	}
	a.learn(a.opt.Standalone && len(a.targets) == 0 && !a.controlled())
	if a.controlled() || len(a.targets) == 0 {
		a.sw.SetStandalone(false)
		return
	}
	if !a.opt.Standalone {
		return
	}
	var own *time.Timer
	own = time.AfterFunc(a.opt.FailAfter, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.failing == own { // otherwise it was stopped while it waited for the lock
			a.opt.Log.Warn("no controller: the switch forwards by learning", "switch", a.sw.Name())
			a.sw.SetStandalone(true)
		}
	})
	a.failing = own
}

// SetStandalone changes what the switch does without a controller: see Options.
func (a *Agent) SetStandalone(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.opt.Standalone == on {
		return
	}
	a.opt.Standalone = on
	a.sw.SetStandalone(false)
	a.failMode()
}

// LearnCookie distinguishes learn's entry from others with the same match. No app of Trivet's
// controller uses it.
const LearnCookie = 0x6c6561726e

// learn makes a switch without configured controllers forward by learning, by an entry of the
// lowest precedence, as Open vSwitch does, so that entries added by hand take precedence. If
// somebody has replaced that entry, theirs stays. It is called with mu held.
func (a *Agent) learn(on bool) {
	if a.learns == on {
		return
	}
	a.learns = on
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, 0, openflow.Match{})
	if m.Cookie, m.CookieMask = LearnCookie, ^uint64(0); on {
		m = openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{},
			openflow.ApplyActions(openflow.Output(openflow.PortNormal)))
		m.Cookie = LearnCookie
	}
	if err := a.sw.FlowMod(m, a.opt.Now()); err != nil {
		a.opt.Log.Warn("the switch does not forward by learning", "switch", a.sw.Name(), "error", err)
	}
}

func (a *Agent) controlled() bool {
	return slices.ContainsFunc(a.list(), func(s *Session) bool { return s.controls })
}

// Connected reports whether there is a session with a controller.
func (a *Agent) Connected() bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.controlled()
}

// list returns the sessions; it must not be changed.
func (a *Agent) list() []*Session {
	if list := a.sessions.Load(); list != nil {
		return *list
	}
	return nil
}

func (a *Agent) setList(list []*Session) { a.sessions.Store(&list) }

// PacketIn sends a packet to the controllers that want it. Data must not change afterwards.
func (a *Agent) PacketIn(m *openflow.PacketIn) { a.tell(m) }

// tell sends an asynchronous message to the controllers that want it (section 6.3.5).
func (a *Agent) tell(m openflow.Message) {
	a.roles.RLock()
	defer a.roles.RUnlock()
	for _, s := range a.list() {
		if s.wants(m) {
			s.peer.Asynchronous(m)
		}
	}
}

// role changes the role of a session (section 6.3.6).
func (a *Agent) role(s *Session, r openflow.ControllerRole) (openflow.ControllerRole, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roles.Lock()
	defer a.roles.Unlock()
	if r.Role == openflow.RoleMaster || r.Role == openflow.RoleSlave {
		if a.elected && int64(r.GenerationID-a.generation) < 0 {
			return r, &pipeline.Refusal{Code: openflow.RoleRequestFailedStale, Why: "a newer election is known"}
		}
		a.generation, a.elected = r.GenerationID, true
	}
	if r.Role == openflow.RoleMaster {
		for _, other := range a.list() {
			if other != s && other.Role() == openflow.RoleMaster {
				other.setRole(openflow.RoleSlave)
			}
		}
	}
	if r.Role != openflow.RoleNoChange {
		s.setRole(r.Role)
	}
	generation := a.generation
	if !a.elected {
		generation = ^uint64(0)
	}
	return openflow.ControllerRole{Role: s.Role(), GenerationID: generation}, nil
}
