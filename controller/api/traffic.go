package api

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/monitor"
)

// counter is nil if the switch does not keep that counter.
func counter(n uint64) *uint64 {
	if n == monitor.NoCounter {
		return nil
	}
	return &n
}

// number is nil if f is not a finite number.
func number(f float64) *float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &f
}

// rate is nil if it is not known yet.
func rate(p *monitor.Port, value float64) *float64 {
	if p.Interval <= 0 {
		return nil
	}
	return &value
}

func (v *view) traffic(at place) Traffic {
	p, read := v.ports[at]
	if !read {
		return Traffic{Capacity: v.m.Port(at.dpid, at.port).Capacity}
	}
	if v.unlimited(at) {
		p.Capacity = 0
	}
	return Traffic{Time: &p.Time, RxRate: rate(&p, p.RxRate), TxRate: rate(&p, p.TxRate),
		RxPacketRate: rate(&p, p.RxPacketRate), TxPacketRate: rate(&p, p.TxPacketRate),
		RxPackets: counter(p.RxPackets), TxPackets: counter(p.TxPackets), RxBytes: counter(p.RxBytes),
		TxBytes: counter(p.TxBytes), RxDropped: counter(p.RxDropped), TxDropped: counter(p.TxDropped),
		RxErrors: counter(p.RxErrors), TxErrors: counter(p.TxErrors), Capacity: p.Capacity,
		Utilisation: number(p.Utilisation())}
}

// unlimited reports whether a port's link is one of the topology's without a bandwidth: the speed
// that its device claims is then no limit.
func (v *view) unlimited(at place) bool {
	p := v.m.Port(at.dpid, at.port)
	return p.Peer != "" && p.Capacity == 0
}

// links returns the links between switches that discovery knows, and those to hosts and other nodes
// that the map or discovery knows, each once.
func (v *view) links() []Link {
	out := []Link{}
	inner := map[place]bool{}
	done := map[[2]place]bool{}
	for _, l := range v.c.Discovery.Links() {
		a, b := place{l.From, l.FromPort}, place{l.To, l.ToPort}
		inner[a], inner[b] = true, true
		if a.compare(b) > 0 {
			a, b = b, a
		}
		if done[[2]place{a, b}] {
			continue
		}
		done[[2]place{a, b}] = true
		x := v.link(a, v.end(b), v.rates(b))
		x.Inner, x.Indirect, x.Remembered = true, l.Indirect, l.Remembered
		out = append(out, x)
	}
	hosts := v.at()
	for _, at := range sorted(v.desc) {
		if inner[at] {
			continue
		}
		if end, ok := v.edge(at, hosts[at]); ok {
			out = append(out, v.link(at, end, [2]*float64{}))
		}
	}
	slices.SortFunc(out, func(a, b Link) int {
		return cmp.Or(builtin.CompareNames(a.Ends[0].Interface, b.Ends[0].Interface),
			builtin.CompareNames(a.Ends[1].Interface, b.Ends[1].Interface))
	})
	return out
}

// edge returns what is attached to a port that leads to no switch, if known.
func (v *view) edge(at place, hosts []discovery.Host) (End, bool) {
	known := v.m.Port(at.dpid, at.port)
	switch {
	case known.Peer != "" && known.PeerNumber == 0:
		return End{Node: known.Peer, Interface: known.PeerInterface}, true
	case known.Peer != "": // a switch whose link is down or not discovered yet
		return End{}, false
	case len(hosts) == 1:
		return End{Node: v.host(hosts[0].MAC)}, true
	case len(hosts) > 1:
		return End{Node: fmt.Sprintf("%d hosts", len(hosts))}, true
	}
	return End{}, false
}

func (v *view) end(at place) End {
	return End{Node: v.switchName(at.dpid), Interface: v.portName(at.dpid, at.port), Port: at.port}
}

// rates returns what a port sends and receives.
func (v *view) rates(at place) (out [2]*float64) {
	if p, read := v.ports[at]; read {
		out = [2]*float64{rate(&p, p.TxRate), rate(&p, p.RxRate)}
	}
	return out
}

// link returns the link from a port to an end; theirs are the rates of that end, if it is a port.
func (v *view) link(at place, to End, theirs [2]*float64) Link {
	l := Link{Ends: [2]End{v.end(at), to}}
	own := v.rates(at)
	known, speed := v.m.Port(at.dpid, at.port), 0.0
	if p, read := v.ports[at]; read && known.Capacity == 0 && !v.unlimited(at) {
		speed = p.Capacity
	}
	l.Capacity = [2]float64{cmp.Or(known.Capacity, speed), cmp.Or(known.CapacityIn, speed)}
	l.SetRates([2]*float64{cmp.Or(own[0], theirs[1]), cmp.Or(own[1], theirs[0])})
	return l
}

// SetRates sets a link's rates, and its utilisation if the capacity is set.
func (l *Link) SetRates(rates [2]*float64) {
	l.Rates = rates
	used := math.NaN()
	for i, r := range rates {
		if share := 0.0; r != nil && l.Capacity[i] > 0 {
			if share = *r / l.Capacity[i]; !(used >= share) {
				used = share
			}
		}
	}
	l.Utilisation = number(used)
}

func (v *view) statistics() Statistics {
	s := Statistics{Time: time.Now(), Period: v.c.Monitor.Period().Seconds(), Links: v.links(), Moved: v.moved(),
		Ports:     []PortStatistics{},
		PacketsIn: []PacketsIn{}, Load: load()}
	slices.SortStableFunc(s.Links, func(a, b Link) int { return b.CompareLoad(a) })
	for _, at := range sorted(v.ports) {
		s.Ports = append(s.Ports, PortStatistics{Switch: v.switchName(at.dpid), Port: at.port,
			Name: v.portName(at.dpid, at.port), Traffic: v.traffic(at)})
	}
	for _, p := range v.c.Monitor.Packets() {
		if p.Packets > 0 {
			s.PacketsIn = append(s.PacketsIn, PacketsIn{Protocol: p.Protocol.String(), Family: p.Protocol.Family(),
				Packets: p.Packets, Bytes: p.Bytes, PacketRate: p.PacketRate, ByteRate: p.ByteRate})
		}
	}
	r := v.c.Monitor.Requests()
	s.Requests = Requests{Answered: r.Answered, Refused: r.Refused, Unanswered: r.Unanswered, Skipped: r.Skipped}
	if v.c.Database != nil {
		d := v.c.Database.Stats()
		s.Database = &DatabaseRows{Written: d.Written, Dropped: d.Dropped, Failed: d.Failed, Queued: d.Queued}
	}
	return s
}

// CompareLoad orders links by utilisation, then by traffic.
func (l Link) CompareLoad(other Link) int {
	return cmp.Or(cmp.Compare(value(l.Utilisation), value(other.Utilisation)), cmp.Compare(l.Busier(), other.Busier()))
}

// Busier returns the higher rate of the two directions, in bit/s.
func (l Link) Busier() float64 { return max(value(l.Rates[0]), value(l.Rates[1])) }

func value(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}
