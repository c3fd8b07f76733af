package monitor

import (
	"math"
	"time"

	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/openflow"
)

// NoCounter is a counter that the switch does not keep (OpenFlow 1.3.5, section 7.3.5).
const NoCounter = math.MaxUint64

// Port is a port with the switch's counters for it, and its rates.
type Port struct {
	Switch uint64
	Number uint32
	Name   string
	HWAddr openflow.MAC
	Up     bool // enabled, and its link is up

	Time                 time.Time // of the counters
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64

	Interval                   time.Duration // over which the rates are, ending at Time; 0: there are no rates yet
	RxRate, TxRate             float64       // bit/s
	RxPacketRate, TxPacketRate float64       // packets/s
	Capacity                   float64       // bit/s, in each direction; 0: unknown
}

// RxUtilisation is the received rate as a share of the capacity; NaN: one of them is unknown. It
// can be slightly above 1, as the time of a reading is not exact.
func (p *Port) RxUtilisation() float64 { return p.share(p.RxRate) }

// TxUtilisation is the same for what is sent.
func (p *Port) TxUtilisation() float64 { return p.share(p.TxRate) }

// Utilisation is that of the busier direction.
func (p *Port) Utilisation() float64 { return p.share(max(p.RxRate, p.TxRate)) }

func (p *Port) share(rate float64) float64 {
	if p.Capacity <= 0 || p.Interval <= 0 {
		return math.NaN()
	}
	return rate / p.Capacity
}

// port is a Port with the state for its next reading.
type port struct {
	Port
	speed    float64       // bit/s, reported by the switch
	duration time.Duration // the switch's clock at the last reading
	idle     bool          // without traffic at the last reading
	stored   time.Time     // last row in the store
}

func (p *port) describe(d openflow.Port) {
	p.Name, p.HWAddr = d.Name, d.HWAddr
	p.Up = d.Works()
	p.speed = speedOf(d)
}

// speedOf returns the port's speed as the switch reports it, in bit/s; 0: not reported.
func speedOf(d openflow.Port) float64 { return float64(d.CurrentSpeed) * 1000 }

// update computes rates from two readings. If a counter or the port's duration has decreased, it
// was reset: there are no rates until the next reading.
func (p *port) update(s *openflow.PortStats, at time.Time) {
	interval := at.Sub(p.Time)
	own := s.Duration.Time() - p.duration
	before := p.Port
	known := !p.Time.IsZero() && interval > 0 && own >= 0
	if own > interval/2 && own < 2*interval { // the switch's clock is not affected by message delays
		interval = own
	}
	p.Time, p.duration = at, s.Duration.Time()
	p.Interval, p.RxRate, p.TxRate, p.RxPacketRate, p.TxPacketRate = 0, 0, 0, 0, 0
	rate := func(counter *uint64, now uint64, to *float64, unit float64) {
		was := *counter
		*counter = now
		switch {
		case now == NoCounter || was == NoCounter:
		case now < was:
			known = false
		default:
			*to = float64(now-was) * unit / interval.Seconds()
		}
	}
	var rates struct{ rx, tx, rxPackets, txPackets float64 }
	rate(&p.RxBytes, s.RxBytes, &rates.rx, 8)
	rate(&p.TxBytes, s.TxBytes, &rates.tx, 8)
	rate(&p.RxPackets, s.RxPackets, &rates.rxPackets, 1)
	rate(&p.TxPackets, s.TxPackets, &rates.txPackets, 1)
	p.RxDropped, p.TxDropped, p.RxErrors, p.TxErrors = s.RxDropped, s.TxDropped, s.RxErrors, s.TxErrors
	if known {
		p.Interval, p.RxRate, p.TxRate, p.RxPacketRate, p.TxPacketRate = interval, rates.rx, rates.tx, rates.rxPackets,
			rates.txPackets
	}
	p.idle = known && before.RxPackets == p.RxPackets && before.TxPackets == p.TxPackets
}

// keep records a reading with the same counters as the previous one.
func (p *port) keep(at time.Time) {
	p.Interval = at.Sub(p.Time)
	p.Time, p.duration = at, p.duration+p.Interval
	p.RxRate, p.TxRate, p.RxPacketRate, p.TxPacketRate = 0, 0, 0, 0
	p.idle = true
}

