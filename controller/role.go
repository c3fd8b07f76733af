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

// Ownership says, where several controllers have the same switches, of which this one is master.
// Its methods are called while an event of the switch is handled, and must not wait.
type Ownership interface {
	// Connected: a switch has connected, and this controller is its standby: it changes nothing
	// there until Become.
	Connected(s *Switch)

	// Lost: its connection has ended.
	Lost(s *Switch)

	// Deposed: the switch says that it has a younger master than this controller.
	Deposed(s *Switch)
}

// Watcher is an App that also minds the switches of which another controller is master. It is told
// of PortChanged at those, too, and of SwitchDown when their connection ends.
type Watcher interface {
	App

	// SwitchSeen: a switch has connected, its ports are known, and this controller is its standby.
	// SwitchUp follows if it becomes master.
	SwitchSeen(s *Switch)

	// SwitchCeased: this controller is master no longer, but sees the switch as before. Apps that
	// are no Watcher are told SwitchDown. What they have in the switch stays, and is the new
	// master's.
	SwitchCeased(s *Switch)
}

// ErrStandby is that another controller is master of a switch, which therefore cannot be changed.
var ErrStandby = errors.New("another controller is master of the switch")

// station is what a controller is to a switch: its master, or its standby.
type station struct {
	acts atomic.Bool // it is master, and the apps have been told so; without a cluster always
	told atomic.Bool // all apps have been told, and none that this has ended

	// The generation that was claimed last, and that of the role in which the apps know the switch:
	// another controller may have been master between the two.
	claimed, led atomic.Uint64

	// What only the goroutine uses that handles the switch's events.
	elected bool                 // the switch has agreed; the apps are told next
	by      uint64               // the generation that it has agreed to
	held    []*openflow.PacketIn // that have come meanwhile

	mu    sync.Mutex
	asked map[uint32]openflow.ControllerRole // by the xid of requests that are not answered
	turn  int                                // counts Become and Cease
}

// Limits on what waits for a role.
const (
	maxHeld  = 4096 // packets that have come to a new master before the apps know
	maxTries = 20   // to become a standby while others are elected
)

// A master that has another after it asks so often whether the switch is that one's by now.
const (
	askAgain  = 10 * time.Millisecond // at first, then each time after twice as long
	askSeldom = time.Second
)

// Acts reports whether this controller decides for the switch: it is its master, or there is no
// cluster.
func (s *Switch) Acts() bool { return s.acts.Load() }

// Leads reports whether this controller acts for the switch and all its apps know that: what they
// say of the switch is all that there is to say.
func (s *Switch) Leads() bool { return s.told.Load() && s.Acts() }

// Reign returns the generation of the role in which the apps know the switch: since the switch has
// agreed to it, and until it agrees to a later one, nobody else has changed it. firm is false while
// a later one has been claimed, and the apps may be about to be told of it.
func (s *Switch) Reign() (generation uint64, firm bool) {
	generation = s.led.Load()
	return generation, s.claimed.Load() == generation
}

// Become claims the switch for this controller. Apps see SwitchUp once the switch has agreed, and
// packets that come meanwhile after that. If the switch has a younger master than the generation,
// Ownership.Deposed is told. Become may be called at any time.
func (s *Switch) Become(generation uint64) error {
	s.nextTurn()
	s.claimed.Store(generation)
	return s.askRole(openflow.ControllerRole{Role: openflow.RoleMaster, GenerationID: generation})
}

// Cease says that another is about to become master. This controller goes on as before until the
// switch says that it is not its master any more, as packets come to it alone until then. Cease may
// be called at any time.
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

// ceaseIn asks whether the switch has another master, and goes on asking while it has not, and
// nothing else has been decided.
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

// askRole asks for a role, or with RoleNoChange for the one that it has.
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

// role handles an answer about roles, and reports whether the message is one.
func (c *core) role(sw *Switch, m openflow.Message) bool {
	asked, is := sw.takeAsked(m)
	if !is {
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
			c.controller.log.Error("the switch cannot be shared by several controllers", "switch", sw.Name(), "error", m.String())
			return true
		}
		c.ceased(sw)
		c.controller.Owner.Deposed(sw)
	}
	return true
}

// refused notes that the switch obeys another master by now: it has said so of a message that was
// to change it. Whether that is still so is asked, as it may have been elected anew meanwhile.
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

// ceased tells the apps that another is master of the switch, if they do not know.
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
		if w, is := a.(Watcher); is {
			w.SwitchCeased(sw)
		} else {
			a.SwitchDown(sw)
		}
	})
}

// seeing calls f for every app that minds the switch: of one that has another master, for each
// Watcher.
func (c *core) seeing(sw *Switch, f func(App)) {
	acts := sw.Acts()
	c.controller.each(func(a App) {
		if _, watches := a.(Watcher); acts || watches {
			f(a)
		}
	})
}

// greeted tells the apps, or in a cluster whoever decides on masters, of a switch that has
// connected.
func (c *core) greeted(sw *Switch) {
	owner := c.controller.Owner
	if owner == nil {
		c.up(sw)
		return
	}
	c.controller.each(func(a App) {
		if w, is := a.(Watcher); is {
			w.SwitchSeen(sw)
		}
	})
	owner.Connected(sw)
}

// lead tells the apps of a switch of which this controller has become master, and then of the
// packets that have come meanwhile. Where it was master before, by the same generation, nothing is
// new to them.
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

// hold keeps a packet for the apps that has come to a new master before they know of that.
func (s *Switch) hold(m *openflow.PacketIn) {
	if s.elected && len(s.held) < maxHeld {
		kept := *m
		kept.Data = slices.Clone(m.Data)
		s.held = append(s.held, &kept)
	}
}

// standby has a switch treat this controller as a standby, for which a generation is needed that is
// no older than its own: it is asked for that first (section 6.3.6). ask returns the answer to a
// message.
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
	return errors.New("masters of the switch are elected faster than it says so")
}

func askRoleBy(ask func(openflow.Message) (openflow.Message, error), r openflow.ControllerRole) (openflow.ControllerRole, error) {
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
