package discovery

import (
	"math"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// Probes have one budget for all switches together. Beside it go the first probe of each
// port of a switch that connects, the answer to the first probe that comes from a port
// (maxDue of these a tick, and each once for a link), and those that confirm a loss
// (maxConfirm links at a time).
const (
	// Budget is how many ports are probed in a second, in turn.
	Budget = 1000

	// calmBudget is how many of these may be ports whose probes say nothing new, as isCalm has it.
	calmBudget = 50

	round    = 5 * time.Second        // between two probes of a port, where the budget allows
	openTime = 250 * time.Millisecond // after its first probe a port without a link is an edge
	openMost = 5 * time.Second        // the same, where probes take long
	lost     = 3                      // probes in a row that a link may lose
	tick     = 10 * time.Millisecond
	calm     = 25 * tick // a tick where no port or link waits but for its turn, so that the processor wakes seldom
	maxDue   = 100

	// A link that has lost that many is probed quickly, before it is given up.
	quickProbes  = 10
	quickTime    = 50 * time.Millisecond
	maxConfirm   = 64
	slowInterval = time.Second // of what need not be done at each tick
)

// schedule says which port is probed when. It is part of App, under its mu.
type schedule struct {
	order    []*port // in which probes are sent; may hold some that are gone
	next     int
	due      []*port   // to be probed before their turn
	open     []*port   // ports that have been probed and may turn out to be edges, the oldest first
	suspects []suspect // links to confirm, the oldest first
	checking int       // links that are being confirmed
	lag      time.Duration
	most     time.Duration // that a probe may at least be under way
	calm     int           // ports that were calm when they were looked at
	phase    float64       // of the last switch that got one
	last     time.Time     // tick
	slow     time.Time
	wake     chan struct{}
}

type suspect struct {
	way *way
	at  time.Time
}

// add gives a port its turn.
func (s *schedule) add(p *port) {
	if p.scheduled {
		return
	}
	p.scheduled = true
	if p.node.phase == 0 {
		_, s.phase = math.Modf(s.phase + math.Phi - 1) // multiples of the golden ratio are spread evenly
		p.node.phase = s.phase
	}
	s.order = append(s.order, p)
}

// soon has a port probed at the next tick.
func (s *schedule) soon(p *port) {
	if !p.soon {
		p.soon = true
		s.due = append(s.due, p)
		s.poke()
	}
}

// suspect has a link confirmed, at a time.
func (s *schedule) suspect(w *way, at time.Time) {
	if !w.suspected {
		w.suspected = true
		s.suspects = append(s.suspects, suspect{w, at})
		s.poke()
	}
}

// doubtTime is how long the ends of a link that has been heard of once, and not surely, stay open:
// longer than the next probe waits for its turn.
const doubtTime = 2 * time.Second

// openFor is how long a probe may be under way: the time it took lately counts four times.
func (s *schedule) openFor() time.Duration { return min(max(openTime, s.most, 4*s.lag), openMost) }

// run sends probes within the budget, and sees which ports are edges and which links are lost.
func (a *App) run() {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-a.schedule.wake:
			if !a.pause(tick) {
				return
			}
		case <-a.ctx.Done():
			return
		}
		timer.Reset(a.step(time.Now()))
	}
}

// poke ends a calm tick: something waits for the next one.
func (s *schedule) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// step sends what is due, at most the budget's share of a tick, closes open ports, and returns when
// the next tick is.
func (a *App) step(now time.Time) (next time.Duration) {
	a.now.Store(now.UnixNano())
	var send []*port
	var confirm []*way
	var slow bool
	a.locked(func() {
		a.closeOpen(now)
		send = a.takeDue(a.takeTurn(now))
		confirm = a.takeSuspects(now)
		if slow = now.Sub(a.schedule.slow) >= slowInterval; slow {
			a.schedule.slow = now
			a.schedule.lag -= a.schedule.lag / 4
			a.expire(now)
			a.expireShared(now)
		}
	})
	for _, p := range send {
		a.send(p)
	}
	for _, w := range confirm {
		a.done.Go(func() { a.confirm(w) })
	}
	if slow {
		a.hosts.expire(now)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.schedule.due)+len(a.schedule.open)+len(a.schedule.suspects) > 0 {
		return tick
	}
	return calm
}

