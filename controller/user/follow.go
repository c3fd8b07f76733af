package user

import (
	"context"
	"encoding/json"

	"trivet.dev/trivet/controller/store"
)

// Follow takes over, until the context ends, what users add and delete at other members of the
// cluster, which share the store: switches of which this controller is master are changed.
func (a *App) Follow(ctx context.Context) {
	known := func() (keys []string) {
		for _, f := range a.Flows() {
			keys = append(keys, a.rows.Prefix+rowOf(f).key())
		}
		return keys
	}
	store.Follow(ctx, a.rows.Store, a.rows.Prefix, known, func(key string) {
		if err := a.sync(ctx, key); err != nil && ctx.Err() == nil {
			a.c.Log().Error("an entry that is kept cannot be read, and what another member has changed is not followed", "key", key, "error", err)
		}
	})
}

// sync makes an entry what the store has now, which this member may have changed itself.
func (a *App) sync(ctx context.Context, key string) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	e, err := a.rows.Store.Get(ctx, key)
	if err != nil {
		return err
	}
	before, had := a.kept(key)
	if e.Gone() {
		if had {
			a.forget(before.ID)
			if s := a.c.Switch(before.Switch); s != nil {
				_ = s.Send(remove(before)) // an error: the switch is gone, and loses it when it comes back
			}
		}
		return nil
	}
	var r row
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return err
	}
	f, err := r.flow()
	if err != nil || had && rowOf(before) == rowOf(f) {
		return err
	}
	if had {
		a.forget(before.ID)
	}
	a.note(f)
	if s := a.c.Switch(f.Switch); s != nil {
		_ = s.Send(install(f)) // an error: the switch is gone, and is given it when it comes back
	}
	return nil
}

// kept returns the entry that is kept under a key.
func (a *App) kept(key string) (Flow, bool) {
	for _, f := range a.Flows() {
		if a.rows.Prefix+rowOf(f).key() == key {
			return f, true
		}
	}
	return Flow{}, false
}
