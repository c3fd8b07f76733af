//go:build linux

package cache

import (
	"fmt"
	"time"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/internal/inside"
)

// port is a port with a device.
type port struct {
	id     uint32
	port   *pipeline.Port
	device device
	asked  Mode
	wire   *wire.Device // for packets through user space

	masks   [classes]words
	maskIDs [classes]uint32
	flows   map[bpf.ForwardFlowKey]*entry

	fullUntil time.Duration // no entry is idle
	// The count of packets sent through the device that must leave it before it can be bypassed,
	// plus one; 0: nothing to do.
	settling uint64

	// Used by the worker only.
	queue  []waiting
	tokens float64
	filled time.Duration
	parts  uint16 // still missing of a packet
	seen   uint64 // packets passed to the miss channel at the last look
}

// Attach makes packets that arrive on a device arrive on a port, and packets sent from the port
// leave through the device, which must be up and in the engine's namespace.
func (e *Engine) Attach(p *pipeline.Port, ifindex int, mode Mode) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("device %d: the engine is closed", ifindex)
	}
	if shut(p) {
		if err := e.dev.power(ifindex, false); err != nil {
			return fmt.Errorf("device %d: %w", ifindex, err)
		}
	}
	d, err := e.dev.examine(ifindex, mode) // later changes are reported by notices
	if err != nil {
		return err
	}
	if e.attached[p] != nil {
		return fmt.Errorf("device %s: port %d of %s has a device already", d.name, p.Number(), p.Switch().Name())
	}
	id, ok := e.portIDs.get()
	if !ok {
		return fmt.Errorf("device %s: there are %d ports already", d.name, e.opt.Ports-1)
	}
	q := &port{id: id, port: p, device: d, asked: mode, flows: map[bpf.ForwardFlowKey]*entry{}}
	if e.why != "" {
		err = e.attachWire(q)
	} else {
		err = e.attachProgram(q)
	}
	if err != nil {
		e.portIDs.put(id)
		return err
	}
	e.attached[p], e.byDevice[d.index], e.byID[id] = q, q, q
	p.SetCarrier(d.on)
	e.staleAll()
	e.changes.poke()
	return nil
}

func (e *Engine) attachProgram(q *port) error {
	if err := e.dev.hear(q.device); err != nil {
		return err
	}
	s := &e.ports[q.id]
	*s = bpf.ForwardPort{Limit: uint32(e.opt.Queue)}
	q.publish(s)
	if err := e.objs.Devices.Put(uint32(q.device.index), q.id); err != nil {
		return fmt.Errorf("device %s: %w", q.device.name, err)
	}
	if e.adopting {
		return nil
	}
	if err := e.dev.attach(q.device.index, e.objs.Ingress.FD(), programName); err != nil {
		_ = e.objs.Devices.Delete(uint32(q.device.index))
		store32(&s.Ifindex, 0)
		return err
	}
	return nil
}

// publish tells the program how packets leave.
func (q *port) publish(s *bpf.ForwardPort) {
	switch {
	case q.device.mode == Peer:
		s.Mac = q.device.peer
		store32(&s.Mode, modePeer)
	case q.device.queue:
		store32(&s.Mode, modeQueue)
	default:
		store32(&s.Mode, modeEgress)
	}
	store32(&s.Ifindex, uint32(q.device.index))
}

const (
	modeEgress = 0
	modePeer   = 1
	modeQueue  = 2
)

func (e *Engine) attachWire(q *port) error {
	if e.adopting { // otherwise packets would be forwarded twice
		if err := e.dev.detach(q.device.index); err != nil {
			return err
		}
	}
	err := inside.Namespace(e.opt.Namespace, func() (err error) {
		q.wire, err = wire.Open(q.device.name)
		return err
	})
	if err != nil {
		return err
	}
	e.group.Go(func() {
		if err := q.wire.Receive(func(pkt *pipeline.Packet) { e.dp.Receive(q.port, pkt) }); err != nil {
			e.opt.Log.Debug("a device has ended", "error", err)
		}
	})
	return nil
}

// Detach removes a port's device; packets in transit to it are dropped.
func (e *Engine) Detach(p *pipeline.Port) error {
	e.mu.Lock()
	q := e.attached[p]
	if q == nil || e.closed {
		e.mu.Unlock()
		return nil
	}
	delete(e.attached, p)
	if e.byDevice[q.device.index] == q {
		delete(e.byDevice, q.device.index)
	}
	p.SetCarrier(true) // what is behind it now has no carrier of its own
	if q.wire != nil {
		err := q.wire.Close()
		e.byID[q.id] = nil
		e.portIDs.put(q.id)
		e.mu.Unlock()
		return err
	}
	store32(&e.ports[q.id].Ifindex, 0)
	_ = e.objs.Devices.Delete(uint32(q.device.index))
	err := e.dev.detach(q.device.index)
	for _, x := range q.flows {
		e.remove(x)
	}
	e.staleAll()
	e.mu.Unlock()

	e.Barrier(nil) // entries that lead to it
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byID[q.id] = nil
	e.portIDs.put(q.id)
	return err
}

// Look makes packets go through a port's device, where captures see them, or with false lets them
// bypass it as Auto does, once none is in transit there: the device's queue could otherwise be
// overtaken.
func (e *Engine) Look(p *pipeline.Port, on bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.attached[p]
	if q == nil || e.closed || q.wire != nil {
		return nil
	}
	q.asked, q.settling = Auto, 0
	if on {
		q.asked, q.device.mode = Egress, Egress
		q.publish(&e.ports[q.id])
		return nil
	}
	q.settling = p.Sent().Packets() + 1
	return nil
}

// settleModes lets packets bypass devices that are neither watched nor shaped any more, once no
// packet has gone through for a while. It is called with mu held, from time to time.
func (e *Engine) settleModes() {
	for p, q := range e.attached {
		if q.settling == 0 {
			continue
		}
		if sent := p.Sent().Packets() + 1; sent != q.settling {
			q.settling = sent
			continue
		}
		e.refresh(q, true)
	}
}

func (e *Engine) deviceOf(p *pipeline.Port) (id, mtu uint32, ok bool) {
	q := e.attached[p]
	if q == nil {
		return 0, 0, false
	}
	return q.id, q.device.mtu, true
}
