package discovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// What the members of a cluster know of each other's switches is kept in their store:
//
//	view/key                       the key that signs probes, made once
//	view/epoch                     changes now and then: by its revisions members tell how old a probe is
//	view/link/TO/PORT/FROM/PORT    probes of a port arrive at another one
//	view/host/MAC                  where a host is
//
// A key belongs to the master of the switch where it was seen, TO or that of the host; that of a
// link whose port FROM is down may also go by the master of FROM. Who sees that a key of its own is
// not as it knows better puts it right. Each member has the links both directions of which are
// there, and follows the states of all ports by its own connections.
const (
	viewPrefix = "view/"
	keyKey     = viewPrefix + "key"
	epochKey   = viewPrefix + "epoch"
	linkPrefix = viewPrefix + "link/"
	hostPrefix = viewPrefix + "host/"

	// epochTime is how long an epoch lasts. Probes of this and the last one are taken: none is older
	// than 2 epochTime, whatever clocks say, and where the store stands still all are as before.
	epochTime = probeLife

	// sharedOpenTime is openTime in a cluster: longer than a switch at the other end may be without a
	// master, and so without probes, after one has died.
	sharedOpenTime = 3 * time.Second

	maxCommit = 100 // changes
	// voidTime is how many seconds a link in the store does not count after a port of it has gone
	// down: longer than its master takes to say that it is gone. If it has not, it is there again, and
	// this member has heard of the port later than of that.
	voidTime = 3

	commitTime = 50 * time.Millisecond  // between two commits
	retryTime  = 500 * time.Millisecond // after one that has failed
)

// pair is a direction of a link.
type pair struct{ from, to place }

func (x pair) key() string {
	return fmt.Sprintf("%s%016x/%d/%016x/%d", linkPrefix, x.to.dpid, x.to.port, x.from.dpid, x.from.port)
}

// sharedLink is a direction of a link in the store.
type sharedLink struct {
	Indirect bool      `json:"indirect,omitempty"`
	Since    time.Time `json:"since"`

	void int // a port of it has gone down, and for so many seconds it does not count
}

