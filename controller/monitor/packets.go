package monitor

import (
	"slices"
	"time"

	"trivet.dev/trivet/controller/database"
)

// PacketCount is how many packets of a protocol have come to the controller since it began.
type PacketCount struct {
	Protocol       Protocol
	Packets, Bytes uint64  // bytes as they came: a switch may send the first part of a packet only
	PacketRate     float64 // packets/s, over the last second or Options.Period
	ByteRate       float64 // bytes/s
}

// packets are those of all switches together. They are under App.mu.
type packets struct {
	last     time.Time                 // tick
	gone     [NumProtocols]PacketCount // of switches that have gone
	interval [NumProtocols]PacketCount // since the last tick, of switches that were looked at
	rates    [NumProtocols]PacketCount // only the rates
	rows     []database.PacketsIn      // since the last tick
	moving   []*node                   // that had packets in the tick before: their rates end
}

// look adds what a switch has sent since the last look.
func (p *packets) look(n *node, now time.Time) {
	for i := range NumProtocols {
		seen, c := &n.seen[i], &n.counts.of[i]
		packets, bytes := c.packets.Load(), c.bytes.Load()
		if packets == seen.Packets {
			seen.PacketRate, seen.ByteRate = 0, 0
			continue
		}
		since := PacketCount{Packets: packets - seen.Packets, Bytes: bytes - seen.Bytes}
		seconds := max(now.Sub(p.last), time.Millisecond).Seconds()
		*seen = PacketCount{Packets: packets, Bytes: bytes, PacketRate: float64(since.Packets) / seconds, ByteRate: float64(since.Bytes) / seconds}
		p.interval[i].Packets += since.Packets
		p.interval[i].Bytes += since.Bytes
		p.rows = append(p.rows, database.PacketsIn{Time: now, Interval: now.Sub(p.last), Switch: n.sw.DPID(),
			Family: i.Family(), Protocol: i.String(), Packets: since.Packets, Bytes: since.Bytes})
	}
}

// leave keeps what a switch has sent, which goes.
func (p *packets) leave(n *node, now time.Time) {
	p.look(n, now)
	for i := range NumProtocols {
		p.gone[i].Packets += n.seen[i].Packets
		p.gone[i].Bytes += n.seen[i].Bytes
	}
}

// countPackets does once in a period what a tick is for: rates, and rows of the time series.
func (a *App) countPackets(now time.Time) {
	a.mu.Lock()
	p := &a.packets
	interval := now.Sub(p.last)
	if interval < a.o.Period {
		a.mu.Unlock()
		return
	}
	list := a.fresh.take()
	for _, n := range slices.Concat(list, p.moving) {
		if !n.gone && n.looked != now {
			n.looked = now
			p.look(n, now)
		}
	}
	p.moving = list
	for i, c := range p.interval {
		p.rates[i].PacketRate = float64(c.Packets) / interval.Seconds()
		p.rates[i].ByteRate = float64(c.Bytes) / interval.Seconds()
	}
	rows := p.rows
	p.rows, p.interval, p.last = nil, [NumProtocols]PacketCount{}, now
	a.mu.Unlock()
	if a.o.Store != nil && len(rows) > 0 {
		a.o.Store.AddPackets(rows)
	}
}

// Packets returns what has come from all switches, also from those that have gone, by protocol:
// the element at the index UDP is that of UDP.
func (a *App) Packets() []PacketCount {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]PacketCount, NumProtocols)
	for i := range NumProtocols {
		out[i] = PacketCount{Protocol: i, Packets: a.packets.gone[i].Packets, Bytes: a.packets.gone[i].Bytes,
			PacketRate: a.packets.rates[i].PacketRate, ByteRate: a.packets.rates[i].ByteRate}
		for _, n := range a.nodes {
			out[i].Packets += n.counts.of[i].packets.Load()
			out[i].Bytes += n.counts.of[i].bytes.Load()
		}
	}
	return out
}

// PacketsOf returns what has come from a connected switch since it is connected, by
// protocol; nil: it is not connected.
func (a *App) PacketsOf(dpid uint64) []PacketCount {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[dpid]
	if n == nil {
		return nil
	}
	out := make([]PacketCount, NumProtocols)
	for i := range NumProtocols {
		out[i] = PacketCount{Protocol: i, Packets: n.counts.of[i].packets.Load(), Bytes: n.counts.of[i].bytes.Load(),
			PacketRate: n.seen[i].PacketRate, ByteRate: n.seen[i].ByteRate}
	}
	return out
}
