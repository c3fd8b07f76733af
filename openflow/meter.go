package openflow

import (
	"fmt"
	"strings"
)

// MeterModCommand is ofp_meter_mod_command (section 7.3.4.4).
type MeterModCommand uint16

const (
	MeterAdd MeterModCommand = iota
	MeterModify
	MeterDelete
)

// String returns the name in the specification without its prefix OFPMC_.
func (c MeterModCommand) String() string {
	return nameOf([]string{"ADD", "MODIFY", "DELETE"}, "command ", c)
}

// Numbers of meters with a meaning of their own: ofp_meter (section 7.3.4.4).
const (
	MeterMax        uint32 = 0xffff0000
	MeterSlowpath   uint32 = 0xfffffffd
	MeterController uint32 = 0xfffffffe
	MeterAll        uint32 = 0xffffffff // in requests and to delete
)

// MeterFlags is ofp_meter_flags (section 7.3.4.4).
type MeterFlags uint16

const (
	MeterFlagKbps  MeterFlags = 1 << iota // rates in kbit/s
	MeterFlagPktps                        // rates in packets/s
	MeterFlagBurst                        // burst sizes count
	MeterFlagStats                        // keep statistics
)

// String lists the names as ovs-ofctl writes them.
func (f MeterFlags) String() string { return flagNames(uint32(f), "kbps", "pktps", "burst", "stats") }

// MeterBandType is ofp_meter_band_type (section 7.3.4.4).
type MeterBandType uint16

const (
	BandDrop         MeterBandType = 1
	BandDSCPRemark   MeterBandType = 2
	BandExperimenter MeterBandType = 0xffff
)

// String returns the name as ovs-ofctl writes it.
func (t MeterBandType) String() string {
	if t == BandExperimenter {
		return "experimenter"
	}
	return nameOf([]string{"", "drop", "dscp_remark"}, "band ", t)
}

// MeterBand is ofp_meter_band_header with what follows it (section 7.3.4.4).
type MeterBand struct {
	Type         MeterBandType
	Rate         uint32 // above which the band applies: kbit/s or packets/s
	Burst        uint32 // kbit or packets
	PrecLevel    uint8  // BandDSCPRemark: how many drop precedences to add
	Experimenter uint32 // BandExperimenter
	Data         string // BandExperimenter: the bytes after the id; their number is a multiple of 8
}

const bandLen = 16

func appendBands(b []byte, bands []MeterBand) []byte {
	for _, band := range bands {
		at := len(b)
		var p []byte
		b, p = extend(b, bandLen)
		put16(p, 0, uint16(band.Type))
		put32(p, 4, band.Rate)
		put32(p, 8, band.Burst)
		switch band.Type {
		case BandDSCPRemark:
			p[12] = band.PrecLevel
		case BandExperimenter:
			put32(p, 12, band.Experimenter)
			b = pad8(append(b, band.Data...), at)
		}
		put16(b, at+2, uint16(len(b)-at))
	}
	return b
}

func (d decoder) bands(at, end int) (list []MeterBand, err error) {
	for at < end {
		kind, n, err := d.tlv(at, end, bandLen, BadRequestBadLen)
		if err != nil {
			return nil, err
		}
		band := MeterBand{Type: MeterBandType(kind), Rate: get32(d.b, at+4), Burst: get32(d.b, at+8)}
		switch band.Type {
		case BandDrop:
		case BandDSCPRemark:
			band.PrecLevel = d.b[at+12]
		case BandExperimenter:
			band.Experimenter, band.Data = get32(d.b, at+12), string(d.b[at+bandLen:at+n])
		default:
			return nil, d.fail(at, MeterModFailedBadBand, "%v is not defined in OpenFlow 1.3", band.Type)
		}
		if n != bandLen && band.Type != BandExperimenter {
			return nil, d.fail(at+2, BadRequestBadLen, "length %d of a band, want %d", n, bandLen)
		}
		list = append(list, band)
		at += n
	}
	return list, nil
}

// MeterMod is METER_MOD, which changes the meter table (section 7.3.4.4).
type MeterMod struct {
	Xid
	Command MeterModCommand
	MeterConfig
}

// MeterConfig is ofp_meter_config: a meter as it is configured (section 7.3.5.13).
type MeterConfig struct {
	Flags MeterFlags
	Meter uint32
	Bands []MeterBand
}

// Type returns TypeMeterMod.
func (m *MeterMod) Type() Type { return TypeMeterMod }

// AppendTo appends the encoded message.
func (m *MeterMod) AppendTo(b []byte) []byte {
	at := len(b)
	b, p := start(b, TypeMeterMod, m.Xid, 16)
	put16(p, 8, uint16(m.Command))
	put16(p, 10, uint16(m.Flags))
	put32(p, 12, m.Meter)
	return finish(appendBands(b, m.Bands), at)
}

func (m *MeterMod) decode(d decoder) (err error) {
	if err := d.need(8, 8); err != nil {
		return err
	}
	m.Command, m.Flags, m.Meter = MeterModCommand(get16(d.b, 8)), MeterFlags(get16(d.b, 10)), get32(d.b, 12)
	if m.Command > MeterDelete {
		return d.fail(8, MeterModFailedBadCommand, "%v", m.Command)
	}
	m.Bands, err = d.bands(16, len(d.b))
	return err
}

// String describes the message.
func (m *MeterMod) String() string { return fmt.Sprintf("METER_MOD %v %v", m.Command, &m.MeterConfig) }

// String describes the meter in the manner of ovs-ofctl.
func (c *MeterConfig) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "meter=%s", meterName(c.Meter))
	if c.Flags != 0 {
		fmt.Fprintf(&s, ",%v", c.Flags)
	}
	for _, b := range c.Bands {
		fmt.Fprintf(&s, ",band=type=%v,rate=%d", b.Type, b.Rate)
		if c.Flags&MeterFlagBurst != 0 {
			fmt.Fprintf(&s, ",burst_size=%d", b.Burst)
		}
		if b.Type == BandDSCPRemark {
			fmt.Fprintf(&s, ",prec_level=%d", b.PrecLevel)
		}
	}
	return s.String()
}

func meterName(id uint32) string {
	switch id {
	case MeterSlowpath:
		return "slowpath"
	case MeterController:
		return "controller"
	case MeterAll:
		return "all"
	}
	return fmt.Sprint(id)
}