// sharedHost is a host in the store.
type sharedHost struct {
	Switch    string       `json:"switch"`
	Port      uint32       `json:"port"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Since     time.Time    `json:"since"`

	at place
}

// shared is what the app shares with other members. A nil one is that of a controller without any.
type shared struct {
	store store.Store

	epoch, before atomic.Int64

	wake chan struct{}

	mu         sync.Mutex // of what follows; taken last
	links      map[pair]*sharedLink
	void       map[pair]bool           // of links
	linksAt    map[place]map[pair]bool // by both ends
	hosts      map[openflow.MAC]sharedHost
	hostsAt    map[uint64]map[openflow.MAC]bool
	dirtyLinks map[pair]bool // that may have to be changed in the store
	dirtyHosts map[openflow.MAC]bool
}

// Share makes the app that of a member of a cluster, which keeps in the store what is known of
// links and hosts. It must be called before Start.
func (a *App) Share(s store.Store) {
	a.schedule.most = sharedOpenTime
	a.shared = &shared{store: s, wake: make(chan struct{}, 1), links: map[pair]*sharedLink{}, void: map[pair]bool{}, linksAt: map[place]map[pair]bool{},
		hosts: map[openflow.MAC]sharedHost{}, hostsAt: map[uint64]map[openflow.MAC]bool{}, dirtyLinks: map[pair]bool{}, dirtyHosts: map[openflow.MAC]bool{}}
}

// link says that a direction of a link may be different.
func (s *shared) link(from, to place) {
	if s != nil {
		s.mu.Lock()
		s.dirtyLinks[pair{from, to}] = true
		s.mu.Unlock()
		s.poke()
	}
}

// host says that a host may be different.
func (s *shared) host(mac openflow.MAC) {
	if s != nil {
		s.mu.Lock()
		s.dirtyHosts[mac] = true
		s.mu.Unlock()
		s.poke()
	}
}

func (s *shared) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// down says that a port is gone: what the store has of its links does not hold any more.
func (s *shared) down(at place) {
	if s == nil {
		return
	}
	s.mu.Lock()
	for x := range s.linksAt[at] {
		s.links[x].void = voidTime
		s.void[x] = true
		s.dirtyLinks[x] = true
	}
	s.mu.Unlock()
	s.poke()
}

// valid returns the links that count again.
func (s *shared) valid() (out []pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.void {
		if s.links[x].void--; s.links[x].void == 0 {
			delete(s.void, x)
			out = append(out, x, pair{x.to, x.from})
		}
	}
	return out
}

// has returns a direction of a link that the store has, and that holds.
func (s *shared) has(from, to place) (sharedLink, bool) {
	if s == nil {
		return sharedLink{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.links[pair{from, to}]; l != nil && l.void == 0 {
		return *l, true
	}
	return sharedLink{}, false
}

// at returns the directions of links that the store has of a port.
func (s *shared) at(p place) []pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.linksAt[p]))
}

// share takes the key from the store, or puts it there, reads what is there, and follows it.
func (a *App) share() error {
	ctx, cancel := patience.Store.Context(a.ctx)
	defer cancel()
	if err := a.sharedKey(ctx); err != nil {
		return fmt.Errorf("the key of probes: %w", err)
	}
	if err := a.newEpoch(ctx, 0); err != nil && !errors.Is(err, store.ErrChanged) {
		return fmt.Errorf("the epoch of probes: %w", err)
	}
	there, events, err := a.shared.store.Watch(a.ctx, viewPrefix)
	if err != nil {
		return fmt.Errorf("what members know of each other's switches: %w", err)
	}
	a.replaceShared(there)
	a.done.Go(func() { a.follow(events) })
	a.done.Go(a.publish)
	a.done.Go(a.keepEpoch)
	return nil
}

// sharedKey is the same for all members.
func (a *App) sharedKey(ctx context.Context) error {
	fresh := make([]byte, len(a.key))
	if _, err := rand.Read(fresh); err != nil {
		return err
	}
	err := a.shared.store.Commit(ctx, []store.Condition{{Key: keyKey}}, store.Put(keyKey, fresh))
	if err != nil && !errors.Is(err, store.ErrChanged) {
		return err
	}
	e, err := a.shared.store.Get(ctx, keyKey)
	if err == nil && len(e.Value) != len(a.key) {
		err = fmt.Errorf("%s has %d bytes, not %d", keyKey, len(e.Value), len(a.key))
	}
	if err != nil {
		return err
	}
	copy(a.key[:], e.Value)
	return nil
}

// follow follows the store until the app ends.
func (a *App) follow(events <-chan []store.Event) {
	for {
		for batch := range events {
			a.locked(func() {
				for _, e := range batch {
					a.sharedEvent(e)
				}
			})
		}
		if !a.pause(retryTime) {
			return
		}
		there, again, err := a.shared.store.Watch(a.ctx, viewPrefix)
		if err != nil {
			continue
		}
		events = again
		a.replaceShared(there)
	}
}

// replaceShared takes all that the store has: what was there before and is not any more has gone.
func (a *App) replaceShared(there []store.Entry) {
	a.locked(func() {
		keys := map[string]bool{}
		for _, e := range there {
			keys[e.Key] = true
		}
		for _, key := range a.shared.keys() {
			if !keys[key] {
				a.sharedEvent(store.Event{Key: key})
			}
		}
		for _, e := range there {
			a.sharedEvent(e)
		}
	})
}

func (s *shared) keys() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.links {
		out = append(out, x.key())
	}
	for mac := range s.hosts {
		out = append(out, hostPrefix+mac.String())
	}
	return out
}

// sharedEvent takes a change of the store. It must be called with mu held, as what follows. What
// somebody else has written there and nobody can read is passed over.
func (a *App) sharedEvent(e store.Event) {
	switch {
	case e.Key == epochKey && e.Revision > a.shared.epoch.Load():
		before := a.shared.epoch.Swap(e.Revision)
		a.shared.before.Store(cmp.Or(before, e.Revision))
	case strings.HasPrefix(e.Key, linkPrefix):
		var x pair
		n, err := fmt.Sscanf(e.Key[len(linkPrefix):], "%x/%d/%x/%d", &x.to.dpid, &x.to.port, &x.from.dpid, &x.from.port)
		if n != 4 || err != nil || x.key() != e.Key || x.from == x.to {
			return
		}
		if e.Gone() {
			a.sharedLinkGone(x)
			return
		}
		var l sharedLink
		if json.Unmarshal(e.Value, &l) == nil {
			a.sharedLink(x, l)
		}
	case strings.HasPrefix(e.Key, hostPrefix):
		mac, err := openflow.ParseMAC(e.Key[len(hostPrefix):])
		if err != nil || mac[0]&1 == 1 {
			return
		}
		if e.Gone() {
			a.sharedHostGone(mac)
			return
		}
		var h sharedHost
		if json.Unmarshal(e.Value, &h) != nil || len(h.Addresses) > maxAddresses {
			return
		}
		if n, err := fmt.Sscanf(h.Switch, "%x", &h.at.dpid); n == 1 && err == nil {
			h.at.port = h.Port
			a.sharedHost(mac, h)
		}
	}
}

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
		s.link(x.from, x.to) // it is ours to say
	}
	a.mirror(x)
	if p := a.port(x.from); p != nil && p.node.sw != nil && len(p.out) == 0 {
		a.shut(p, time.Now()) // it is no edge: its probes arrive at a switch
	}
}

func (a *App) sharedLinkGone(x pair) {
	s := a.shared
	s.mu.Lock()
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
	case to.node.sw == nil || w.condemned:
		a.log.Info("link lost", "from", x.from, "to", x.to)
		a.lose(w)
	default:
		s.link(x.from, x.to) // it is ours to say
	}
}

// mirror makes a link known both directions of which are in the store. What arrives at a switch of
// this member it must have seen itself.
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
	if !(both || to.wayTo(from) != nil) || !seen(from, to) || !seen(to, from) || len(from.out) >= maxFar || len(to.in) >= maxFar {
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

// mirrored returns a port of a link in the store. The ports of a switch that is connected are known;
// of one that is not, they are what links say.
func (a *App) mirrored(at place) *port {
	if n := a.nodes[at.dpid]; n != nil && n.here() {
		return n.ports[at.port]
	}
	return a.remembered(at.dpid, at.port)
}

// source returns the port that a probe says it comes from: one of a switch that this member has not
// seen is there as well, for the probe is signed.
func (a *App) source(at place) *port {
	p := a.port(at)
	if p == nil && a.shared != nil && !a.wiring.lacks(at.dpid) {
		return a.mirrored(at)
	}
	return p
}

// SwitchSeen takes the ports of a switch of which this member is not the master, and what the store
// has of it.
func (a *App) SwitchSeen(s *controller.Switch) {
	a.locked(func() {
		n := a.node(s.DPID())
		n.seen = s
		here := map[uint32]bool{}
		for _, p := range s.Ports() {
			if p.Works() {
				here[p.Number] = true
				a.portUp(n, p)
			}
		}
		a.hosts.keep(n.dpid, here)
		for number, p := range n.ports {
			if !here[number] {
				a.forget(p)
			}
		}
		a.mirrorAll(n)
	})
}

// SwitchCeased keeps what is known of a switch that another member has now: that one goes on
// probing.
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
				a.setKind(p, Open) // whoever has it next looks itself
			}
			for w := range p.ways {
				w.condemned = false
			}
		}
	})
}

// mirrorAll takes from the store what it has of a switch whose ports are known now.
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

// mirrorAt is mirrorAll for the links of a port.
func (a *App) mirrorAt(n *node, number uint32) {
	if a.shared != nil {
		for _, x := range a.shared.at(place{n.dpid, number}) {
			a.mirror(x)
		}
	}
}

// taken puts right, after this member has become a switch's master, what the store has of it: links
// and hosts stay, and have to be confirmed in their usual time.
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
		}
	}
	a.hosts.touch(n.dpid, time.Unix(0, a.now.Load()))
}

// recheck has all be compared that the store has of a switch.
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

// expireShared gives up links whose probes another member sends, after the time in which even one
// that has all ports must have sent as many as a link may lose. They end when the store has taken
// it: while nothing can be agreed on, the network stays as it is.
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
	life := int((lost+1)*max(round, time.Duration(ports)*time.Second/Budget)/slowInterval) + 1
	for _, w := range a.ways {
		if w.to.node.sw == nil || w.from.node.sw != nil || w.from.node.seen == nil {
			w.silent = 0
			continue
		}
		if w.silent++; w.silent > life && !w.condemned && !a.trusting { // its own seconds: one that stood still has none
			w.condemned = true
			a.shared.link(w.from.place(), w.to.place())
		}
	}
}

// publish writes what is different, in batches.
func (a *App) publish() {
	for {
		select {
		case <-a.shared.wake:
		case <-a.ctx.Done():
			return
		}
		for {
			changes, again := a.sharedChanges()
			if len(changes) == 0 {
				break
			}
			rest := commitTime
			ctx, cancel := patience.Store.Context(a.ctx)
			err := a.shared.store.Commit(ctx, nil, changes...)
			cancel()
			if err != nil {
				again()
				rest = retryTime
			}
			if !a.pause(rest) {
				return
			}
		}
	}
}

// sharedChanges returns what is to be written next, of which again is called if it was not. Links
// come first.
func (a *App) sharedChanges() (changes []store.Change, again func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, s := &a.hosts, a.shared
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var links []pair
	var hosts []openflow.MAC
	for x := range s.dirtyLinks {
		if len(changes) == maxCommit {
			break
		}
		delete(s.dirtyLinks, x)
		if c, is := a.linkChange(x); is {
			changes, links = append(changes, c), append(links, x)
		}
	}
	for mac := range s.dirtyHosts {
		if len(changes) == maxCommit {
			break
		}
		delete(s.dirtyHosts, mac)
		if c, is := t.hostChange(mac); is {
			changes, hosts = append(changes, c), append(hosts, mac)
		}
	}
	return changes, func() {
		for _, x := range links {
			s.link(x.from, x.to)
		}
		for _, mac := range hosts {
			s.host(mac)
		}
	}
}

// linkChange is how the store is to be changed for a direction of a link. All locks must be held.
func (a *App) linkChange(x pair) (c store.Change, is bool) {
	has := a.shared.links[x]
	from, to := a.port(x.from), a.port(x.to)
	at, begin := a.nodes[x.to.dpid], a.nodes[x.from.dpid]
	if at == nil || at.sw == nil {
		// The master of the port where it begins knows only that it is gone.
		gone := begin != nil && begin.sw != nil && from == nil
		return store.Delete(x.key()), has != nil && gone
	}
	var want *sharedLink
	if from != nil && to != nil {
		w := from.wayTo(to)
		h, half := to.halves[from]
		switch {
		case w != nil && !w.condemned:
			want = &sharedLink{Indirect: w.indirect}
		case w == nil && half:
			want = &sharedLink{Indirect: !h.direct}
		}
	}
	switch {
	case want == nil:
		return store.Delete(x.key()), has != nil
	case has != nil && has.void == 0 && has.Indirect == want.Indirect:
		return c, false
	}
	want.Since = time.Now().UTC()
	value, err := json.Marshal(want)
	return store.Put(x.key(), value), err == nil
}

// hostChange is how the store is to be changed for a host. All locks must be held.
func (t *hostTable) hostChange(mac openflow.MAC) (c store.Change, is bool) {
	s := t.app.shared
	has, there := s.hosts[mac]
	key := hostPrefix + mac.String()
	h := t.byMAC[mac]
	if h == nil {
		n := t.app.nodes[has.at.dpid]
		return store.Delete(key), there && n != nil && n.sw != nil
	}
	p := h.port.Load()
	if p.node.sw == nil || there && has.at == p.place() && slices.Equal(has.Addresses, *h.addresses.Load()) {
		return c, false
	}
	value, err := json.Marshal(sharedHost{Switch: fmt.Sprintf("%016x", p.node.dpid), Port: p.number, Addresses: *h.addresses.Load(), Since: h.since.UTC()})
	return store.Put(key, value), err == nil
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

// mirrorHost puts a host where the store says that it is, unless that is at a switch of this member,
// which knows better.
func (a *App) mirrorHost(mac openflow.MAC) {
	a.shared.mu.Lock()
	x, is := a.shared.hosts[mac]
	a.shared.mu.Unlock()
	p := a.port(x.at)
	if !is || p == nil {
		return
	}
	if p.node.sw != nil {
		a.shared.host(mac)
		return
	}
	a.hosts.mirror(mac, p, x)
}

// mirror makes a host live at a port of another member's switch.
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

// touch takes the hosts of a switch for heard now: who heard them last was another member.
func (t *hostTable) touch(dpid uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.bySwitch[dpid] {
		h.seen.Store(now.UnixNano())
	}
}

// stamp is what a probe says of when it is sent: the time since the start, or in a cluster the
// epoch.
func (a *App) stamp() time.Duration {
	if a.shared != nil {
		return time.Duration(a.shared.epoch.Load())
	}
	return time.Since(a.began)
}

// isFresh says whether a probe with that stamp is young enough.
func (a *App) isFresh(stamp time.Duration) bool {
	if a.shared != nil {
		return int64(stamp) >= a.shared.before.Load()
	}
	return time.Since(a.began)-stamp <= probeLife
}

// keepEpoch begins a new epoch when the present one has lasted its time and no other member has.
func (a *App) keepEpoch() {
	for last := a.shared.epoch.Load(); a.pause(epochTime); last = a.shared.epoch.Load() {
		if a.shared.epoch.Load() == last {
			ctx, cancel := patience.Store.Context(a.ctx)
			_ = a.newEpoch(ctx, last) // else another has
			cancel()
		}
	}
}

// newEpoch begins an epoch, if the last one is still that.
func (a *App) newEpoch(ctx context.Context, last int64) error {
	return a.shared.store.Commit(ctx, []store.Condition{{Key: epochKey, Revision: last}}, store.Put(epochKey, nil))
}