// takeTurn returns the ports whose turn it is. It must be called with mu held, like what follows.
func (a *App) takeTurn(now time.Time) (send []*port) {
	s := &a.schedule
	// Ticks that were very late are not made up for. Ports whose time has not come cost nothing.
	n := int(Budget * min(now.Sub(s.last), 2*calm) / time.Second)
	s.last = now
	for range min(len(s.order), 10*n) {
		if len(send) >= n {
			break
		}
		if s.next >= len(s.order) {
			s.next = 0
		}
		p := s.order[s.next]
		if p.gone { // the last takes its turn
			s.setCalm(p, false)
			last := len(s.order) - 1
			s.order[s.next], s.order[last] = s.order[last], nil
			s.order = s.order[:last]
			continue
		}
		s.next++
		if p.node.sw == nil || now.Sub(p.sent) < round || now.Sub(p.looked) < round {
			continue
		}
		p.looked = now
		if s.setCalm(p, a.isCalm(p)); p.calm {
			if now.Sub(p.sent) < s.calmRound(p) {
				n-- // this was its turn
				continue
			}
		}
		for _, w := range p.out {
			if w.missed >= lost && w.connected() {
				s.suspect(w, now)
			}
		}
		send = append(send, p)
		if q := p.opposite(); q != nil {
			q.looked = now
			send = append(send, q)
		}
	}
	return send
}

// opposite is the other end of a calm link, which is probed at the same time: else the counters of
// both switches change twice, for all who look whether they have.
func (p *port) opposite() *port {
	if !p.calm || len(p.out) != 1 {
		return nil
	}
	if q := p.out[0].to; q.calm && !q.gone && q.node.sw != nil {
		return q
	}
	return nil
}

// isCalm says whether a probe of the port would tell nothing that is not told otherwise: a direct
// link both ends of which the switches, of this process, say to be joined to each other, so that
// its end is told by the ports' states; or a host that has no other port, through which no probe
// can come back. Such ports are probed for what nobody foresees: entries that keep probes from
// passing, a host that gets another device by hand.
func (a *App) isCalm(p *port) bool {
	if a.wiring.lone[p.place()] {
		return p.Kind() == Edge
	}
	if len(p.out) != 1 || len(p.in) != 1 {
		return false
	}
	w, back := p.out[0], p.in[0]
	if back.from != w.to || !w.sound() || !back.sound() || !w.connected() {
		return false
	}
	dpid, far, ok := p.node.sw.Joined(p.number)
	return ok && place{dpid, far} == w.to.place()
}

// sound says whether the last probe has arrived, from port to port.
func (w *way) sound() bool { return !w.stale && !w.indirect && w.missed == 0 }

func (s *schedule) setCalm(p *port, calm bool) {
	switch {
	case calm && !p.calm:
		s.calm++
	case !calm && p.calm:
		s.calm--
	}
	p.calm = calm
}

// calmRound is the time between two probes of a calm port: that of each switch is another one, so
// that those which were probed together are not for long; of a link it is that of the quicker end.
// The ports of a switch are probed at once, as opposite has it.
func (s *schedule) calmRound(p *port) time.Duration {
	return max(round, time.Duration(float64(s.calm)*(0.8+p.node.phase/2)*float64(time.Second)/calmBudget))
}

func (a *App) takeDue(send []*port) []*port {
	s := &a.schedule
	n := min(len(s.due), maxDue)
	for _, p := range s.due[:n] {
		if p.soon = false; !p.gone && p.node.sw != nil {
			send = append(send, p)
		}
	}
	s.due = append(s.due[:0], s.due[n:]...)
	return send
}

func (a *App) takeSuspects(now time.Time) (confirm []*way) {
	s := &a.schedule
	for len(s.suspects) > 0 && s.checking < maxConfirm && !now.Before(s.suspects[0].at) {
		w := s.suspects[0].way
		s.suspects = s.suspects[1:]
		if w.gone || !w.connected() || !w.stale && w.missed < lost {
			w.suspected = false
			continue
		}
		s.checking++
		confirm = append(confirm, w)
	}
	return confirm
}

// closeOpen makes edges of ports whose first probe nobody has seen.
func (a *App) closeOpen(now time.Time) {
	s := &a.schedule
	for range len(s.open) {
		p := s.open[0]
		here := !p.gone && p.node.sw != nil && p.Kind() == Open
		if here && now.Sub(p.first) < s.openFor() {
			return
		}
		s.open = s.open[1:]
		switch {
		case here && now.Before(p.spared):
			s.open = append(s.open, p)
		case here && !p.first.IsZero():
			a.setKind(p, Edge)
		}
	}
}

// expire ends what is remembered for long enough.
func (a *App) expire(now time.Time) {
	for w := range a.stale {
		if !w.until.IsZero() && now.After(w.until) {
			a.lose(w)
		}
	}
	a.clearDormant(func(_ place, d dormant) bool { return now.After(d.until) })
}

