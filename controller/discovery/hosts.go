package discovery

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

const (
	maxHosts     = 100_000 // at a time; further ones are ignored
	maxPortHosts = 10_000  // at one port, so that a single port cannot fill the table
	maxAddresses = 8       // of a host: a further one replaces the oldest
	maxHeld      = 64      // at a port that is still open

	hostIdle   = 15 * time.Minute // a host that has not been heard for so long is forgotten
	expireTime = 30 * time.Second // between two searches for such hosts

	// A host or an address that moves more than maxMoves times in movesTime is pinned to its place
	// for pinTime: two hosts claim it, or a foreign network has a loop.
	maxMoves  = 5
	movesTime = 10 * time.Second
	pinTime   = time.Minute
)

// Host is a sender behind an edge port, identified by its Ethernet address.
type Host struct {
	MAC       openflow.MAC
	Addresses []netip.Addr // claimed by ARP or neighbour discovery; the newest last
	Switch    uint64
	Port      uint32
	Since     time.Time // at this port
	Seen      time.Time // last packet seen by the controller
}

// HostChange reports a host that is new, has moved, has other addresses, or is forgotten.
type HostChange struct {
	Host Host
	Gone bool
}

// hostTable holds the known hosts. Its mu may be taken while App's mu is held, not the other way
// round.
type hostTable struct {
	app *App

	mu        sync.Mutex
	byMAC     map[openflow.MAC]*host
	byAddress map[netip.Addr]*owner
	bySwitch  map[uint64]map[*host]bool
	watchers  []func(HostChange)
	told      time.Time // when it was last logged that the table is full
	expired   time.Time // last search for idle hosts
}

// host is a host. The atomic fields are read without the table's lock.
type host struct {
	mac       openflow.MAC
	port      atomic.Pointer[port] // nil: forgotten
	addresses atomic.Pointer[[]netip.Addr]
	seen      atomic.Int64 // ns since 1970
	pinned    atomic.Int64 // until then
	since     time.Time
	moves     moves
}

// owner is the host that has an address.
type owner struct {
	host   *host
	moves  moves
	pinned time.Time
}

// moves counts moves, to detect flapping.
type moves struct {
	since time.Time
	n     int
}

// tooMany counts a move, and reports whether there are too many.
func (m *moves) tooMany(now time.Time) bool {
	if now.Sub(m.since) > movesTime {
		*m = moves{since: now}
	}
	m.n++
	return m.n > maxMoves
}

// heard is what a packet reveals of its sender.
type heard struct {
	mac     openflow.MAC
	address netip.Addr // zero: none
}

// Hosts returns the hosts, in no order.
func (a *App) Hosts() []Host {
	t := &a.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Host, 0, len(t.byMAC))
	for _, h := range t.byMAC {
		out = append(out, h.public())
	}
	return out
}

// Host returns the host with an Ethernet address.
func (a *App) Host(mac openflow.MAC) (Host, bool) {
	t := &a.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.byMAC[mac]; h != nil {
		return h.public(), true
	}
	return Host{}, false
}

// HostOf returns the host that has an IP address.
func (a *App) HostOf(address netip.Addr) (Host, bool) {
	t := &a.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.byAddress[address]; o != nil {
		return o.host.public(), true
	}
	return Host{}, false
}

// WatchHosts calls f for every change of a host from now on, like Watch.
func (a *App) WatchHosts(f func(HostChange)) {
	a.hosts.mu.Lock()
	defer a.hosts.mu.Unlock()
	a.hosts.watchers = append(a.hosts.watchers, f)
}

func (h *host) public() Host {
	p := h.port.Load()
	return Host{MAC: h.mac, Addresses: slices.Clone(*h.addresses.Load()), Switch: p.node.dpid, Port: p.number,
		Since: h.since, Seen: time.Unix(0, h.seen.Load())}
}

func (h *host) has(a netip.Addr) bool { return slices.Contains(*h.addresses.Load(), a) }

// hear learns from a packet's sender. For a known host it takes no lock and allocates nothing. It
// runs in the switch's goroutine.
func (a *App) hear(s *controller.Switch, p *controller.Packet) {
	v, _ := a.bySwitch.Load(s)
	n, ok := v.(*node)
	if !ok || p.Src[0]&1 == 1 || p.Src == (openflow.MAC{}) {
		return
	}
	at := n.ports[p.InPort]
	if at == nil || at.Kind() == Inner {
		return
	}
	now := a.now.Load()
	said, says := address(p)
	h := n.heard[p.Src]
	switch {
	case h == nil && at.hosts.Load() >= maxPortHosts:
		return
	case h == nil:
	case h.port.Load() == at:
		if now-h.seen.Load() > int64(time.Second) {
			h.seen.Store(now)
		}
		if !says || h.has(said) {
			return
		}
	case h.pinned.Load() > now:
		return
	}
	if h = a.hosts.note(at, heard{p.Src, said}, time.Unix(0, now)); h != nil {
		n.remember(h)
	}
}

// remember adds a host to the switch's cache, and now and then removes those that have moved
// elsewhere.
func (n *node) remember(h *host) {
	if len(n.heard) >= max(n.cleanAt, 1024) {
		for mac, h := range n.heard {
			if p := h.port.Load(); p == nil || p.node != n {
				delete(n.heard, mac)
			}
		}
		n.cleanAt = 2 * len(n.heard)
	}
	n.heard[h.mac] = h
}

