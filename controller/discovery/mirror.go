package discovery

import (
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

func (a *App) sharedLink(x pair, l sharedLink) {
	s := a.shared
	s.mu.Lock()
	s.links[x] = &l
	delete(s.void, x)
	for _, at := range []place{x.from, x.to} {
		if s.linksAt[at] == nil {
			s.linksAt[at] = map[pair]bool{}
		}
		s.linksAt[at][x] = true
	}
	s.mu.Unlock()
	if p := a.port(x.to); p != nil && p.node.sw != nil {
		s.link(x.from, x.to) // this member is responsible for it
	}
	a.mirror(x)
	if p := a.port(x.from); p != nil && p.node.sw != nil && len(p.out) == 0 {
		a.shut(p, time.Now()) // it is no edge: its probes arrive at a switch
	}
}

func (a *App) sharedLinkGone(x pair) {
	s := a.shared
	s.mu.Lock()
	old := s.links[x] != nil && s.links[x].void > 0
	delete(s.links, x)
	delete(s.void, x)
	for _, at := range []place{x.from, x.to} {
		if delete(s.linksAt[at], x); len(s.linksAt[at]) == 0 {
			delete(s.linksAt, at)
		}
	}
	s.mu.Unlock()
	from, to := a.port(x.from), a.port(x.to)
	if from == nil || to == nil {
		return
	}
	w := from.wayTo(to)
	switch {
	case w == nil:
	case old: // from before the port went down; it is now expected anew
	case to.node.sw == nil || w.condemned:
		a.log.Info("link lost", "from", x.from, "to", x.to)
		a.lose(w)
	default:
		s.link(x.from, x.to) // this member is responsible for it
	}
}

// mirror adds a link if the store has both its directions. A direction that ends at a switch of
// this member must have been seen by this member.
func (a *App) mirror(x pair) {
	l, there := a.shared.has(x.from, x.to)
	back, both := a.shared.has(x.to, x.from)
	if !there || a.wiring.lacks(x.from.dpid) || a.wiring.lacks(x.to.dpid) {
		return
	}
	from, to := a.mirrored(x.from), a.mirrored(x.to)
	if from == nil || to == nil {
		return
	}
	if w := from.wayTo(to); w != nil {
		if to.node.sw == nil && (w.indirect != l.Indirect || w.stale && from.node.here() && to.node.here()) {
			w.indirect, w.stale = l.Indirect, false
			delete(a.stale, w)
			a.linkChanges = append(a.linkChanges, LinkChange{Link: w.link()})
		}
		return
	}
	seen := func(from, to *port) bool {
		_, half := to.halves[from]
		return to.node.sw == nil || half || from.wayTo(to) != nil
	}
	if !(both || to.wayTo(from) != nil) || !seen(from, to) || !seen(to,
		from) || len(from.out) >= maxFar || len(to.in) >= maxFar {
		a.drop(from.node)
		a.drop(to.node)
		return
	}
	delete(to.halves, from)
	delete(from.halves, to)
	a.newWay(from, to, l.Indirect)
	if to.wayTo(from) == nil {
		a.newWay(to, from, back.Indirect)
	}
}

// mirrored returns a port of a link in the store. For a connected switch it must exist; for others
// it is created.
func (a *App) mirrored(at place) *port {
	if n := a.nodes[at.dpid]; n != nil && n.here() {
		return n.ports[at.port]
	}
	return a.remembered(at.dpid, at.port)
}

// source returns the port that a probe says it comes from. If the switch is unknown to this member,
// the port is created: the probe is signed.
func (a *App) source(at place) *port {
	p := a.port(at)
	if p == nil && a.shared != nil && !a.wiring.lacks(at.dpid) {
		return a.mirrored(at)
	}
	return p
}

// SwitchSeen adds the ports of a switch of which another member is master, and the store's links
// and hosts at it.
func (a *App) SwitchSeen(s *controller.Switch) {
	a.locked(func() {
		n := a.node(s.DPID())
		n.seen = s
		here := a.portsUp(n, s)
		for number, p := range n.ports {
			if !here[number] {
				a.forget(p)
			}
		}
		a.mirrorAll(n)
		for _, p := range n.ports {
			a.expect(p) // links in the store had created these already
		}
	})
}

// SwitchCeased keeps what is known of a switch that another member has taken over; from now on that
// member probes it.
func (a *App) SwitchCeased(s *controller.Switch) {
	a.bySwitch.Delete(s)
	a.locked(func() {
		n := a.nodes[s.DPID()]
		if n == nil || n.sw != s {
			return
		}
		n.own(nil)
		for _, p := range n.ports {
			if p.first = (time.Time{}); p.Kind() == Edge {
				a.setKind(p, Open) // the next master classifies it itself
			}
			for w := range p.ways {
				w.condemned = false
			}
		}
	})
}

// mirrorAll applies the store's links of a switch whose ports have become known.
func (a *App) mirrorAll(n *node) {
	if a.shared == nil {
		return
	}
	for number := range n.ports {
		a.mirrorAt(n, number)
	}
	for _, mac := range a.shared.hostsOf(n.dpid) {
		a.mirrorHost(mac)
	}
}

// mirrorAt does the same for one port.
func (a *App) mirrorAt(n *node, number uint32) {
	if a.shared != nil {
		for _, x := range a.shared.at(place{n.dpid, number}) {
			a.mirror(x)
		}
	}
}

// taken updates the store after this member has become a switch's master. Links and hosts stay, and
// must be confirmed within their usual time.
func (a *App) taken(n *node) {
	if a.shared == nil {
		return
	}
	a.mirrorAll(n)
	a.shared.recheck(n.dpid)
	for _, p := range n.ports {
		a.expect(p)
		for _, w := range p.in {
			w.silent = 0
			a.shared.link(w.from.place(), w.to.place()) // the store may not have it yet
		}
	}
	a.hosts.touch(n.dpid, time.Unix(0, a.now.Load()))
}

// recheck schedules everything in the store about a switch for comparison.
func (s *shared) recheck(dpid uint64) {
	s.mu.Lock()
	for x := range s.links {
		if x.to.dpid == dpid || x.from.dpid == dpid {
			s.dirtyLinks[x] = true
		}
	}
	for mac := range s.hostsAt[dpid] {
		s.dirtyHosts[mac] = true
	}
	s.mu.Unlock()
	s.poke()
}

func (s *shared) hostsOf(dpid uint64) []openflow.MAC {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.hostsAt[dpid]))
}

