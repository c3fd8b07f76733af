package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Held is a key that this process alone has.
type Held struct {
	key   string
	who   []byte
	ttl   time.Duration
	lease Lease
	store Store

	revision int64 // of the key
	renewed  time.Time
}

// Is is the condition that it still is this process's: what is committed on that is not done by who
// has lost it without knowing.
func (h *Held) Is() Condition { return Condition{h.key, h.revision} }

// ErrHeld is that somebody else has a key.
var ErrHeld = errors.New("another has it")

// Hold takes a key for this process; who says for people what process it is. Whoever tries the
// same meanwhile is told that (ErrHeld). It is let go when it has not been renewed for ttl.
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

// take puts the key, if nobody has it.
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

// Await is Hold that waits until nobody else has the key, or the context ends.
func Await(ctx context.Context, s Store, key, who string, ttl time.Duration) (*Held, error) {
	for {
		h, err := awaitOnce(ctx, s, key, who, ttl)
		if err == nil || ctx.Err() != nil {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(ttl / 3): // the store cannot be reached, or others were as quick
		}
	}
}

// awaitOnce takes the key once it is seen that nobody has it.
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

// Keep renews it, three times in its time, until the context ends, and lets it go then. It is an
// error that it could not be renewed in time: then another may have it.
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
		limited, cancel := context.WithDeadline(ctx, h.renewed.Add(h.ttl)) // a store that does not answer
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
