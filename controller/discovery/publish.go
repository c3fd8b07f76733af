package discovery

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// publish writes differences to the store, in batches.
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

// sharedChanges returns the next batch, links first. If it could not be written, again must be
// called.
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
		if c, ok := a.linkChange(x); ok {
			changes, links = append(changes, c), append(links, x)
		}
	}
	for mac := range s.dirtyHosts {
		if len(changes) == maxCommit {
			break
		}
		delete(s.dirtyHosts, mac)
		if c, ok := t.hostChange(mac); ok {
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

// linkChange returns the change that brings the store up to date for a direction of a link. All
// locks must be held.
func (a *App) linkChange(x pair) (c store.Change, is bool) {
	has := a.shared.links[x]
	from, to := a.port(x.from), a.port(x.to)
	at, begin := a.nodes[x.to.dpid], a.nodes[x.from.dpid]
	if at == nil || at.sw == nil {
		// The master of the port where the link begins knows only that the port is gone.
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

// hostChange returns the change that brings the store up to date for a host. All locks must be
// held.
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
	value, err := json.Marshal(sharedHost{Switch: fmt.Sprintf("%016x", p.node.dpid), Port: p.number,
		Addresses: *h.addresses.Load(), Since: h.since.UTC()})
	return store.Put(key, value), err == nil
}