// expireShared gives up links that another member probes, after the time in which even a member
// that has all ports must have sent as many probes as a link may lose. They end when the store has
// accepted that: while no agreement is possible, the network stays as it is.
func (a *App) expireShared(now time.Time) {
	if a.shared == nil {
		return
	}
	for _, x := range a.shared.valid() {
		a.mirror(x)
	}
	ports := 0
	for _, n := range a.nodes {
		ports += len(n.ports)
		for _, p := range n.ports {
			for from, h := range p.halves {
				if now.Sub(h.at) >= shutTime {
					delete(p.halves, from)
					a.shared.link(from.place(), p.place())
				}
			}
		}
	}
	for _, w := range slices.Clone(a.ways) {
		if w.expected != 0 && w.to.node.sw == nil {
			a.unconfirmed(w)
		}
	}
	life := int((lost+1)*max(round, time.Duration(ports)*time.Second/Budget)/slowInterval) + 1
	for _, w := range a.ways {
		if w.to.node.sw == nil || w.from.node.sw != nil || w.from.node.seen == nil {
			w.silent = 0
			continue
		}
		// Counts this process's seconds: while it is suspended, none pass.
		if w.silent++; w.silent > life && !w.condemned && !a.trusting {
			w.condemned = true
			a.shared.link(w.from.place(), w.to.place())
		}
	}
}

// unconfirmed gives up a link between ports of others' switches that only the wiring vouches for,
// and that no member has confirmed in two epochs. Epochs are the store's, so that the network stays
// as it is while the store is unavailable.
func (a *App) unconfirmed(w *way) {
	switch _, there := a.shared.has(w.from.place(), w.to.place()); {
	case there:
		w.expected = 0
	case a.shared.before.Load() > w.expected && !a.trusting:
		a.log.Info("link lost: no member has seen it since its ports came up", "from", w.from.place(), "to",
			w.to.place())
		a.lose(w)
	}
}

func (a *App) sharedHost(mac openflow.MAC, h sharedHost) {
	s := a.shared
	s.mu.Lock()
	s.forgetHost(mac)
	s.hosts[mac] = h
	if s.hostsAt[h.at.dpid] == nil {
		s.hostsAt[h.at.dpid] = map[openflow.MAC]bool{}
	}
	s.hostsAt[h.at.dpid][mac] = true
	s.mu.Unlock()
	a.mirrorHost(mac)
}

func (s *shared) forgetHost(mac openflow.MAC) {
	old, had := s.hosts[mac]
	if !had {
		return
	}
	delete(s.hosts, mac)
	if delete(s.hostsAt[old.at.dpid], mac); len(s.hostsAt[old.at.dpid]) == 0 {
		delete(s.hostsAt, old.at.dpid)
	}
}

func (a *App) sharedHostGone(mac openflow.MAC) {
	a.shared.mu.Lock()
	a.shared.forgetHost(mac)
	a.shared.mu.Unlock()
	a.shared.host(mac)
	t := &a.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.byMAC[mac]; h != nil && h.port.Load().node.sw == nil {
		t.remove(h)
	}
}

// mirrorHost applies the store's location of a host, unless it is at a switch of this member, whose
// own view prevails.
func (a *App) mirrorHost(mac openflow.MAC) {
	a.shared.mu.Lock()
	x, ok := a.shared.hosts[mac]
	a.shared.mu.Unlock()
	p := a.port(x.at)
	if !ok || p == nil {
		return
	}
	if p.node.sw != nil {
		a.shared.host(mac)
		return
	}
	a.hosts.mirror(mac, p, x)
}

// mirror places a host at a port of another member's switch.
func (t *hostTable) mirror(mac openflow.MAC, at *port, x sharedHost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byMAC[mac]
	if h == nil {
		if h = t.add(at, mac, x.Since); h == nil {
			return
		}
	}
	same := h.port.Load() == at && slices.Equal(*h.addresses.Load(), x.Addresses) && h.seen.Load() != 0
	if same {
		return
	}
	if h.port.Load() != at {
		t.place(h, at)
	}
	h.since = x.Since
	h.seen.Store(t.app.now.Load())
	for _, old := range *h.addresses.Load() {
		if o := t.byAddress[old]; o != nil && o.host == h {
			delete(t.byAddress, old)
		}
	}
	list := slices.Clone(x.Addresses)
	h.addresses.Store(&list)
	for _, address := range list {
		o := t.byAddress[address]
		if o == nil {
			o = &owner{}
			t.byAddress[address] = o
		} else if o.host != h {
			t.disown(o.host, address)
			t.tell(o.host, false)
		}
		o.host = h
	}
	t.tell(h, false)
}

// touch marks the hosts of a switch as heard now: so far another member has heard them.
func (t *hostTable) touch(dpid uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.bySwitch[dpid] {
		h.seen.Store(now.UnixNano())
	}
}
