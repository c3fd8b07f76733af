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

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// The members of a cluster share what they discover through their store:
//
//	view/key                       the key that signs probes, made once
//	view/epoch                     changes at intervals: its revision dates probes
//	view/link/TO/PORT/FROM/PORT    probes sent from port FROM arrive at port TO
//	view/host/MAC                  where a host is
//
// A key is maintained by the master of the switch where the observation was made: TO, or that of
// the host. The key of a link whose port FROM is down may also be deleted by the master of FROM. A
// member that finds one of its keys different from what it observes corrects it. Each member uses
// the links that have both directions, and follows the states of all ports by its own connections.
const (
	viewPrefix = "view/"
	keyKey     = viewPrefix + "key"
	epochKey   = viewPrefix + "epoch"
	linkPrefix = viewPrefix + "link/"
	hostPrefix = viewPrefix + "host/"

	// epochTime is the length of an epoch. Probes of the current epoch and the one before are
	// accepted, so none is older than 2 epochTime, whatever clocks say. While the store is
	// unavailable, nothing expires.
	epochTime = probeLife

	// sharedOpenTime is openTime in a cluster: longer than the switch at the other end may be
	// without a master, and hence without probes, after a master has failed.
	sharedOpenTime = 3 * time.Second

	maxCommit = 100 // changes per commit
	// voidTime is how many seconds a link in the store is disregarded after one of its ports has
	// gone down: longer than its master takes to remove it. If it is still there then, the port is
	// up again, and this member was notified late.
	voidTime = 3

	commitTime = 50 * time.Millisecond  // between two commits
	retryTime  = 500 * time.Millisecond // after a commit that failed
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

	void int // seconds for which it is disregarded, because one of its ports has gone down
}

// sharedHost is a host in the store.
type sharedHost struct {
	Switch    string       `json:"switch"`
	Port      uint32       `json:"port"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Since     time.Time    `json:"since"`

	at place
}

// shared is the state shared with the other members; nil without a cluster.
type shared struct {
	store store.Store

	epoch, before atomic.Int64

	wake chan struct{}

	mu         sync.Mutex // guards what follows; taken last
	links      map[pair]*sharedLink
	void       map[pair]bool           // of links
	linksAt    map[place]map[pair]bool // by both ends
	hosts      map[openflow.MAC]sharedHost
	hostsAt    map[uint64]map[openflow.MAC]bool
	dirtyLinks map[pair]bool // those that may differ from the store
	dirtyHosts map[openflow.MAC]bool
}

// Share makes the app part of a cluster: it shares links and hosts through the store. Call it
// before Start.
func (a *App) Share(s store.Store) {
	a.schedule.most = sharedOpenTime
	a.shared = &shared{store: s, wake: make(chan struct{}, 1), links: map[pair]*sharedLink{}, void: map[pair]bool{},
		linksAt: map[place]map[pair]bool{},
		hosts:   map[openflow.MAC]sharedHost{}, hostsAt: map[uint64]map[openflow.MAC]bool{},
		dirtyLinks: map[pair]bool{}, dirtyHosts: map[openflow.MAC]bool{}}
}

// link marks a direction of a link for comparison with the store.
func (s *shared) link(from, to place) {
	if s != nil {
		s.mu.Lock()
		s.dirtyLinks[pair{from, to}] = true
		s.mu.Unlock()
		s.poke()
	}
}

// host marks a host for comparison with the store.
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

// down disregards the store's links at a port that has gone down.
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

// valid returns the links that are no longer disregarded.
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

// now returns the epoch; 0 without a cluster.
func (s *shared) now() int64 {
	if s == nil {
		return 0
	}
	return s.epoch.Load()
}

// has returns a direction of a link that is in the store and not disregarded.
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

// at returns the directions of links in the store that begin or end at a port.
func (s *shared) at(p place) []pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.linksAt[p]))
}

// share takes the key from the store or puts it there, reads the store's state, and follows it.
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
	a.done.Go(func() {
		store.Follow(a.ctx, a.shared.store, viewPrefix, retryTime, events, a.replaceShared, a.sharedEvents)
	})
	a.done.Go(a.publish)
	a.done.Go(a.keepEpoch)
	return nil
}

// sharedKey agrees on one key for all members.
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

// sharedEvents applies changes of the store.
func (a *App) sharedEvents(events []store.Event) {
	a.locked(func() {
		for _, e := range events {
			a.sharedEvent(e)
		}
	})
}

// replaceShared applies the whole state of the store; entries that it lacks are gone.
func (a *App) replaceShared(there []store.Entry) {
	a.locked(func() {
		keys := lists.Set(there, func(e store.Entry) string { return e.Key })
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

// sharedEvent applies one change of the store. mu must be held, as in what follows. Entries that
// cannot be read, for example written by someone else, are ignored.
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

// stamp returns the time stamp of a probe: the time since the start, or the epoch in a cluster.
func (a *App) stamp() time.Duration {
	if a.shared != nil {
		return time.Duration(a.shared.now())
	}
	return time.Since(a.began)
}

// isFresh reports whether a probe with that stamp is recent enough.
func (a *App) isFresh(stamp time.Duration) bool {
	if a.shared != nil {
		return int64(stamp) >= a.shared.before.Load()
	}
	return time.Since(a.began)-stamp <= probeLife
}

// keepEpoch begins a new epoch when the current one is over, unless another member has.
func (a *App) keepEpoch() {
	for last := a.shared.epoch.Load(); a.pause(epochTime); last = a.shared.epoch.Load() {
		if a.shared.epoch.Load() == last {
			ctx, cancel := patience.Store.Context(a.ctx)
			_ = a.newEpoch(ctx, last) // else another has
			cancel()
		}
	}
}

// newEpoch begins an epoch if last is still the current one.
func (a *App) newEpoch(ctx context.Context, last int64) error {
	return a.shared.store.Commit(ctx, []store.Condition{{Key: epochKey, Revision: last}}, store.Put(epochKey, nil))
}