// send probes a port: by LLDP, and by broadcast, for there may be foreign switches between,
// which is known not to be so where LLDP arrives. It must be called without mu.
func (a *App) send(p *port) {
	a.mu.Lock()
	sw := p.node.sw
	if p.gone || sw == nil {
		a.mu.Unlock()
		return
	}
	now := time.Now()
	if p.Kind() == Open && p.first.IsZero() {
		p.first = now
		a.schedule.open = append(a.schedule.open, p)
		a.schedule.poke()
	}
	p.sent = now
	direct := len(p.out) > 0
	for _, w := range p.out {
		if direct = direct && !w.indirect && w.missed == 0; w.to.node.sw != nil {
			w.missed++
			w.missedDirect++
		}
	}
	mac := p.mac
	a.mu.Unlock()
	_ = sw.Send(a.probes(p.place(), mac, direct))
}

// probes are the PACKET_OUTs of a port: LLDP, and BDDP unless it is direct.
type probes struct {
	*openflow.PacketOut
	second *openflow.PacketOut
}

// AppendTo appends both.
func (p *probes) AppendTo(b []byte) []byte {
	if b = p.PacketOut.AppendTo(b); p.second != nil {
		b = p.second.AppendTo(b)
	}
	return b
}

// probes makes the probes of a port, which say when they were sent.
func (a *App) probes(at place, mac openflow.MAC, direct bool) openflow.Message {
	now := a.stamp()
	out := func(dst openflow.MAC, etherType uint16) *openflow.PacketOut {
		return &openflow.PacketOut{Buffer: openflow.BufferNone, InPort: openflow.PortController,
			Actions: []openflow.Action{openflow.Output(at.port)}, Data: a.probe(at, now, mac, dst, etherType)}
	}
	p := &probes{PacketOut: out(lldpDst, etherTypeLLDP)}
	if direct {
		return p.PacketOut
	}
	p.second = out(bddpDst, etherTypeBDDP)
	return p
}

// probeIn takes a frame that may be a probe, which makes ends of a link of both ports.
func (a *App) probeIn(s *controller.Switch, p *controller.Packet) bool {
	from, ok := a.read(p.Data)
	if !ok {
		return p.EtherType == etherTypeLLDP // somebody else's; no switch forwards it
	}
	var back *port
	a.locked(func() {
		src, dst := a.source(from), a.port(place{s.DPID(), p.InPort})
		if src == nil || dst == nil || dst.node.sw != s {
			return
		}
		if src != dst && !src.sent.IsZero() {
			a.schedule.lag = max(a.schedule.lag, min(time.Since(src.sent), openMost))
		}
		if a.join(src, dst, p.EtherType == etherTypeLLDP) {
			back = dst
		}
	})
	if back != nil { // it may have sent its first one when this switch was not there yet
		a.send(back)
	}
	return true
}

// confirm gives a link a last chance: quick probes, and then both switches must have
// answered a question that was asked after them. Answers and packets come in one row,
// so a probe that has arrived but still waits to be read is read before.
func (a *App) confirm(w *way) {
	a.mu.Lock()
	trusted := a.trusted
	a.mu.Unlock()
	answered := a.tryQuickly(w) && a.answers(w.from) && a.pause(openTime) && a.answers(w.to)
	a.mu.Lock()
	defer a.release()
	a.schedule.checking--
	w.suspected = false
	switch {
	case w.gone || !w.connected() || w.missed == 0:
	case answered && !a.trusting && a.trusted == trusted: // what was sent before came to nobody
		a.log.Info("link lost", "from", w.from.place(), "to", w.to.place())
		a.lose(w)
	default:
		w.missed = 0
		if w.stale {
			a.schedule.suspect(w, time.Now().Add(round))
		}
	}
}

// tryQuickly sends probes until one arrives, and says whether none did.
func (a *App) tryQuickly(w *way) bool {
	for range quickProbes {
		a.send(w.from)
		if !a.pause(quickTime) {
			return false
		}
		a.mu.Lock()
		proved := w.gone || w.missed == 0
		a.mu.Unlock()
		if proved {
			return false
		}
	}
	return true
}

func (a *App) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-a.ctx.Done():
		return false
	}
}

// answers says whether a port's switch does.
func (a *App) answers(p *port) bool {
	a.mu.Lock()
	sw := p.node.sw
	a.mu.Unlock()
	if sw == nil {
		return false
	}
	ctx, cancel := patience.Barrier.Context(a.ctx)
	defer cancel()
	return sw.Barrier(ctx) == nil
}
