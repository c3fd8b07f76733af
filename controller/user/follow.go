package user

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// Share makes the app part of a cluster: entries that users add and delete at other members are
// known here, and are installed in the switches of which this member is or becomes master. Call it
// before Start.
func (a *App) Share() { a.ctx, a.stop = context.WithCancel(context.Background()) }

// follow applies changes made by other members, until the app stops.
func (a *App) follow() {
	known := func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Collect(maps.Keys(a.keys))
	}
	store.FollowKeys(a.ctx, a.rows.Store, a.rows.Prefix, known, func(key string) {
		if err := a.sync(key); err != nil && a.ctx.Err() == nil {
			a.c.Log().Error("a stored entry cannot be read; changes of other members are no longer applied", "key", key,
				"error", err)
		}
	})
}

// sync brings an entry up to date with the store's value for a key. The value is read again, as
// this member may have changed it itself.
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
				_ = s.Send(remove(before)) // an error: the switch has disconnected, and loses it when it reconnects
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
		_ = s.Send(install(f)) // an error: the switch has disconnected, and gets it when it reconnects
	}
	return nil
}