// storedAtLeast is the interval at which a port without traffic gets a row in the time series.
const (
	storedAtLeast = time.Minute
	idleMost      = 15 // times that, with many switches
)

// row reports whether the reading belongs in the time series. Without traffic it does only for the
// first time, and now and then.
func (p *port) row(wasIdle bool, least time.Duration) (row database.Load, wanted bool) {
	if p.idle && wasIdle && p.Time.Sub(p.stored) < least {
		return row, false
	}
	p.stored = p.Time
	return database.Load{Time: p.Time, Interval: p.Interval, Switch: p.Switch, Port: p.Number,
		RxPackets: p.RxPackets, TxPackets: p.TxPackets, RxBytes: p.RxBytes, TxBytes: p.TxBytes,
		RxDropped: p.RxDropped, TxDropped: p.TxDropped, RxErrors: p.RxErrors, TxErrors: p.TxErrors,
		RxRate: p.RxRate, TxRate: p.TxRate, Utilisation: p.Utilisation()}, true
}

// takePorts records a reading of a switch's ports. Ports that the switch has not described are
// ignored.
func (a *App) takePorts(n *node, list openflow.PortStatsList, at time.Time) {
	described := n.sw.Ports()
	capacity := make(map[uint32]float64, len(described))
	for _, d := range described {
		capacity[d.Number] = a.o.Capacity(n.sw.DPID(), d.Number)
	}
	sample := Sample{Switch: n.sw.DPID(), Time: at, Ports: make([]Port, 0, len(described))}
	var rows []database.Load
	a.mu.Lock()
	least := a.idleRow()
	for _, d := range described {
		p := n.ports[d.Number]
		if p == nil {
			p = &port{Port: Port{Switch: n.sw.DPID(), Number: d.Number}}
			n.ports[d.Number] = p
		}
		p.describe(d)
		if p.Capacity = capacity[d.Number]; p.Capacity <= 0 {
			p.Capacity = p.speed
		}
	}
	for i := range list {
		p := n.ports[list[i].Port]
		if _, there := capacity[list[i].Port]; !there || p == nil || p.Time.Equal(at) {
			continue
		}
		wasIdle := p.idle
		p.update(&list[i], at)
		sample.Ports = append(sample.Ports, p.Port)
		if row, wanted := p.row(wasIdle, least); wanted {
			rows = append(rows, row)
		}
	}
	for number := range n.ports {
		if _, there := capacity[number]; !there {
			delete(n.ports, number)
		}
	}
	gone := n.gone
	a.mu.Unlock()
	if gone {
		return
	}
	a.took(sample, rows)
}

// took passes a reading on to watchers and the store.
func (a *App) took(sample Sample, rows []database.Load) {
	if a.o.Store != nil && len(rows) > 0 {
		a.o.Store.AddLoads(rows)
	}
	a.tell(sample)
}

// keepPorts records a reading of a switch's ports that is the same as the previous one.
func (a *App) keepPorts(n *node, at time.Time) {
	watched := a.watched()
	sample := Sample{Switch: n.sw.DPID(), Time: at}
	var rows []database.Load
	a.mu.Lock()
	least := a.idleRow()
	for _, p := range n.ports {
		if p.Time.IsZero() {
			continue
		}
		wasIdle := p.idle
		p.keep(at)
		if p.Capacity = a.o.Capacity(p.Switch, p.Number); p.Capacity <= 0 {
			p.Capacity = p.speed
		}
		if row, wanted := p.row(wasIdle, least); wanted {
			rows = append(rows, row)
		}
		if watched {
			sample.Ports = append(sample.Ports, p.Port)
		}
	}
	gone := n.gone
	a.mu.Unlock()
	if !gone {
		a.took(sample, rows)
	}
}

// idleRow is the interval of rows for a port without traffic: it grows with the period of readings.
// mu must be held.
func (a *App) idleRow() time.Duration {
	return time.Duration(float64(storedAtLeast) * min(a.poller.stretch(a.o), idleMost))
}
