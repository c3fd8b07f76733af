package user

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// Share makes the app that of a member of a cluster: entries that users add and delete at other
// members are known here, and are given to the switches of which this member is master, or becomes
// it. It must be called before Start.
func (a *App) Share() { a.ctx, a.stop = context.WithCancel(context.Background()) }

// follow takes what other members keep, until the app ends.
func (a *App) follow() {
	known := func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Collect(maps.Keys(a.keys))
	}
	store.FollowKeys(a.ctx, a.rows.Store, a.rows.Prefix, known, func(key string) {
		if err := a.sync(key); err != nil && a.ctx.Err() == nil {
			a.c.Log().Error("an entry that is kept cannot be read, and what another member has changed is not followed", "key", key, "error", err)
		}
	})
}

// sync makes an entry what is kept now under a key: it is read again, as this member may have
// changed it itself meanwhile.
func (a *App) sync(key string) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	ctx, cancel := patience.Store.Context(a.ctx)
	defer cancel()
	e, err := a.rows.Store.Get(ctx, key)
	if err != nil {
		return err
	}
	a.mu.Lock()
	id, had := a.keys[key]
	before := a.flows[id]
	a.mu.Unlock()
	if e.Gone() {
		if had {
			a.forget(id)
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
		a.forget(id)
	}
	a.note(f)
	if s := a.c.Switch(f.Switch); s != nil {
		_ = s.Send(install(f)) // an error: the switch is gone, and is given it when it comes back
	}
	return nil
}
