package monitor

import (
	"slices"
	"time"

	"trivet.dev/trivet/controller/database"
)

// PacketCount counts the packets of a protocol sent to the controller since it started.
type PacketCount struct {
	Protocol       Protocol
	Packets, Bytes uint64  // bytes as received: a switch may send only the beginning of a packet
	PacketRate     float64 // packets/s, over the last second or Options.Period
	ByteRate       float64 // bytes/s
}

// packets counts those of all switches together. Guarded by App.mu.
type packets struct {
	last     time.Time                 // last tick
	gone     [NumProtocols]PacketCount // of switches that have disconnected
	interval [NumProtocols]PacketCount // since the last tick, of switches counted so far
	rates    [NumProtocols]PacketCount // only the rates are set
	rows     []database.PacketsIn      // since the last tick
	moving   []*node                   // with packets in the previous tick: their rates drop to 0
}

// look adds what a switch has sent since the last call.
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
		*seen = PacketCount{Packets: packets, Bytes: bytes, PacketRate: float64(since.Packets) / seconds,
			ByteRate: float64(since.Bytes) / seconds}
		p.interval[i].Packets += since.Packets
		p.interval[i].Bytes += since.Bytes
		p.rows = append(p.rows, database.PacketsIn{Time: now, Interval: now.Sub(p.last), Switch: n.sw.DPID(),
			Family: i.Family(), Protocol: i.String(), Packets: since.Packets, Bytes: since.Bytes})
	}
}

// leave adds what a disconnecting switch has sent.
func (p *packets) leave(n *node, now time.Time) {
	p.look(n, now)
	for i := range NumProtocols {
		p.gone[i].Packets += n.seen[i].Packets
		p.gone[i].Bytes += n.seen[i].Bytes
	}
}

// countPackets computes rates and rows of the time series at each tick.
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

// Packets returns the packets from all switches, including disconnected ones, indexed by protocol.
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

// PacketsOf returns the packets from a switch since it connected, indexed by protocol; nil: it is
// not connected.
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
