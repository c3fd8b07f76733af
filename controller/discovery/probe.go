package discovery

import (
	"math"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// Probes share one budget over all switches. Outside it are the first probe of each port of a
// switch that connects, the answer to the first probe from a port (up to maxDue per tick, once per
// link), and probes that confirm a loss (of up to maxConfirm links at a time).
const (
	// Budget is the number of ports probed per second, in turn.
	Budget = 1000

	// calmBudget is the part of it for ports that are calm, see isCalm.
	calmBudget = 50

	round    = 5 * time.Second        // between two probes of a port, if the budget allows
	openTime = 250 * time.Millisecond // after its first probe a port without a link becomes an edge
	openMost = 5 * time.Second        // the maximum of that, where probes take long
	lost     = 3                      // consecutive probes that a link may lose
	tick     = 10 * time.Millisecond
	// The tick while no port or link waits for anything but its turn, so that the processor rarely
	// wakes.
	calm   = 25 * tick
	maxDue = 100

	// A link that has lost that many is probed quickly before it is given up.
	quickProbes  = 10
	quickTime    = 50 * time.Millisecond
	maxConfirm   = 64
	slowInterval = time.Second // for work that need not be done at each tick
)

// schedule determines when each port is probed. It is part of App, under its mu.
type schedule struct {
	order    []*port // in which probes are sent; may hold ports that no longer exist
	next     int
	due      []*port   // to be probed out of turn
	open     []*port   // probed ports that may become edges, the oldest first
	suspects []suspect // links to confirm, the oldest first
	checking int       // number of links being confirmed
	lag      time.Duration
	most     time.Duration // lower bound of openFor
	calm     int           // ports that were calm at their last turn
	phase    float64       // of the switch added last
	last     time.Time     // time of the last tick
	slow     time.Time
	wake     chan struct{}
}

type suspect struct {
	way *way
	at  time.Time
}

// add appends a port to the order.
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

// soon schedules a port for the next tick.
func (s *schedule) soon(p *port) {
	if !p.soon {
		p.soon = true
		s.due = append(s.due, p)
		s.poke()
	}
}

// suspect schedules the confirmation of a link.
func (s *schedule) suspect(w *way, at time.Time) {
	if !w.suspected {
		w.suspected = true
		s.suspects = append(s.suspects, suspect{w, at})
		s.poke()
	}
}

// doubtTime is how long the ends of a link stay open after one inconclusive probe: longer than the
// next probe waits for its turn.
const doubtTime = 2 * time.Second

// openFor is how long a probe may be in transit: four times the recent delay, within limits.
func (s *schedule) openFor() time.Duration { return min(max(openTime, s.most, 4*s.lag), openMost) }

// run sends probes within the budget, and determines which ports are edges and which links are
// lost.
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

// poke ends a calm tick: something has been scheduled.
func (s *schedule) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// step sends what is due within the tick's share of the budget, classifies open ports, and returns
// the time to the next tick.
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

// takeTurn returns the ports whose turn it is. mu must be held, as in what follows.
func (a *App) takeTurn(now time.Time) (send []*port) {
	s := &a.schedule
	// Ticks that were very late are not made up for. Ports that are not due cost nothing.
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
		if p.gone { // the last one takes its turn
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

// opposite returns the other end of a calm link, which is probed at the same time: otherwise the
// counters of both switches would change twice, for everyone who polls them.
func (p *port) opposite() *port {
	if !p.calm || len(p.out) != 1 {
		return nil
	}
	if q := p.out[0].to; q.calm && !q.gone && q.node.sw != nil {
		return q
	}
	return nil
}

// isCalm reports whether probing the port would reveal nothing that is not learned otherwise: the
// port belongs to a direct link between switches of this process, whose port states tell when it
// ends; or to a host that has no other port, through which no probe can return. Such ports are
// still probed, rarely, for the unforeseen: entries that keep probes from passing, or a host that
// is given another device by hand.
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

// sound reports whether the last probe has arrived, in this direction.
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

// calmRound is the interval between probes of a calm port. It differs per switch, so that ports
// probed together drift apart; a link takes the shorter interval of its ends. The ports of a switch
// are probed together, see opposite.
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

// closeOpen makes edges of ports whose first probe has not arrived anywhere.
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

// expire removes what has been remembered long enough.
func (a *App) expire(now time.Time) {
	for w := range a.stale {
		if !w.until.IsZero() && now.After(w.until) {
			a.lose(w)
		}
	}
	a.clearDormant(func(_ place, d dormant) bool { return now.After(d.until) })
}

// send probes a port by LLDP, and by broadcast in case foreign switches are in between, unless the
// link is known to be direct. It must be called without mu.
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

// probes makes the probes of a port, with the time of sending.
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

// probeIn handles a frame that may be a probe, in which case both ports may be ends of a link.
func (a *App) probeIn(s *controller.Switch, p *controller.Packet) bool {
	from, ok := a.read(p.Data)
	if !ok {
		return p.EtherType == etherTypeLLDP // someone else's; no switch forwards it
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
	if back != nil { // its first one may have been sent before this switch had connected
		a.send(back)
	}
	return true
}

// confirm gives a link a last chance: quick probes, after which both switches must answer a
// request. Answers and packets arrive in order, so a probe that has arrived but is still unread is
// read first.
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
	case answered && !a.trusting && a.trusted == trusted: // nobody received what was sent before
		a.log.Info("link lost", "from", w.from.place(), "to", w.to.place())
		a.lose(w)
	default:
		w.missed = 0
		if w.stale {
			a.schedule.suspect(w, time.Now().Add(round))
		}
	}
}

// tryQuickly sends probes until one arrives, and reports whether none did.
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

// answers reports whether a port's switch answers a request.
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
