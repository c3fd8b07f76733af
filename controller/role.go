package controller

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/openflow"
)

// Ownership decides which switches this controller is master of, if several share them. Its methods
// are called while an event of the switch is handled, and must not block.
type Ownership interface {
	// Connected is called when a switch has connected. This controller is its standby, and cannot
	// change it until Become.
	Connected(s *Switch)

	// Lost is called when the connection has ended.
	Lost(s *Switch)

	// Deposed is called when the switch reports a master with a later generation.
	Deposed(s *Switch)
}

// Watcher is an App that also follows the switches of which another controller is master: it
// receives PortChanged for those, too, and SwitchDown when their connection ends.
type Watcher interface {
	App

	// SwitchSeen is called when a switch has connected with this controller as standby, and its
	// ports are known. SwitchUp follows if this controller becomes master.
	SwitchSeen(s *Switch)

	// SwitchCeased is called when this controller is no longer master but remains connected. Apps
	// that are not Watchers receive SwitchDown. Entries stay in the switch and belong to the new
	// master.
	SwitchCeased(s *Switch)
}

// ErrStandby is returned for changes to a switch of which another controller is master.
var ErrStandby = errors.New("another controller is master of the switch")

// station is this controller's role towards a switch.
type station struct {
	acts atomic.Bool // is master, and the apps are being told; always true without a cluster
	told atomic.Bool // all apps have been told that it is master, and none that it no longer is

	// The generation claimed last, and the one with which the apps know the switch. If they differ,
	// another controller may have been master in between.
	claimed, led atomic.Uint64

	// Used only by the goroutine that handles the switch's events.
	elected bool                 // the switch has agreed; the apps are told next
	by      uint64               // the generation that the switch has agreed to
	held    []*openflow.PacketIn // packets that arrived before the apps were told

	mu    sync.Mutex
	asked map[uint32]openflow.ControllerRole // requests without an answer yet, by xid
	turn  int                                // counts Become and Cease
}

// Limits on what waits for a role.
const (
	maxHeld  = 4096 // packets that have come to a new master before the apps know
	maxTries = 20   // to become a standby while others are elected
)

// A master that is to be replaced polls the switch at these intervals until the new master has been
// elected.
const (
	askAgain  = 10 * time.Millisecond // at first; doubled each time
	askSeldom = time.Second
)

// Acts reports whether this controller decides for the switch: it is master, or there is no
// cluster.
func (s *Switch) Acts() bool { return s.acts.Load() }

// Leads reports whether this controller is master and all its apps have been told, so that their
// state of the switch is complete.
func (s *Switch) Leads() bool { return s.told.Load() && s.Acts() }

// Reign returns the generation with which the apps know the switch: nobody else has changed the
// switch since it agreed to that one. firm is false while a later one has been claimed, of which
// the apps may be about to be told.
func (s *Switch) Reign() (generation uint64, firm bool) {
	generation = s.led.Load()
	return generation, s.claimed.Load() == generation
}

// Become claims the switch for this controller. Apps see SwitchUp once the switch has agreed, then
// the packets that have arrived since. If the switch has a master with a later generation,
// Ownership.Deposed is called. Become may be called at any time.
func (s *Switch) Become(generation uint64) error {
	s.nextTurn()
	s.claimed.Store(generation)
	return s.askRole(openflow.ControllerRole{Role: openflow.RoleMaster, GenerationID: generation})
}

// Cease announces that another controller is about to become master. This one carries on until the
// switch confirms the new master, because until then packets are sent to it alone. Cease may be
// called at any time.
func (s *Switch) Cease() error {
	turn := s.nextTurn()
	return s.ceaseIn(turn, askAgain)
}

func (s *Switch) nextTurn() int {
	s.station.mu.Lock()
	defer s.station.mu.Unlock()
	s.turn++
	return s.turn
}

// ceaseIn asks the switch for its master, and keeps asking until there is another, or Become or
// Cease is called again.
func (s *Switch) ceaseIn(turn int, wait time.Duration) error {
	err := s.askRole(openflow.ControllerRole{})
	if err != nil {
		return err
	}
	time.AfterFunc(wait, func() {
		s.station.mu.Lock()
		over := s.turn != turn
		s.station.mu.Unlock()
		if !over {
			_ = s.ceaseIn(turn, min(2*wait, askSeldom)) // an error: the switch is gone
		}
	})
	return nil
}

// askRole requests a role, or with RoleNoChange the current one.
func (s *Switch) askRole(r openflow.ControllerRole) error {
	m := &openflow.RoleRequest{ControllerRole: r}
	m.SetTransaction(s.session.number())
	s.station.mu.Lock()
	if s.asked == nil {
		s.asked = map[uint32]openflow.ControllerRole{}
	}
	s.asked[m.Transaction()] = r
	s.station.mu.Unlock()
	return s.session.send(m)
}

// takeAsked reports whether a message answers askRole, and for which role.
func (s *Switch) takeAsked(m openflow.Message) (r openflow.ControllerRole, is bool) {
	s.station.mu.Lock()
	defer s.station.mu.Unlock()
	r, is = s.asked[m.Transaction()]
	delete(s.asked, m.Transaction())
	return r, is
}

