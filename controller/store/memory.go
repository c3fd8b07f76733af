package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/internal/lists"
)

// Memory is a store in memory, which may pass its entries on to permanent storage.
type Memory struct {
	write func([]Entry) error

	committing sync.Mutex // one Commit at a time; held while it is being written

	mu       sync.Mutex // guards what follows
	entries  map[string]kept
	revision int64 // of the last change
	watchers map[*watcher]bool
	closed   bool
}

type kept struct {
	Entry
	lease *lease
}

var _ Store = (*Memory)(nil)

// NewMemory returns a store with these entries. Every change, except of entries under a lease, is
// passed to write before it takes effect; if write fails, it does not. write may be nil.
func NewMemory(entries []Entry, write func([]Entry) error) *Memory {
	m := &Memory{write: write, entries: map[string]kept{}, watchers: map[*watcher]bool{}}
	for _, e := range entries {
		m.entries[e.Key] = kept{Entry: e}
		m.revision = max(m.revision, e.Revision)
	}
	return m
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) (Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Entry{}, ErrClosed
	}
	e := m.entries[key].Entry
	e.Key = key
	return e, nil
}

// List implements Store.
func (m *Memory) List(_ context.Context, prefix string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return m.below(prefix), nil
}

// below lists entries. mu must be held.
func (m *Memory) below(prefix string) (out []Entry) {
	for key := range maps.Keys(m.entries) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, m.entries[key].Entry)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Commit implements Store.
func (m *Memory) Commit(_ context.Context, conditions []Condition, changes ...Change) error {
	m.committing.Lock()
	defer m.committing.Unlock()
	events, lasting, err := m.prepare(conditions, changes)
	if err != nil || len(events) == 0 {
		return err
	}
	if m.write != nil && len(lasting) > 0 {
		if err := m.write(lasting); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.make(events)
	return nil
}

// prepare returns the changes to make (deleting a key that does not exist is none), and those of
// them to be passed to write: all except of entries that are under a lease, before and after.
func (m *Memory) prepare(conditions []Condition, changes []Change) (events []kept, lasting []Entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, ErrClosed
	}
	for _, c := range conditions {
		if m.entries[c.Key].Revision != c.Revision {
			return nil, nil, fmt.Errorf("%s: %w", c.Key, ErrChanged)
		}
	}
	changed := map[string]bool{}
	for _, c := range changes {
		if c.Key == "" || changed[c.Key] {
			return nil, nil, fmt.Errorf("a key is empty, or occurs twice in one change: %q", c.Key)
		}
		changed[c.Key] = true
		e := kept{Entry: Entry{Key: c.Key, Value: c.Value, Revision: m.revision + 1}}
		if c.Lease != nil {
			l, mine := c.Lease.(*lease)
			if !mine || l.of != m || l.ended {
				return nil, nil, ErrEnded
			}
			e.lease = l
		}
		before, was := m.entries[c.Key]
		if !was && e.Gone() {
			continue
		}
		events = append(events, e)
		switch {
		case e.lease == nil && !e.Gone():
			lasting = append(lasting, e.Entry)
		case was && before.lease == nil:
			lasting = append(lasting, Entry{Key: e.Key, Revision: e.Revision})
		}
	}
	return events, lasting, nil
}

// make makes changes and notifies watchers. mu must be held.
func (m *Memory) make(events []kept) {
	m.revision++
	told := make([]Event, len(events))
	for i, e := range events {
		if before, was := m.entries[e.Key]; was && before.lease != nil {
			delete(before.lease.keys, e.Key)
		}
		if e.Revision = m.revision; e.Gone() {
			delete(m.entries, e.Key)
		} else {
			if e.lease != nil {
				e.lease.keys[e.Key] = true
			}
			m.entries[e.Key] = e
		}
		told[i] = e.Entry
	}
	for w := range m.watchers {
		w.tell(told)
	}
}

// Close implements Store: all entries under leases are removed.
func (m *Memory) Close() error {
	m.committing.Lock()
	defer m.committing.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for w := range m.watchers {
		m.leave(w)
	}
	return nil
}

// watcher is a call of Watch.
type watcher struct {
	prefix string
	queue  [][]Event
	more   chan struct{} // there is something in the queue
	gone   chan struct{} // closed: there will be no more
}

// mostUnread is how many changes may wait for a watcher before it has to read everything anew.
const mostUnread = 10_000

// tell queues events. mu must be held.
func (w *watcher) tell(events []Event) {
	mine := lists.Filter(events, func(e Event) bool { return strings.HasPrefix(e.Key, w.prefix) })
	if len(mine) == 0 {
		return
	}
	w.queue = append(w.queue, mine)
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// leave ends a watcher. mu must be held.
func (m *Memory) leave(w *watcher) {
	if m.watchers[w] {
		delete(m.watchers, w)
		close(w.gone)
	}
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, prefix string) ([]Entry, <-chan []Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, ErrClosed
	}
	w := &watcher{prefix: prefix, more: make(chan struct{}, 1), gone: make(chan struct{})}
	m.watchers[w] = true
	out := make(chan []Event)
	go m.serve(ctx, w, out)
	return m.below(prefix), out, nil
}

// serve sends a watcher its queued events.
func (m *Memory) serve(ctx context.Context, w *watcher, out chan<- []Event) {
	defer close(out)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.leave(w)
	}()
	for {
		select {
		case <-w.more:
		case <-w.gone:
			return
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		waiting := w.queue
		w.queue = nil
		m.mu.Unlock()
		for _, events := range waiting {
			m.mu.Lock()
			behind := len(w.queue) > mostUnread
			m.mu.Unlock()
			if behind {
				return
			}
			select {
			case out <- events:
			case <-w.gone:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// lease is a lease of a Memory, whose mu guards its fields.
type lease struct {
	of    *Memory
	ttl   time.Duration
	timer *time.Timer
	until time.Time
	ended bool
	keys  map[string]bool
}

// Grant implements Store.
func (m *Memory) Grant(_ context.Context, ttl time.Duration) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	l := &lease{of: m, ttl: ttl, until: time.Now().Add(ttl), keys: map[string]bool{}}
	l.timer = time.AfterFunc(ttl, func() { l.end(false) })
	return l, nil
}

// Renew implements Lease.
func (l *lease) Renew(context.Context) error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.ended || l.of.closed {
		return ErrEnded
	}
	l.until = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return nil
}

// Revoke implements Lease.
func (l *lease) Revoke(context.Context) error {
	l.end(true)
	return nil
}

// end ends the lease: at once, or if it has not been renewed since its timer fired.
func (l *lease) end(now bool) {
	m := l.of
	m.committing.Lock() // not between a Commit's check of its conditions and its changes
	defer m.committing.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.ended || m.closed || !now && time.Now().Before(l.until) {
		return
	}
	l.ended = true
	l.timer.Stop()
	if len(l.keys) == 0 {
		return
	}
	gone := lists.Map(slices.Sorted(maps.Keys(l.keys)), func(key string) kept { return kept{Entry: Entry{Key: key}} })
	m.make(gone)
}
