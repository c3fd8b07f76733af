// Package store is the interface by which a controller's apps store what must outlive it: what
// users have asked for, and in a cluster what its members must agree on.
//
// The store has values under keys, each with the revision of its last change: a number that grows
// with every change of the store. Changes are made together or not at all, on condition that keys
// have not changed since they were read. Watchers of keys are sent every change, in order. An entry
// under a lease is removed when the lease is no longer renewed, so that a failed controller
// releases what it held.
//
// Memory keeps everything in this process; the SQLite store (controller/database) is built on it.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MostInCommit is how many conditions, and how many changes, each Store takes in one Commit.
const MostInCommit = 100

// Store stores entries. It is safe for concurrent use. Keys are words separated by slashes, as
// "user/flow/…"; a prefix may end anywhere in a key.
type Store interface {
	// Get returns an entry. If there is none, its revision is 0, without an error.
	Get(ctx context.Context, key string) (Entry, error)

	// List returns the entries whose keys have the prefix, by key.
	List(ctx context.Context, prefix string) ([]Entry, error)

	// Commit makes the changes if all conditions hold; otherwise none, and returns ErrChanged. When
	// it returns nil they are durable: on the disk, or at a majority of the store's members. After
	// any other error except ErrClosed it is unknown whether they have been made.
	Commit(ctx context.Context, conditions []Condition, changes ...Change) error

	// Watch returns the entries whose keys have the prefix, and a channel of all later changes to
	// such keys, in order; those of one Commit together. The channel is closed when ctx ends, when
	// the store is closed, and when changes were lost because the receiver was too slow: then Watch
	// must be called again.
	Watch(ctx context.Context, prefix string) ([]Entry, <-chan []Event, error)

	// Grant makes a lease that ends if it is not renewed for ttl.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)

	Close() error
}

// Entry is a value under a key.
type Entry struct {
	Key      string
	Value    []byte // must not be changed
	Revision int64  // of its last change; 0: there is no such entry
}

// Event is the new state of a key. If it was deleted, the value is nil.
type Event = Entry

// Gone reports whether the key was deleted.
func (e Entry) Gone() bool { return e.Value == nil }

// Condition requires that a key's last change has this revision; 0: that there is no such key.
type Condition struct {
	Key      string
	Revision int64
}

// Is returns the condition that the key has not changed since the entry was read.
func (e Entry) Is() Condition { return Condition{e.Key, e.Revision} }

// Change is a change of one key. Make it with Put or Delete.
type Change struct {
	Key   string
	Value []byte // nil: delete the key
	Lease Lease  // nil: the entry stays until it is deleted
}

// Put returns the change that sets a key's value.
func Put(key string, value []byte) Change {
	if value == nil {
		value = []byte{}
	}
	return Change{Key: key, Value: value}
}

// Under puts the changed entry under a lease.
func (c Change) Under(l Lease) Change {
	c.Lease = l
	return c
}

// Delete returns the change that deletes a key, if it exists.
func Delete(key string) Change { return Change{Key: key} }

// Lease limits the life of entries: they are deleted when it ends.
type Lease interface {
	// Renew restarts the lease's time; ErrEnded: it has ended already.
	Renew(ctx context.Context) error
	// Revoke ends the lease.
	Revoke(ctx context.Context) error
}

// Errors for errors.Is.
var (
	ErrChanged = errors.New("the store has changed meanwhile")
	ErrEnded   = errors.New("the lease has ended")
	ErrClosed  = errors.New("the store is closed")
)

// Rows are the entries below a prefix, with values of one type, encoded as JSON.
type Rows[T any] struct {
	Store  Store
	Prefix string // ends with a slash
}

// All returns the rows by key, without the prefix.
func (r Rows[T]) All(ctx context.Context) (out []T, err error) {
	entries, err := r.Store.List(ctx, r.Prefix)
	for _, e := range entries {
		var value T
		if bad := json.Unmarshal(e.Value, &value); bad != nil {
			return nil, fmt.Errorf("stored value of %s: %w", e.Key, bad)
		}
		out = append(out, value)
	}
	return out, err
}

// Put stores a row.
func (r Rows[T]) Put(ctx context.Context, key string, value T) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return r.Store.Commit(ctx, nil, Put(r.Prefix+key, b))
}

// Delete deletes a row, if it exists.
func (r Rows[T]) Delete(ctx context.Context, key string) error {
	return r.Store.Commit(ctx, nil, Delete(r.Prefix+key))
}

// Next returns the next number of a sequence that starts at 1. Each number is returned once only,
// even if what it numbered is deleted.
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
