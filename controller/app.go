package controller

import "trivet.dev/trivet/openflow"

// An App is one thing that a controller does: learn addresses, discover links,
// route. It sees switches and what happens at them, not connections.
//
// Events of one switch arrive one after the other, in the order in which the switch sent them;
// events of different switches arrive concurrently. So what an app keeps per switch needs no lock;
// what it keeps for all switches does. A method must not wait for the switch whose event it handles
// (Switch.Request). If a method panics, the panic is logged with its stack, the event counts as not
// handled, and the other apps carry on.
//
// Embed Base, which does nothing, and override the methods that matter.
type App interface {
	// Name is the app's name in logs and on the command line: one lower-case word.
	Name() string

	// Start is called once, before any event; Stop once, after all.
	Start(c *Controller) error
	Stop()

	// SwitchUp is called when a switch has connected and its ports are known, SwitchDown when it
	// has disconnected.
	SwitchUp(s *Switch)
	SwitchDown(s *Switch)

	// PortChanged is called when a port was added, removed or modified.
	PortChanged(s *Switch, reason openflow.PortReason, p openflow.Port)

	// PacketIn is called for a packet sent to the controller. Apps are called in their order until
	// one returns true. The packet's data may be kept but not changed; the Packet itself is reused.
	PacketIn(s *Switch, p *Packet) (handled bool)

	// FlowRemoved is called when an entry with FlowSendFlowRem has been removed.
	FlowRemoved(s *Switch, m *openflow.FlowRemoved)
}

// Base is an App without a name that does nothing.
type Base struct{}

func (Base) Start(*Controller) error                                 { return nil }
func (Base) Stop()                                                   {}
func (Base) SwitchUp(*Switch)                                        {}
func (Base) SwitchDown(*Switch)                                      {}
func (Base) PortChanged(*Switch, openflow.PortReason, openflow.Port) {}
func (Base) PacketIn(*Switch, *Packet) bool                          { return false }
func (Base) FlowRemoved(*Switch, *openflow.FlowRemoved)              {}

// Packet is a packet that came to the controller.
type Packet struct {
	*openflow.PacketIn
	InPort uint32

	// From its Ethernet header; EtherType is the one behind any VLAN tags. Frames without such a
	// header are never delivered.
	Dst, Src  openflow.MAC
	EtherType uint16
}

// parse reads the Ethernet header and reports whether there is one.
func (p *Packet) parse(m *openflow.PacketIn) bool {
	p.PacketIn = m
	port, ok := m.Match.InPort()
	if !ok || len(m.Data) < 14 {
		return false
	}
	p.InPort = port
	copy(p.Dst[:], m.Data)
	copy(p.Src[:], m.Data[6:])
	for at := 12; ; at += 4 {
		if len(m.Data) < at+2 {
			return false
		}
		p.EtherType = uint16(m.Data[at])<<8 | uint16(m.Data[at+1])
		if p.EtherType != etherTypeVLAN && p.EtherType != etherTypeQinQ {
			return true
		}
	}
}

const (
	etherTypeVLAN = 0x8100 // IEEE 802.1Q
	etherTypeQinQ = 0x88a8 // IEEE 802.1ad
)
