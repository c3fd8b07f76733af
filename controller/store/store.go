// Package store says how the apps of a controller keep what has to outlive it: what users have
// asked for, and, of several controllers of one network, what they must agree on.
//
// What is kept are values under keys, each with the revision of its last change: a number that
// grows with every change of the store. Changes are made together or not at all, on condition that
// keys are as they were when they were read; whoever watches keys is told of each change, in order.
// An entry under a lease goes when nobody renews it: so a controller that has died lets go of what
// it held.
//
// Memory keeps all in this process, and is what SQLite's store (controller/database) is made of.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Store keeps entries. Its methods may be called at the same time. Keys are words with slashes
// between them, as "user/flow/…"; what a prefix ends with need not be a slash.
type Store interface {
	// Get returns an entry. It is no error that there is none: its revision is 0 then.
	Get(ctx context.Context, key string) (Entry, error)

	// List returns the entries whose keys begin so, by their keys.
	List(ctx context.Context, prefix string) ([]Entry, error)

	// Commit makes changes if all conditions hold; else none, and the error is ErrChanged. When it
	// returns without an error they are as safe as the store makes them: on the disk, or with most
	// of its members. An error of another kind leaves it open whether they have been made, unless
	// it is ErrClosed.
	Commit(ctx context.Context, conditions []Condition, changes ...Change) error

	// Watch returns the entries whose keys begin so, and from then on all changes of such, in their
	// order; those of one Commit together. The channel is closed when the context ends or the store
	// is closed, and when the store cannot tell all that has happened, as somebody has not read for
	// long: then the entries are read anew by another Watch.
	Watch(ctx context.Context, prefix string) ([]Entry, <-chan []Event, error)

	// Grant makes a lease that ends when it has not been renewed for so long.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)

	Close() error
}

// Entry is a value under a key.
type Entry struct {
	Key      string
	Value    []byte // must not be changed
	Revision int64  // of its last change; 0: there is none
}

// Event is what has become of a key. Of one that has gone the value is nil.
type Event = Entry

// Gone says whether an event is that a key has gone.
func (e Entry) Gone() bool { return e.Value == nil }

// Condition is that a key is as it was: its last change has that revision, 0: there is none.
type Condition struct {
	Key      string
	Revision int64
}

// Is is the condition that a key is as in an entry that was read.
func (e Entry) Is() Condition { return Condition{e.Key, e.Revision} }

// Change is what a key is to be. Make it by Put or Delete.
type Change struct {
	Key   string
	Value []byte // nil: it goes
	Lease Lease  // nil: it stays until it is deleted
}

// Put is the change that gives a key a value.
func Put(key string, value []byte) Change {
	if value == nil {
		value = []byte{}
	}
	return Change{Key: key, Value: value}
}

// Under puts a change under a lease.
func (c Change) Under(l Lease) Change {
	c.Lease = l
	return c
}

// Delete is the change by which a key goes, if it is there.
func Delete(key string) Change { return Change{Key: key} }

// Lease is what entries can be put under: they go when it ends.
type Lease interface {
	// Renew lets it last its whole time from now; ErrEnded: it is too late.
	Renew(ctx context.Context) error
	// Revoke ends it.
	Revoke(ctx context.Context) error
}

// Errors to be told apart by errors.Is.
var (
	ErrChanged = errors.New("the store has changed meanwhile")
	ErrEnded   = errors.New("the lease has ended")
	ErrClosed  = errors.New("the store is closed")
)

// Rows are entries whose values are of one type, written as JSON, below a prefix.
type Rows[T any] struct {
	Store  Store
	Prefix string // ends with a slash
}

// All returns them by key, which is without the prefix.
func (r Rows[T]) All(ctx context.Context) (out []T, err error) {
	entries, err := r.Store.List(ctx, r.Prefix)
	for _, e := range entries {
		var value T
		if bad := json.Unmarshal(e.Value, &value); bad != nil {
			return nil, fmt.Errorf("what is kept as %s: %w", e.Key, bad)
		}
		out = append(out, value)
	}
	return out, err
}

// Put keeps a row.
func (r Rows[T]) Put(ctx context.Context, key string, value T) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return r.Store.Commit(ctx, nil, Put(r.Prefix+key, b))
}

// Delete forgets a row, if it is there.
func (r Rows[T]) Delete(ctx context.Context, key string) error {
	return r.Store.Commit(ctx, nil, Delete(r.Prefix+key))
}

// Next returns the next number of a sequence, 1 at first. No two callers get the same, whatever has
// become of what they have numbered.
func Next(ctx context.Context, s Store, sequence string) (n int64, err error) {
	for {
		e, err := s.Get(ctx, sequence)
		if err != nil {
			return 0, err
		}
		if n = 1; e.Revision != 0 {
			if n, err = strconv.ParseInt(string(e.Value), 10, 64); err != nil {
				return 0, fmt.Errorf("the sequence %s: %w", sequence, err)
			}
			n++
		}
		err = s.Commit(ctx, []Condition{e.Is()}, Put(sequence, strconv.AppendInt(nil, n, 10)))
		if !errors.Is(err, ErrChanged) {
			return n, err
		}
	}
}
