// Package announce has each member of a cluster say something of itself in the store, which the
// others hear: how far it has followed a change that all of them follow.
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

// Board is what the members say of one thing: each its own, in a key below a prefix. T is kept in
// JSON.
type Board[T any] struct {
	store  store.Store
	prefix string // with a slash at its end
	member string
	news   func() // somebody has said something, or members are others; called without mu
	wake   chan struct{}

	mu      sync.Mutex // of what follows
	said    map[string]Said[T]
	members map[string]bool
	gone    map[string]int64 // when members have gone, as the store counts
	want    *T               // what this member is to say; nil: nothing yet
}

// Said is what a member has said, and when, as the store counts.
type Said[T any] struct {
	Value    T
	Revision int64
}

// New returns what members say below a prefix, of which this is one. news is called when that is
// different, or members are; it must not block.
func New[T any](s store.Store, prefix, member string, news func()) *Board[T] {
	return &Board[T]{store: s, prefix: prefix, member: member, news: news, wake: make(chan struct{}, 1),
		said: map[string]Said[T]{}, members: map[string]bool{}, gone: map[string]int64{}}
}

// Start begins to follow what members say, and returns when it knows what they have. What this
// member has said in an earlier run is withdrawn. It ends with the context; done has what runs
// until then.
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

// Say has this member say something, in place of what it has said: soon, and for as long as it
// takes until the store has it. Of what is said in quick succession the last is what counts.
func (b *Board[T]) Say(v T) {
	b.mu.Lock()
	b.want = &v
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Heard returns which members there are, and what they have said; also those that are there no
// more.
func (b *Board[T]) Heard() (members map[string]bool, said map[string]Said[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.members), maps.Clone(b.said)
}

// replace takes all that there is below a prefix.
func (b *Board[T]) replace(prefix string, there []store.Entry) {
	b.mu.Lock()
	if prefix == b.prefix {
		clear(b.said)
	} else {
		clear(b.members)
	}
	b.mu.Unlock()
	b.hear(there, true)
}

// hear takes changes, or all that there is, and says whether they are any: a member's signs of life
// are none.
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
		said := Said[T]{Revision: e.Revision}
		if e.Gone() || json.Unmarshal(e.Value, &said.Value) != nil {
			delete(b.said, name)
			continue
		}
		b.said[name] = said
		if !all && e.Revision > b.gone[name] {
			b.members[name] = true // what is said of it is under way
		}
	}
	return news
}

// write has the store know what this member is to say.
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
