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
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// What the members of a cluster know of each other's switches is kept in their store:
//
//	view/key                       the key that signs probes, made once
//	view/epoch                     changes now and then: its revisions tell how old a probe is
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

	// epochTime is how long an epoch lasts. Probes of this and the last one are taken: none is
	// older than 2 epochTime, whatever clocks say, and where the store stands still all are as
	// before.
	epochTime = probeLife

	// sharedOpenTime is openTime in a cluster: longer than a switch at the other end may be without
	// a master, and so without probes, after one has died.
	sharedOpenTime = 3 * time.Second

	maxCommit = 100 // changes
	// voidTime is how many seconds a link in the store does not count after a port of it has gone
	// down: longer than its master takes to say that it is gone. If it has not, it is there again,
	// and this member has heard of the port later than of that.
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

// now is the epoch; without other members there is none.
func (s *shared) now() int64 {
	if s == nil {
		return 0
	}
	return s.epoch.Load()
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
	a.done.Go(func() {
		store.Follow(a.ctx, a.shared.store, viewPrefix, retryTime, events, a.replaceShared, a.sharedEvents)
	})
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

// sharedEvents takes changes of the store.
func (a *App) sharedEvents(events []store.Event) {
	a.locked(func() {
		for _, e := range events {
			a.sharedEvent(e)
		}
	})
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

// stamp is what a probe says of when it is sent: the time since the start, or in a cluster the
// epoch.
func (a *App) stamp() time.Duration {
	if a.shared != nil {
		return time.Duration(a.shared.now())
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
