// Package announce lets each member of a cluster publish a value about itself in the store, which
// the others follow: for example how far it has applied a change that all must apply.
package announce

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

const againTime = 500 * time.Millisecond // after a commit that has failed

// Board has one value of each member, under a key below a prefix. T is encoded as JSON.
type Board[T any] struct {
	store  store.Store
	prefix string // ends with a slash
	member string
	news   func() // called without mu when a value or the set of members has changed
	wake   chan struct{}

	mu        sync.Mutex // guards what follows
	published map[string]Published[T]
	members   map[string]bool
	gone      map[string]int64 // revisions at which members have left
	want      *T               // this member's value; nil: none yet
}

// Published is a member's value, with the store's revision.
type Published[T any] struct {
	Value    T
	Revision int64
}

// New returns a board, of which this process is one member. news is called when a value or the set
// of members has changed; it must not block.
func New[T any](s store.Store, prefix, member string, news func()) *Board[T] {
	return &Board[T]{store: s, prefix: prefix, member: member, news: news, wake: make(chan struct{}, 1),
		published: map[string]Published[T]{}, members: map[string]bool{}, gone: map[string]int64{}}
}

// Start begins to follow the members' values, and returns once it has read the current ones. This
// member's value from an earlier run is deleted. Following ends with ctx; done counts the
// goroutines.
func (b *Board[T]) Start(ctx context.Context, done *sync.WaitGroup) error {
	first, cancel := patience.Store.Context(ctx)
	defer cancel()
	if err := b.store.Commit(first, nil, store.Delete(b.prefix+b.member)); err != nil {
		return err
	}
	for _, prefix := range []string{b.prefix, cluster.MemberPrefix} {
		there, events, err := b.store.Watch(ctx, prefix)
		if err != nil {
			return err
		}
		b.replace(prefix, there)
		all := func(there []store.Entry) {
			b.replace(prefix, there)
			b.news()
		}
		changed := func(events []store.Event) {
			if b.hear(events, false) {
				b.news()
			}
		}
		done.Go(func() { store.Follow(ctx, b.store, prefix, againTime, events, all, changed) })
	}
	done.Go(func() { b.write(ctx) })
	return nil
}

// Publish publishes this member's value in place of the previous one. It does not wait, and retries
// until the store has accepted it. Of values in quick succession only the last is certain to be
// published.
func (b *Board[T]) Publish(v T) {
	b.mu.Lock()
	b.want = &v
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Values returns the live members, and the values of all, including members that have left.
func (b *Board[T]) Values() (members map[string]bool, values map[string]Published[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.members), maps.Clone(b.published)
}

// replace applies the current entries below a prefix.
func (b *Board[T]) replace(prefix string, there []store.Entry) {
	b.mu.Lock()
	if prefix == b.prefix {
		clear(b.published)
	} else {
		clear(b.members)
	}
	b.mu.Unlock()
	b.hear(there, true)
}

// hear applies changes, or all entries, and reports whether anything has changed; heartbeats of
// members do not count.
func (b *Board[T]) hear(events []store.Event, all bool) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		if name, ok := strings.CutPrefix(e.Key, cluster.MemberPrefix); ok {
			news = news || b.members[name] == e.Gone()
			if b.members[name] = true; e.Gone() {
				b.gone[name] = e.Revision
				delete(b.members, name)
			}
			continue
		}
		name := strings.TrimPrefix(e.Key, b.prefix)
		news = true
		value := Published[T]{Revision: e.Revision}
		if e.Gone() || json.Unmarshal(e.Value, &value.Value) != nil {
			delete(b.published, name)
			continue
		}
		b.published[name] = value
		if !all && e.Revision > b.gone[name] {
			b.members[name] = true // its value is yet to come
		}
	}
	return news
}

// write writes this member's value to the store.
func (b *Board[T]) write(ctx context.Context) {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			b.mu.Lock()
			want := *b.want
			b.mu.Unlock()
			value, err := json.Marshal(want)
			if err != nil {
				break
			}
			once, cancel := patience.Store.Context(ctx)
			err = b.store.Commit(once, nil, store.Put(b.prefix+b.member, value))
			cancel()
			if err == nil || errors.Is(err, context.Canceled) {
				break
			}
			select {
			case <-time.After(againTime):
			case <-ctx.Done():
			}
		}
	}
}
