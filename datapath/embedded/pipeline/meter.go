package pipeline

import (
	"sync"
	"time"

	"trivet.dev/trivet/openflow"
)

const maxBands = 16

// Meter is an entry of the meter table. Each band has a token bucket that fills at its rate; a band
// applies to a packet when its bucket is empty. If several do, the one with the highest rate
// applies (section 5.7.1).
type Meter struct {
	Counter
	config  openflow.MeterConfig
	created time.Duration
	remarks bool // a band that changes packets

	mu    sync.Mutex
	last  time.Duration
	bands []bucket
}

type bucket struct {
	Counter
	tokens float64 // bits or packets; negative: owed
	rate   float64 // tokens per second
	full   float64
}

// MeterMod executes a METER_MOD. The error is a *Refusal.
func (s *Switch) MeterMod(m *openflow.MeterMod, now time.Duration) error {
	return s.net.change(func() error {
		old := s.meters[m.Meter]
		valid := m.Meter > 0 && m.Meter <= openflow.MeterMax
		switch {
		case m.Command == openflow.MeterDelete && m.Meter == openflow.MeterAll:
			s.deleteMeters(func(uint32) bool { return true }, now)
			return nil
		case !valid:
			return refuse(openflow.MeterModFailedInvalidMeter, "no meter can have the number %#x here", m.Meter)
		case m.Command == openflow.MeterDelete:
			s.deleteMeters(func(id uint32) bool { return id == m.Meter }, now)
			return nil
		case m.Command == openflow.MeterAdd && old != nil:
			return refuse(openflow.MeterModFailedMeterExists, "there is already a meter %d", m.Meter)
		case m.Command == openflow.MeterModify && old == nil:
			return refuse(openflow.MeterModFailedUnknownMeter, "there is no meter %d", m.Meter)
		}
		meter, err := newMeter(&m.MeterConfig, now)
		if err != nil {
			return err
		}
		if old != nil {
			meter.created = old.created
			meter.copyFrom(&old.Counter)
		}
		s.meters[m.Meter] = meter
		s.touch(ReadMeters)
		return nil
	})
}

func newMeter(c *openflow.MeterConfig, now time.Duration) (*Meter, error) {
	const all = openflow.MeterFlagKbps | openflow.MeterFlagPktps | openflow.MeterFlagBurst | openflow.MeterFlagStats
	both := openflow.MeterFlagKbps | openflow.MeterFlagPktps
	if c.Flags&^all != 0 || c.Flags&both == both {
		return nil, refuse(openflow.MeterModFailedBadFlags, "flags %v", c.Flags)
	}
	if len(c.Bands) > maxBands {
		return nil, refuse(openflow.MeterModFailedOutOfBands, "%d bands; at most %d", len(c.Bands), maxBands)
	}
	m := &Meter{config: *c, created: now, last: now, bands: make([]bucket, len(c.Bands))}
	m.config.Bands = append([]openflow.MeterBand(nil), c.Bands...)
	for i, b := range m.config.Bands {
		unit := 1000.0 // bits
		if c.Flags&openflow.MeterFlagPktps != 0 {
			unit = 1
		}
		switch {
		case b.Type != openflow.BandDrop && b.Type != openflow.BandDSCPRemark:
			return nil, refuse(openflow.MeterModFailedBadBand, "a band of type %v", b.Type)
		case b.Rate == 0:
			return nil, refuse(openflow.MeterModFailedBadRate, "a band with the rate 0")
		case c.Flags&openflow.MeterFlagBurst != 0 && b.Burst == 0:
			return nil, refuse(openflow.MeterModFailedBadBurst, "a band with the burst 0")
		}
		m.remarks = m.remarks || b.Type == openflow.BandDSCPRemark
		full := float64(b.Rate) * unit // a second's worth, as in Open vSwitch
		if c.Flags&openflow.MeterFlagBurst != 0 {
			full = float64(b.Burst) * unit
		}
		full = max(full, 1)
		m.bands[i].rate, m.bands[i].full, m.bands[i].tokens = float64(b.Rate)*unit, full, full
	}
	return m, nil
}

// deleteMeters removes meters and the entries that use them (section 5.7).
func (s *Switch) deleteMeters(is func(uint32) bool, now time.Duration) {
	s.removeWith(func(p *program) bool { return p.meter != 0 && is(p.meter) }, openflow.RemovedDelete, now)
	for id := range s.meters {
		if is(id) {
			delete(s.meters, id)
		}
	}
	s.touch(ReadMeters)
}

// pass measures packets with that many bytes in total, and returns whether to drop them or by how
// much to raise their drop precedence.
func (m *Meter) pass(packets, bytes uint64, now time.Duration) (drop bool, remark uint8) {
	m.Add(packets, bytes, now)
	cost := float64(bytes) * 8
	if m.config.Flags&openflow.MeterFlagPktps != 0 {
		cost = float64(packets)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := max(now-m.last, 0).Seconds()
	m.last = max(now, m.last)
	hit := -1
	for i := range m.bands {
		b := &m.bands[i]
		b.tokens = min(b.tokens+gone*b.rate, b.full)
		if b.tokens > 0 {
			b.tokens -= cost
		} else if hit < 0 || b.rate > m.bands[hit].rate {
			hit = i
		}
	}
	if hit < 0 {
		return false, 0
	}
	m.bands[hit].Add(packets, bytes, now)
	if m.config.Bands[hit].Type == openflow.BandDrop {
		return true, 0
	}
	return false, m.config.Bands[hit].PrecLevel
}

// remarked returns a DSCP with its drop precedence raised, if it has one: those of assured
// forwarding do (RFC 2597, section 6).
func remarked(dscp uint64, levels uint8) uint64 {
	class, precedence := dscp>>3, dscp>>1&3
	if class < 1 || class > 4 || precedence == 0 || dscp&1 != 0 {
		return dscp
	}
	return class<<3 | min(precedence+uint64(levels), 3)<<1
}
