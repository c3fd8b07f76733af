//go:build linux

package cache

import (
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// listen follows changes of devices.
func (e *Engine) listen() {
	for {
		lost, ok := e.dev.notices.Wait()
		if !ok {
			return
		}
		e.keepUp(lost)
	}
}

// keepUp updates ports to their devices: the kernel sends a notice before the change's caller
// continues.
func (e *Engine) keepUp(lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	indexes, more := e.dev.notices.Take()
	if lost = lost || more; !lost && len(indexes) == 0 {
		return
	}
	if lost {
		for _, q := range e.attached {
			e.refresh(q, false)
		}
		return
	}
	for index := range indexes {
		if q := e.byDevice[index]; q != nil {
			e.refresh(q, false)
		}
	}
}

// power sets a port's device up or down as the controller has configured the port; when it is down,
// the other end loses its carrier.
func (e *Engine) power(p *pipeline.Port) {
	e.mu.Lock()
	if q := e.attached[p]; q != nil && !e.closed {
		if err := e.dev.power(q.device.index, !shut(p)); err != nil {
			e.opt.Log.Warn("a port's device could not be brought up or down as configured", "device", q.device.name,
				"error", err)
		}
	}
	e.mu.Unlock()
	e.keepUp(false)
}

func shut(p *pipeline.Port) bool { return p.Desc().Config&openflow.PortConfigDown != 0 }

// refresh reads the state of a port's device again: whether it is running, how packets leave
// through it, and its MTU. If packets must go through the device they do so from now on; they
// bypass it only once none is in transit there, that is, when settled. It is called with mu held.
func (e *Engine) refresh(q *port, settled bool) {
	d, err := e.dev.examine(q.device.index, q.asked)
	if err != nil { // it is gone
		q.device.on = false
		q.port.SetCarrier(false)
		return
	}
	if d.on != q.device.on {
		q.port.SetCarrier(d.on)
	}
	if d.mtu != q.device.mtu {
		e.staleAll()
		e.changes.poke()
	}
	switch {
	case d.mode == Egress || settled:
		q.settling = 0
	case q.settling == 0 && q.device.mode == Egress:
		q.settling = q.port.Sent().Packets() + 1
	}
	if q.settling != 0 {
		d.mode = Egress
	}
	q.device = d
	if q.wire == nil {
		q.publish(&e.ports[q.id])
	}
}
