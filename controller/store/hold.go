package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Held is a key that this process alone has.
type Held struct {
	key   string
	who   []byte
	ttl   time.Duration
	lease Lease
	store Store
}

// ErrHeld is that somebody else has a key.
var ErrHeld = errors.New("another has it")

// Hold takes a key for this process; who says for people what process it is. Whoever tries the
// same meanwhile is told that (ErrHeld). It is let go when it has not been renewed for ttl.
func Hold(ctx context.Context, s Store, key, who string, ttl time.Duration) (*Held, error) {
	l, err := s.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	h := &Held{key: key, who: []byte(who), ttl: ttl, lease: l, store: s}
	if err := h.take(ctx); err != nil {
		return nil, errors.Join(err, l.Revoke(ctx))
	}
	return h, nil
}

// take puts the key, if nobody has it.
func (h *Held) take(ctx context.Context) error {
	err := h.store.Commit(ctx, []Condition{{Key: h.key}}, Put(h.key, h.who).Under(h.lease))
	if !errors.Is(err, ErrChanged) {
		return err
	}
	now, err := h.store.Get(ctx, h.key)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrHeld, now.Value)
}

// Keep renews it, three times in its time, until the context ends, and lets it go then. It is an
// error that it could not be renewed in time: then another may have it.
func (h *Held) Keep(ctx context.Context) error {
	tick := time.NewTicker(h.ttl / 3)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.lease.Revoke(context.WithoutCancel(ctx))
		}
		switch err := h.lease.Renew(ctx); {
		case err == nil:
			renewed = time.Now()
		case ctx.Err() != nil:
		case errors.Is(err, ErrEnded) || time.Since(renewed) > h.ttl:
			return fmt.Errorf("%s was not renewed within %v: %w", h.key, h.ttl, err)
		}
	}
}
