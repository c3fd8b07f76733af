package pipeline

import (
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

// Port is a port of a switch. Outputs refer to the Port rather than its number: if the number is
// later given to another port, this one stays gone.
type Port struct {
	owner   *Switch
	desc    openflow.Port
	created time.Duration
	peer    *Port              // over a virtual link
	said    openflow.PortState // by SetPortState
	dark    bool               // its device has no carrier: see SetCarrier
	gone    bool               // removed, or its switch is
	mirror  bool               // a capture looks at packets sent over the virtual link
	vlans   *VLANs             // nil: all frames pass unchanged

	rx, tx               Counter
	rxDropped, txDropped Counter
	looped               Counter // packets that had been here before, unchanged
}

// Switch returns the switch that has the port.
func (p *Port) Switch() *Switch { return p.owner }

// Number returns the port's number.
func (p *Port) Number() uint32 { return p.desc.Number }

// Name returns the port's name.
func (p *Port) Name() string { return p.desc.Name }

// Desc returns the port's current description.
func (p *Port) Desc() openflow.Port {
	p.owner.net.mu.RLock()
	defer p.owner.net.mu.RUnlock()
	return p.desc
}

// Peer returns the port at the other end of the virtual link, or nil.
func (p *Port) Peer() *Port {
	p.owner.net.mu.RLock()
	defer p.owner.net.mu.RUnlock()
	return p.peer
}

// Received counts what has arrived.
func (p *Port) Received() *Counter { return &p.rx }

// Sent counts what was sent.
func (p *Port) Sent() *Counter { return &p.tx }

// Looped counts packets that arrived for a second time without having changed, and were dropped:
// there is a loop. Statistics count them among the dropped.
func (p *Port) Looped() *Counter { return &p.looped }

// SetMirror sets whether packets sent over a port's virtual link are captured: see
// Translation.Mirrors.
func (p *Port) SetMirror(on bool) {
	p.owner.net.mu.Lock()
	defer p.owner.net.mu.Unlock()
	if p.mirror != on {
		p.mirror = on
		p.owner.touch(ReadPorts)
	}
}

// Dropped returns how many packets were dropped on arrival and on sending, without those of a loop.
func (p *Port) Dropped() (received, sent uint64) { return p.rxDropped.Packets(), p.txDropped.Packets() }

// CountDropped counts packets that the device or its queue has dropped.
func (p *Port) CountDropped(received bool, packets, bytes uint64, now time.Duration) {
	if received {
		p.rxDropped.Add(packets, bytes, now)
	} else {
		p.txDropped.Add(packets, bytes, now)
	}
}

// live reports whether packets can leave through the port (section 5.6.1, for fast failover).
func (p *Port) live() bool { return p.desc.Works() }

func (p *Port) part() {
	if q := p.peer; q != nil {
		p.peer, q.peer = nil, nil
		p.owner.touch(ReadPorts)
		q.owner.touch(ReadPorts)
		p.setState()
		q.setState()
	}
}

// AddPort adds a port with a free number: 1 to PortMax, or PortLocal.
func (s *Switch) AddPort(desc openflow.Port, now time.Duration) (*Port, error) {
	if n := desc.Number; n == 0 || n > openflow.PortMax && n != openflow.PortLocal {
		return nil, fmt.Errorf("switch %s: no port can have the number %#x", s.config.Name, n)
	}
	p := &Port{owner: s, desc: desc, said: desc.State, created: now}
	p.settle()
	err := s.net.change(func() error {
		if s.ports[desc.Number] != nil {
			return fmt.Errorf("switch %s has a port %d already", s.config.Name, desc.Number)
		}
		s.ports[desc.Number] = p
		s.sortPorts()
		s.portStatus(openflow.PortAdd, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *Switch) sortPorts() {
	s.order = s.order[:0:0]
	for _, p := range s.ports {
		s.order = append(s.order, p)
	}
	slices.SortFunc(s.order, func(a, b *Port) int {
		if a.desc.Number < b.desc.Number {
			return -1
		}
		return 1
	})
	s.touch(ReadPorts)
}

func (s *Switch) portStatus(why openflow.PortReason, p *Port) {
	s.net.tell(s, &openflow.PortStatus{Reason: why, Port: p.desc})
}

// RemovePort removes a port; its virtual link is cut.
func (s *Switch) RemovePort(number uint32) {
	_ = s.net.change(func() error {
		p := s.ports[number]
		if p == nil {
			return nil
		}
		p.part()
		p.gone = true
		delete(s.ports, number)
		s.sortPorts()
		s.learned.forgetPort(number)
		s.touch(ReadPlaces)
		s.portStatus(openflow.PortDelete, p)
		return nil
	})
}

// Port returns the port with a number, or nil.
func (s *Switch) Port(number uint32) *Port {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	return s.ports[number]
}

// Ports returns the ports by number.
func (s *Switch) Ports() []*Port {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	return slices.Clone(s.order)
}

// SetPortState sets the state that the switch sees at a port: PortStateLinkDown, which may have
// other causes as well, and PortStateBlocked.
func (s *Switch) SetPortState(number uint32, state openflow.PortState) {
	_ = s.net.change(func() error {
		if p := s.ports[number]; p != nil {
			p.said = state
			p.setState()
		}
		return nil
	})
}

// SetPortSpeed sets the maximum rate at which packets leave through a port, in kbit/s.
func (s *Switch) SetPortSpeed(number, speed uint32) {
	_ = s.net.change(func() error {
		if p := s.ports[number]; p != nil {
			before := p.desc
			p.desc.SetSpeed(speed)
			if p.desc != before {
				s.portStatus(openflow.PortModify, p)
			}
		}
		return nil
	})
}

// SetCarrier sets whether the port's device is up and has a carrier; initially it has.
func (p *Port) SetCarrier(on bool) {
	_ = p.owner.net.change(func() error {
		p.dark = !on
		p.setState()
		return nil
	})
}

// setState updates the state and reports a change. When the link goes down the switch forgets the
// addresses there, as bridges do: the hosts may reappear elsewhere.
func (p *Port) setState() {
	before := p.desc.State
	if p.settle() == before || p.gone {
		return
	}
	if p.desc.State&^before&openflow.PortStateLinkDown != 0 {
		p.owner.learned.forgetPort(p.desc.Number)
		p.owner.touch(ReadPlaces)
	}
	p.owner.changed(p, true)
}

// settle computes the state from SetPortState, the device, and the configuration of the port at the
// other end of the virtual link; its last bit follows from the others.
func (p *Port) settle() openflow.PortState {
	p.desc.State = p.said
	// While there is a virtual link, packets use that rather than the device.
	if p.dark && p.peer == nil || p.peer != nil && p.peer.desc.Config&openflow.PortConfigDown != 0 {
		p.desc.State |= openflow.PortStateLinkDown
	}
	p.desc.State &^= openflow.PortStateLive
	if p.live() {
		p.desc.State |= openflow.PortStateLive
	}
	return p.desc.State
}

func (s *Switch) changed(p *Port, really bool) {
	if really {
		s.touch(ReadPorts)
		s.portStatus(openflow.PortModify, p)
	}
}

// PortMod executes a PORT_MOD.
func (s *Switch) PortMod(m *openflow.PortMod) error {
	return s.net.change(func() error {
		p := s.ports[m.Port]
		const all = openflow.PortConfigDown | openflow.PortConfigNoRecv | openflow.PortConfigNoFwd |
			openflow.PortConfigNoPacketIn
		switch {
		case p == nil:
			return refuse(openflow.PortModFailedBadPort, "there is no port %d", m.Port)
		case p.desc.HWAddr != m.HWAddr:
			return refuse(openflow.PortModFailedBadHwAddr, "port %d has the address %v", m.Port, p.desc.HWAddr)
		case (m.Config|m.Mask)&^all != 0:
			return refuse(openflow.PortModFailedBadConfig, "configuration %#x, mask %#x", uint32(m.Config),
				uint32(m.Mask))
		}
		before := p.desc
		p.desc.Config = p.desc.Config&^m.Mask | m.Config&m.Mask
		p.settle()
		s.changed(p, before != p.desc)
		if (before.Config^p.desc.Config)&openflow.PortConfigDown != 0 {
			if p.peer != nil {
				p.peer.setState()
			}
			if on := s.net.onPower; on != nil {
				s.net.news = append(s.net.news, func() { on(p) })
			}
		}
		return nil
	})
}
