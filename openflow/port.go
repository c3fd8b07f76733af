package openflow

import "fmt"

// Numbers of ports with a meaning of their own: ofp_port_no (section 7.2.1). Physical
// and logical ports have the numbers 1 to PortMax.
const (
	PortMax        uint32 = 0xffffff00
	PortInPort     uint32 = 0xfffffff8 // back where the packet came in
	PortTable      uint32 = 0xfffffff9 // through the flow tables; in PACKET_OUT alone
	PortNormal     uint32 = 0xfffffffa // as a switch without OpenFlow would
	PortFlood      uint32 = 0xfffffffb
	PortAll        uint32 = 0xfffffffc
	PortController uint32 = 0xfffffffd
	PortLocal      uint32 = 0xfffffffe
	PortAny        uint32 = 0xffffffff // no port in particular; in requests alone
)

// PortConfig is ofp_port_config: what an administrator sets (section 7.2.1).
type PortConfig uint32

const (
	PortConfigDown       PortConfig = 1 << 0
	PortConfigNoRecv     PortConfig = 1 << 2
	PortConfigNoFwd      PortConfig = 1 << 5
	PortConfigNoPacketIn PortConfig = 1 << 6
)

// String lists the names in the specification without their prefix OFPPC_.
func (c PortConfig) String() string {
	return flagNames(uint32(c), "PORT_DOWN", "", "NO_RECV", "", "", "NO_FWD", "NO_PACKET_IN")
}

// PortState is ofp_port_state: what the switch sees (section 7.2.1).
type PortState uint32

const (
	PortStateLinkDown PortState = 1 << iota
	PortStateBlocked
	PortStateLive
)

// String lists the names in the specification without their prefix OFPPS_.
func (s PortState) String() string {
	return flagNames(uint32(s), "LINK_DOWN", "BLOCKED", "LIVE")
}

// PortFeatures is ofp_port_features: rates, media and negotiation (section 7.2.1).
type PortFeatures uint32

const (
	PortFeature10MbHD PortFeatures = 1 << iota
	PortFeature10MbFD
	PortFeature100MbHD
	PortFeature100MbFD
	PortFeature1GbHD
	PortFeature1GbFD
	PortFeature10GbFD
	PortFeature40GbFD
	PortFeature100GbFD
	PortFeature1TbFD
	PortFeatureOther
	PortFeatureCopper
	PortFeatureFiber
	PortFeatureAutoneg
	PortFeaturePause
	PortFeaturePauseAsym
)

// String lists the names in the specification without their prefix OFPPF_.
func (f PortFeatures) String() string {
	return flagNames(uint32(f), "10MB_HD", "10MB_FD", "100MB_HD", "100MB_FD", "1GB_HD", "1GB_FD", "10GB_FD", "40GB_FD",
		"100GB_FD", "1TB_FD", "OTHER", "COPPER", "FIBER", "AUTONEG", "PAUSE", "PAUSE_ASYM")
}

// Port is ofp_port (section 7.2.1).
type Port struct {
	Number uint32
	HWAddr MAC
	Name   string // at most 15 bytes
	Config PortConfig
	State  PortState

	Current, Advertised, Supported, Peer PortFeatures
	CurrentSpeed, MaxSpeed               uint32 // kbit/s
}

// Works reports whether packets can leave by the port: it is enabled and its link is up (called
// live in section 5.6.1, on fast failover).
func (m *Port) Works() bool { return m.Config&PortConfigDown == 0 && m.State&PortStateLinkDown == 0 }

// SetSpeed sets the current and the maximum speed, in kbit/s, and the current feature: that of the
// speed, or PortFeatureOther.
func (m *Port) SetSpeed(speed uint32) {
	m.CurrentSpeed, m.MaxSpeed, m.Current = speed, speed, PortFeatureOther
	if f, ok := speeds[speed]; ok {
		m.Current = f
	}
}

var speeds = map[uint32]PortFeatures{10_000: PortFeature10MbFD, 100_000: PortFeature100MbFD,
	1_000_000:  PortFeature1GbFD,
	10_000_000: PortFeature10GbFD, 40_000_000: PortFeature40GbFD, 100_000_000: PortFeature100GbFD,
	1_000_000_000: PortFeature1TbFD}

