package controller

import (
	"context"
	"sync"

	"trivet.dev/trivet/openflow"
)

// line carries messages to and from a switch: a session over a connection, or one in memory.
type line interface {
	send(openflow.Message) error
	await(context.Context, openflow.Message, func(openflow.Message) error) (openflow.Message, error)
	postBy(openflow.Message, func(openflow.Message) error) (<-chan openflow.Message, error)
	withdraw(openflow.Message)
	number() uint32 // an xid for the next request
	peer() string
	southbound() (Southbound, bool)
}

// core is what all kinds of sessions share: it matches answers to requests and passes events to
// apps.
type core struct {
	controller *Controller
	sw         *Switch // nil until the handshake is done
	packet     Packet  // the last one; reused

	waits   sync.Mutex // guards what follows
	next    uint32
	waiting map[uint32]chan<- openflow.Message
	gone    bool
}

func newCore(c *Controller) core {
	return core{controller: c, next: firstXid, waiting: map[uint32]chan<- openflow.Message{}}
}

func (c *core) isGone() bool {
	c.waits.Lock()
	defer c.waits.Unlock()
	return c.gone
}

// down fails all pending requests and reports that the switch is gone.
func (c *core) down(sw *Switch) {
	c.abandon(true)
	c.controller.leave(sw)
	c.seeing(sw, func(a App) { a.SwitchDown(sw) })
	if owner := c.controller.Owner; owner != nil {
		owner.Lost(sw)
	}
}

// abandon fails all pending requests, and future ones if the switch is gone.
func (c *core) abandon(gone bool) {
	c.waits.Lock()
	defer c.waits.Unlock()
	for _, answer := range c.waiting {
		close(answer)
	}
	c.gone = gone
	clear(c.waiting)
}

// up tells the apps that a switch, whose state has been read, is up.
func (c *core) up(sw *Switch) {
	c.controller.each(func(a App) { a.SwitchUp(sw) })
	sw.told.Store(true)
	sw.had = nil
}

// settle completes an event that requires the switch's state to be read: this controller has become
// master, or an app has called Renew.
func (c *core) settle(sw *Switch, read func() error) error {
	if err := c.lead(sw, read); err != nil {
		return err
	}
	if !sw.stale.Swap(false) || !sw.Acts() {
		return nil
	}
	c.controller.log.Warn("flow entries of the controller were deleted by someone else; they are installed again",
		"switch", sw.Name())
	sw.told.Store(false)
	c.abandon(false)
	c.controller.each(func(a App) { a.SwitchDown(sw) })
	sw.had = &state{}
	if err := read(); err != nil {
		return err
	}
	c.up(sw)
	return nil
}

// event passes a message that is not a PACKET_IN to the request that waits for it, or to the apps.
func (c *core) event(sw *Switch, m openflow.Message) {
	switch m := m.(type) {
	case *openflow.PortStatus:
		if m.Port.Number <= openflow.PortMax && sw.changePort(m.Reason, m.Port) {
			c.seeing(sw, func(a App) { a.PortChanged(sw, m.Reason, m.Port) })
		}
	case *openflow.FlowRemoved:
		if sw.Acts() {
			c.controller.each(func(a App) { a.FlowRemoved(sw, m) })
		}
	case *openflow.RoleReply:
		if !c.role(sw, m) {
			c.answer(m)
		}
	case *openflow.Error:
		if c.role(sw, m) {
			return
		}
		if m.Code == openflow.BadRequestIsSlave {
			c.refused(sw)
		}
		if !c.answer(m) {
			c.controller.log.Warn("error from the switch", "switch", sw.Name(), "error", m.String())
		}
	default:
		c.answer(m)
	}
}

func (c *core) packetEvent(sw *Switch, m *openflow.PacketIn) {
	if !sw.Acts() {
		sw.hold(m)
		return
	}
	if c.packet.parse(m) {
		c.controller.packetIn(sw, &c.packet)
	}
}

// answer passes a message to the request that waits for it, and reports whether there was one.
func (c *core) answer(m openflow.Message) bool {
	c.waits.Lock()
	defer c.waits.Unlock()
	to, ok := c.waiting[m.Transaction()]
	if ok {
		delete(c.waiting, m.Transaction())
		to <- m
	}
	return ok
}

// await sends a request and waits for its answer.
func (c *core) await(ctx context.Context, m openflow.Message,
	send func(openflow.Message) error) (openflow.Message, error) {
	answer, err := c.postBy(m, send)
	if err != nil {
		return nil, err
	}
	select {
	case got, ok := <-answer:
		if refusal, refused := got.(*openflow.Error); refused {
			return nil, refusal
		}
		if !ok {
			return nil, ErrGone
		}
		return got, nil
	case <-ctx.Done():
		c.withdraw(m)
		return nil, ctx.Err()
	}
}

// postBy sends a message with an xid of its own; the switch's answer to it arrives on the channel.
func (c *core) postBy(m openflow.Message, send func(openflow.Message) error) (<-chan openflow.Message, error) {
	answer := make(chan openflow.Message, 1)
	c.waits.Lock()
	if c.gone {
		c.waits.Unlock()
		return nil, ErrGone
	}
	m.SetTransaction(c.nextXid())
	c.waiting[m.Transaction()] = answer
	c.waits.Unlock()
	if err := send(m); err != nil {
		c.withdraw(m)
		return nil, err
	}
	return answer, nil
}

// nextXid returns an xid that no pending request has. waits must be held.
func (c *core) nextXid() uint32 {
	c.next++
	return c.next
}

func (c *core) number() uint32 {
	c.waits.Lock()
	defer c.waits.Unlock()
	return c.nextXid()
}

// awaits reports whether a request waits for the answer with this xid.
func (c *core) awaits(x openflow.Xid) bool {
	c.waits.Lock()
	defer c.waits.Unlock()
	return c.waiting[uint32(x)] != nil
}

// withdraw stops waiting for the answer to a message.
func (c *core) withdraw(m openflow.Message) {
	c.waits.Lock()
	defer c.waits.Unlock()
	delete(c.waiting, m.Transaction())
}
