// Package controller is an OpenFlow 1.3 controller: it accepts switches, over connections of any
// kind, and lets apps decide for them.
//
// One goroutine reads from each switch and calls the apps; it waits for nothing but that switch.
// Another writes to it. Messages to a switch are queued there, so a switch that does not read
// delays no other, and eventually loses its connection. One that floods the controller gets its
// share of the processors and no more, and thousands can be idle at the cost of their memory alone.
package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/openflow"
)

// Controller is a set of switches and the apps that decide for them.
type Controller struct {
	// Allowed returns an error if the peer of a connection may not claim a datapath id; nil: every
	// peer may. Set it before Serve.
	Allowed func(conn net.Conn, dpid uint64) error

	// Owner decides which switches this controller is master of, if several share them; nil: there
	// is no cluster. Set it before a switch connects.
	Owner Ownership

	log  *slog.Logger
	apps []App

	waiting  accept.Waiting
	refused  rarely
	named    func(dpid uint64) bool
	strange  atomic.Int64 // ports of all unnamed switches
	mu       sync.RWMutex
	switches map[uint64]*Switch
	unnamed  int // how many of the switches are unnamed
	sessions map[*session]bool
	closed   bool
	group    sync.WaitGroup
}

// New starts the apps. Events are offered to them in this order.
func New(log *slog.Logger, apps ...App) (*Controller, error) {
	c := &Controller{log: log, apps: apps, switches: map[uint64]*Switch{}, sessions: map[*session]bool{}}
	for i, a := range apps {
		if err := a.Start(c); err != nil {
			for _, started := range apps[:i] {
				started.Stop()
			}
			return nil, fmt.Errorf("start app %s: %w", a.Name(), err)
		}
	}
	return c, nil
}

// Named sets the function that reports whether the user has named a datapath id: the limits on
// switches do not apply to those. Without it, no switch counts as named. Call it before Serve.
func (c *Controller) Named(f func(dpid uint64) bool) { c.named = f }

// newSwitch returns the switch at the other end of a session.
func (c *Controller) newSwitch(l line, f *openflow.FeaturesReply) *Switch {
	strange := c.named == nil || !c.named(f.DatapathID)
	s := &Switch{session: l, controller: c, strange: strange, dpid: f.DatapathID, features: *f, had: &state{},
		ports: map[uint32]openflow.Port{}}
	s.acts.Store(c.Owner == nil)
	return s
}

// Serve accepts connections until the listener is closed.
func (c *Controller) Serve(l net.Listener) error {
	for {
		conn, err := accept.Next(l, func(why error) { c.log.Warn("cannot accept a switch", "error", why) })
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if !c.waiting.Enter(conn) {
			c.refused.warn(c.log,
				"connections refused: too many from one address have not yet said which switch they are", "last",
				conn.RemoteAddr())
			continue
		}
		go c.Meet(conn)
	}
}

// Meet serves the switch at the other end of a connection until the connection ends.
func (c *Controller) Meet(conn net.Conn) {
	s := newSession(c, conn)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		conn.Close()
		return
	}
	c.sessions[s] = true
	c.group.Add(1)
	c.mu.Unlock()
	defer c.group.Done()
	sent := make(chan struct{})
	go func() { defer close(sent); s.out.Run() }()
	err := s.run()
	c.waiting.Leave(conn)
	s.out.Close()
	<-sent
	if why := s.out.Err(); errors.Is(why, openflow.ErrNotReading) {
		err = why
	}
	c.mu.Lock()
	delete(c.sessions, s)
	c.mu.Unlock()
	c.log.Info("connection ended", "peer", s.peer(), "reason", err)
}

// Switch returns the connected switch with this datapath id, or nil; nil also if another controller
// is its master.
func (c *Controller) Switch(dpid uint64) *Switch {
	if s := c.Seen(dpid); s != nil && s.Acts() {
		return s
	}
	return nil
}

// Seen returns the connected switch with this datapath id, or nil, whoever is its master.
func (c *Controller) Seen(dpid uint64) *Switch {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.switches[dpid]
}

// Switches returns the connected switches by datapath id, without those of which another controller
// is master.
func (c *Controller) Switches() []*Switch {
	return slices.DeleteFunc(c.AllSeen(), func(s *Switch) bool { return !s.Acts() })
}

// AllSeen returns the connected switches by datapath id, whoever is their master.
func (c *Controller) AllSeen() []*Switch {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*Switch, 0, len(c.switches))
	out = slices.AppendSeq(out, maps.Values(c.switches))
	slices.SortFunc(out, func(a, b *Switch) int {
		if a.dpid < b.dpid {
			return -1
		}
		return 1
	})
	return out
}

// Log is where apps log what an operator should know.
func (c *Controller) Log() *slog.Logger { return c.log }

// Close ends all connections and stops the apps.
func (c *Controller) Close() {
	c.mu.Lock()
	c.closed = true
	for s := range c.sessions {
		go s.conn.Close() // with TLS, this may take a while
	}
	c.mu.Unlock()
	c.group.Wait()
	for _, a := range c.apps {
		a.Stop()
	}
}

// join registers a switch. A datapath id belongs to one switch at a time: a second one that claims
// it is refused as long as the first one answers (the second may be an impostor or a copy).
func (c *Controller) join(s *Switch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.strange && c.unnamed >= maxUnnamed {
		return fmt.Errorf("datapath id %016x has no name, and %d switches without one are already connected", s.dpid,
			maxUnnamed)
	}
	if other := c.switches[s.dpid]; other != nil {
		return fmt.Errorf("datapath id %016x is already used by the switch at %s", s.dpid, other.session.peer())
	}
	c.switches[s.dpid] = s
	if s.strange {
		c.unnamed++
	}
	return nil
}

func (c *Controller) leave(s *Switch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.switches[s.dpid] == s {
		delete(c.switches, s.dpid)
		if s.strange {
			c.unnamed--
		}
	}
}

// each calls f for every app, one after the other, and recovers their panics.
func (c *Controller) each(f func(App)) {
	for _, a := range c.apps {
		c.contain(a, f)
	}
}

func (c *Controller) contain(a App, f func(App)) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("app failed; the event is skipped", "app", a.Name(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	f(a)
}

// packetIn asks the apps in turn until one has handled the packet.
func (c *Controller) packetIn(s *Switch, p *Packet) {
	for _, a := range c.apps {
		if c.packetInTo(a, s, p) {
			return
		}
	}
}

func (c *Controller) packetInTo(a App, s *Switch, p *Packet) (handled bool) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("app failed; the packet is skipped", "app", a.Name(), "panic", r, "stack",
				string(debug.Stack()))
		}
	}()
	return a.PacketIn(s, p)
}