const portLen, portNameLen = 64, 16

func (m *Port) appendTo(b []byte) []byte {
	b, p := extend(b, portLen)
	put32(p, 0, m.Number)
	copy(p[8:], m.HWAddr[:])
	putText(p[16:16+portNameLen], m.Name)
	for i, v := range [...]uint32{
		uint32(m.Config), uint32(m.State), uint32(m.Current), uint32(m.Advertised), uint32(m.Supported),
		uint32(m.Peer), m.CurrentSpeed, m.MaxSpeed,
	} {
		put32(p, 32+4*i, v)
	}
	return b
}

func (d decoder) port(at int) Port {
	word := func(i int) uint32 { return get32(d.b, at+32+4*i) }
	return Port{
		Number:       get32(d.b, at),
		HWAddr:       MAC(d.b[at+8 : at+14]),
		Name:         d.text(at+16, portNameLen),
		Config:       PortConfig(word(0)),
		State:        PortState(word(1)),
		Current:      PortFeatures(word(2)),
		Advertised:   PortFeatures(word(3)),
		Supported:    PortFeatures(word(4)),
		Peer:         PortFeatures(word(5)),
		CurrentSpeed: word(6),
		MaxSpeed:     word(7),
	}
}

// String describes the port.
func (m *Port) String() string {
	return fmt.Sprintf("%s(%s) addr:%v config:%v state:%v", PortName(m.Number), m.Name, m.HWAddr, m.Config, m.State)
}

// PortReason is ofp_port_reason (section 7.4.3).
type PortReason uint8

const (
	PortAdd PortReason = iota
	PortDelete
	PortModify
)

// String returns the name in the specification without its prefix OFPPR_.
func (r PortReason) String() string { return nameOf([]string{"ADD", "DELETE", "MODIFY"}, "reason ", r) }

// PortStatus is PORT_STATUS: a port has come, gone or changed (section 7.4.3).
type PortStatus struct {
	Xid
	Reason PortReason
	Port   Port
}

// Type returns TypePortStatus.
func (m *PortStatus) Type() Type { return TypePortStatus }

// AppendTo appends the encoded message.
func (m *PortStatus) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypePortStatus, m.Xid, 16)
	p[8] = byte(m.Reason)
	return finish(m.Port.appendTo(b), at)
}

func (m *PortStatus) decode(d decoder) error {
	if err := d.exactly(16 + portLen); err != nil {
		return err
	}
	m.Reason, m.Port = PortReason(d.b[8]), d.port(16)
	return nil
}

// String describes the message.
func (m *PortStatus) String() string { return fmt.Sprintf("PORT_STATUS %v %v", m.Reason, &m.Port) }

// PortMod is PORT_MOD, which configures a port (section 7.3.4.3).
type PortMod struct {
	Xid
	Port      uint32
	HWAddr    MAC          // must be the port's address
	Config    PortConfig   // bits to set
	Mask      PortConfig   // bits to change
	Advertise PortFeatures // none: as they are
}

// Type returns TypePortMod.
func (m *PortMod) Type() Type { return TypePortMod }

// AppendTo appends the encoded message.
func (m *PortMod) AppendTo(b []byte) []byte {
	b, p := start(b, TypePortMod, m.Xid, 40)
	put32(p, 8, m.Port)
	copy(p[16:], m.HWAddr[:])
	put32(p, 24, uint32(m.Config))
	put32(p, 28, uint32(m.Mask))
	put32(p, 32, uint32(m.Advertise))
	return b
}

func (m *PortMod) decode(d decoder) error {
	if err := d.exactly(40); err != nil {
		return err
	}
	*m = PortMod{
		Port:      get32(d.b, 8),
		HWAddr:    MAC(d.b[16:22]),
		Config:    PortConfig(get32(d.b, 24)),
		Mask:      PortConfig(get32(d.b, 28)),
		Advertise: PortFeatures(get32(d.b, 32)),
	}
	return nil
}

// String describes the message.
func (m *PortMod) String() string {
	return fmt.Sprintf("PORT_MOD port=%s addr=%v config=%v mask=%v advertise=%v", PortName(m.Port), m.HWAddr, m.Config,
		m.Mask, m.Advertise)
}