// note records a sender, and returns the host if the port is an edge.
func (t *hostTable) note(at *port, x heard, now time.Time) *host {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.Kind() == Open {
		if len(at.held) < maxHeld && !slices.Contains(at.held, x) {
			at.held = append(at.held, x)
		}
		return nil
	}
	h := t.byMAC[x.mac]
	changed := false
	switch {
	case h == nil:
		if h = t.add(at, x.mac, now); h == nil {
			return nil
		}
		changed = true
	case h.port.Load() != at:
		var ok bool
		if changed, ok = t.move(h, at, now); !ok {
			return h
		}
	}
	h.seen.Store(now.UnixNano())
	if x.address.IsValid() && !h.has(x.address) {
		changed = t.own(h, x.address, now) || changed
	}
	if changed {
		t.tell(h, false)
	}
	return h
}

func (t *hostTable) add(at *port, mac openflow.MAC, now time.Time) *host {
	if len(t.byMAC) >= maxHosts || at.hosts.Load() >= maxPortHosts {
		if now.Sub(t.told) > pinTime {
			t.told = now
			t.app.log.Warn("too many hosts; further ones are not recorded", "known", len(t.byMAC), "port", at.place(),
				"at the port", at.hosts.Load())
		}
		return nil
	}
	h := &host{mac: mac, since: now}
	h.addresses.Store(&[]netip.Addr{})
	t.byMAC[mac] = h
	t.place(h, at)
	return h
}

// place moves a host to a port; nil: forgets it.
func (t *hostTable) place(h *host, at *port) {
	if old := h.port.Swap(at); old != nil {
		old.hosts.Add(-1)
		if delete(t.bySwitch[old.node.dpid], h); len(t.bySwitch[old.node.dpid]) == 0 {
			delete(t.bySwitch, old.node.dpid)
		}
	}
	if at == nil {
		return
	}
	at.hosts.Add(1)
	if t.bySwitch[at.node.dpid] == nil {
		t.bySwitch[at.node.dpid] = map[*host]bool{}
	}
	t.bySwitch[at.node.dpid][h] = true
}

// move moves a host, and reports whether it has changed places. ok is false if the host is pinned.
func (t *hostTable) move(h *host, at *port, now time.Time) (moved, ok bool) {
	old := h.port.Load()
	if old.place() == at.place() { // the port was down and has come back
		t.place(h, at)
		return false, true
	}
	if h.pinned.Load() > now.UnixNano() || at.hosts.Load() >= maxPortHosts {
		return false, false
	}
	if h.moves.tooMany(now) {
		h.pinned.Store(now.Add(pinTime).UnixNano())
		t.app.log.Warn("host flaps between two ports; it is held at the first", "host", h.mac, "first", old.place(),
			"second", at.place(), "for", pinTime)
		return false, false
	}
	t.place(h, at)
	h.since = now
	return true, true
}

// own assigns an address to a host, taking it from any other.
func (t *hostTable) own(h *host, address netip.Addr, now time.Time) bool {
	o := t.byAddress[address]
	switch {
	case o == nil:
		o = &owner{}
		t.byAddress[address] = o
	case now.Before(o.pinned):
		return false
	case o.moves.tooMany(now):
		o.pinned = now.Add(pinTime)
		t.app.log.Warn("two hosts claim an address; it is held for the first", "address", address, "first", o.host.mac,
			"at", o.host.port.Load().place(),
			"second", h.mac, "at second", h.port.Load().place(), "for", pinTime)
		return false
	default:
		t.disown(o.host, address)
		t.tell(o.host, false)
	}
	o.host = h
	list := append(slices.Clone(*h.addresses.Load()), address)
	if len(list) > maxAddresses {
		delete(t.byAddress, list[0])
		list = list[1:]
	}
	h.addresses.Store(&list)
	return true
}

func (t *hostTable) disown(h *host, address netip.Addr) {
	list := slices.DeleteFunc(slices.Clone(*h.addresses.Load()), func(a netip.Addr) bool { return a == address })
	h.addresses.Store(&list)
}

// remove forgets a host.
func (t *hostTable) remove(h *host) {
	t.tell(h, true)
	for _, a := range *h.addresses.Load() {
		delete(t.byAddress, a)
	}
	delete(t.byMAC, h.mac)
	t.place(h, nil)
}

func (t *hostTable) tell(h *host, gone bool) {
	t.app.shared.host(h.mac)
	if len(t.watchers) == 0 {
		return
	}
	c := HostChange{Host: h.public(), Gone: gone}
	for _, f := range t.watchers {
		f(c)
	}
}

// portIs applies a port's new kind: at an edge, senders heard while it was open become hosts;
// behind a link there are none.
func (t *hostTable) portIs(p *port, k Kind) {
	t.mu.Lock()
	held := p.held
	p.held = nil
	t.mu.Unlock()
	switch k {
	case Edge:
		for _, x := range held {
			t.note(p, x, time.Unix(0, t.app.now.Load()))
		}
	case Inner:
		t.drop(p.place())
	}
}

// drop forgets the hosts at a port.
func (t *hostTable) drop(at place) {
	t.removeAt(at.dpid, func(p *port) bool { return p.number == at.port })
}

// keep forgets the hosts of a switch that are not at these ports.
func (t *hostTable) keep(dpid uint64, ports map[uint32]bool) {
	t.removeAt(dpid, func(p *port) bool { return !ports[p.number] })
}

func (t *hostTable) removeAt(dpid uint64, f func(*port) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.bySwitch[dpid] {
		if f(h.port.Load()) {
			t.remove(h)
		}
	}
}

// expire forgets hosts that have been idle for too long.
func (t *hostTable) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.expired) < expireTime {
		return
	}
	t.expired = now
	before := now.Add(-hostIdle).UnixNano()
	for _, h := range t.byMAC {
		if h.seen.Load() < before && (t.app.shared == nil || h.port.Load().node.ours.Load()) {
			t.remove(h)
		}
	}
}