// role handles role replies, and reports whether the message is one.
func (c *core) role(sw *Switch, m openflow.Message) bool {
	asked, ok := sw.takeAsked(m)
	if !ok {
		return false
	}
	switch m := m.(type) {
	case *openflow.RoleReply:
		switch {
		case asked.Role == openflow.RoleMaster && m.Role == openflow.RoleMaster:
			sw.elected, sw.by = true, asked.GenerationID
		case m.Role == openflow.RoleSlave:
			sw.nextTurn() // what Cease waits for
			c.ceased(sw)
		}
	case *openflow.Error:
		if m.Code != openflow.RoleRequestFailedStale {
			c.controller.log.Error("the switch cannot be shared by several controllers", "switch", sw.Name(), "error",
				m.String())
			return true
		}
		c.ceased(sw)
		c.controller.Owner.Deposed(sw)
	}
	return true
}

// refused handles the switch's statement that another controller is master, with which it has
// rejected a change. The current role is requested, as this controller may have been elected again
// meanwhile.
func (c *core) refused(sw *Switch) {
	if c.controller.Owner == nil || !sw.Acts() {
		return
	}
	sw.station.mu.Lock()
	pending := len(sw.asked) > 0
	sw.station.mu.Unlock()
	if !pending {
		_ = sw.askRole(openflow.ControllerRole{}) // an error: SwitchDown follows
		c.controller.Owner.Deposed(sw)
	}
}

// ceased tells the apps that another controller is master, unless they know.
func (c *core) ceased(sw *Switch) {
	sw.elected, sw.held = false, nil
	if !sw.Acts() {
		return
	}
	c.controller.log.Info("another controller is master", "switch", sw.Name())
	sw.told.Store(false)
	sw.acts.Store(false)
	c.abandon(false)
	c.controller.each(func(a App) {
		if w, ok := a.(Watcher); ok {
			w.SwitchCeased(sw)
		} else {
			a.SwitchDown(sw)
		}
	})
}

// seeing calls f for every app that follows the switch; if another controller is master, for each
// Watcher.
func (c *core) seeing(sw *Switch, f func(App)) {
	acts := sw.Acts()
	c.controller.each(func(a App) {
		if _, watches := a.(Watcher); acts || watches {
			f(a)
		}
	})
}

// greeted announces a connected switch to the apps, or in a cluster to Ownership.
func (c *core) greeted(sw *Switch) {
	owner := c.controller.Owner
	if owner == nil {
		c.up(sw)
		return
	}
	c.controller.each(func(a App) {
		if w, ok := a.(Watcher); ok {
			w.SwitchSeen(sw)
		}
	})
	owner.Connected(sw)
}

// lead notifies the apps that this controller has become master of a switch, then delivers the
// packets held. If it was master before with the same generation, the apps are not notified.
func (c *core) lead(sw *Switch, read func() error) error {
	if !sw.elected {
		return nil
	}
	by := sw.by
	if sw.Acts() {
		if by == sw.led.Load() {
			sw.elected = false
			return nil
		}
		c.ceased(sw) // another may have been master meanwhile, and have changed what the apps know
		sw.elected = true
	}
	sw.had = &state{}
	if err := read(); err != nil || !sw.elected { // another has been elected meanwhile
		return err
	}
	c.controller.log.Info("this controller is master", "switch", sw.Name())
	sw.elected = false
	sw.led.Store(by)
	sw.acts.Store(true)
	c.up(sw)
	held := sw.held
	sw.held = nil
	for _, m := range held {
		c.packetEvent(sw, m)
	}
	return nil
}

// hold keeps a packet that arrived before the apps know that this controller is master.
func (s *Switch) hold(m *openflow.PacketIn) {
	if s.elected && len(s.held) < maxHeld {
		kept := *m
		kept.Data = slices.Clone(m.Data)
		s.held = append(s.held, &kept)
	}
}

// standby makes this controller a standby of a switch. That takes a generation no older than the
// switch's own, which is requested first (section 6.3.6). ask returns the answer to a message.
func standby(ask func(openflow.Message) (openflow.Message, error)) error {
	for range maxTries {
		now, err := askRoleBy(ask, openflow.ControllerRole{})
		if err != nil {
			return err
		}
		if now.GenerationID == ^uint64(0) { // nobody has been elected yet
			now.GenerationID = 0
		}
		_, err = askRoleBy(ask, openflow.ControllerRole{Role: openflow.RoleSlave, GenerationID: now.GenerationID})
		var refusal *openflow.Error
		if !errors.As(err, &refusal) || refusal.Code != openflow.RoleRequestFailedStale {
			return err
		}
	}
	return errors.New("the switch gets new masters faster than it can be asked about them")
}

func askRoleBy(ask func(openflow.Message) (openflow.Message, error),
	r openflow.ControllerRole) (openflow.ControllerRole, error) {
	got, err := ask(&openflow.RoleRequest{ControllerRole: r})
	if err != nil {
		return r, err
	}
	switch m := got.(type) {
	case *openflow.RoleReply:
		return m.ControllerRole, nil
	case *openflow.Error:
		return r, fmt.Errorf("the switch cannot be shared by several controllers: %w", m)
	}
	return r, fmt.Errorf("the switch does not say which role it gives: %v", got)
}
