package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Held is a key held by this process alone.
type Held struct {
	key   string
	who   []byte
	ttl   time.Duration
	lease Lease
	store Store

	revision int64 // of the key
	renewed  time.Time
}

// Is returns the condition that this process still holds the key. Use it in commits, so that they
// fail if the key has been lost unnoticed.
func (h *Held) Is() Condition { return Condition{h.key, h.revision} }

// ErrHeld means that another process holds the key.
var ErrHeld = errors.New("another has it")

// Hold acquires a key for this process, which who describes to people; ErrHeld: another process
// holds it. The key is released if it is not renewed for ttl.
func Hold(ctx context.Context, s Store, key, who string, ttl time.Duration) (*Held, error) {
	begun := time.Now()
	l, err := s.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	h := &Held{key: key, who: []byte(who), ttl: ttl, lease: l, store: s, renewed: begun}
	if err := h.take(ctx); err != nil {
		return nil, errors.Join(err, l.Revoke(ctx))
	}
	return h, nil
}

// take puts the key if it does not exist.
func (h *Held) take(ctx context.Context) error {
	err := h.store.Commit(ctx, []Condition{{Key: h.key}}, Put(h.key, h.who).Under(h.lease))
	if err != nil && !errors.Is(err, ErrChanged) {
		return err
	}
	now, bad := h.store.Get(ctx, h.key)
	switch {
	case bad != nil:
		return bad
	case err != nil || string(now.Value) != string(h.who):
		return fmt.Errorf("%w: %s", ErrHeld, now.Value)
	}
	h.revision = now.Revision
	return nil
}

// Await is Hold, but waits until nobody else holds the key, or ctx ends.
func Await(ctx context.Context, s Store, key, who string, ttl time.Duration) (*Held, error) {
	for {
		h, err := awaitOnce(ctx, s, key, who, ttl)
		if err == nil || ctx.Err() != nil {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(ttl / 3): // the store cannot be reached, or another process was faster
		}
	}
}

// awaitOnce acquires the key once nobody holds it.
func awaitOnce(ctx context.Context, s Store, key, who string, ttl time.Duration) (*Held, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	there, events, err := s.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	held := slices.ContainsFunc(there, func(e Entry) bool { return e.Key == key })
	for held {
		together, more := <-events
		if !more {
			return nil, errors.Join(ErrHeld, ctx.Err())
		}
		for _, e := range together {
			if e.Key == key {
				held = !e.Gone()
			}
		}
	}
	return Hold(ctx, s, key, who, ttl)
}

// Keep renews the key, three times per ttl, until ctx ends, and then releases it. It fails if the
// key could not be renewed in time: then another process may hold it.
func (h *Held) Keep(ctx context.Context) error {
	tick := time.NewTicker(h.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.lease.Revoke(context.WithoutCancel(ctx))
		}
		asked := time.Now()
		limited, cancel := context.WithDeadline(ctx, h.renewed.Add(h.ttl)) // in case the store does not answer
		err := h.lease.Renew(limited)
		cancel()
		switch {
		case err == nil:
			h.renewed = asked
		case ctx.Err() != nil:
		case errors.Is(err, ErrEnded):
			return fmt.Errorf("%s was not renewed within %v: %w", h.key, h.ttl, err)
		case time.Since(h.renewed) >= h.ttl:
			return fmt.Errorf("%s was not renewed within %v: %w: %w", h.key, h.ttl, ErrEnded, err)
		}
	}
}
