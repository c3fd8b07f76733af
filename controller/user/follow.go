package user

import (
	"context"
	"encoding/json"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// rewatch is when the store is looked at anew that could not tell all that has happened.
const rewatch = time.Second

// Share makes the app that of a member of a cluster: entries that users have given to other members
// are known here, and are given to the switches whose master this member is, or becomes. It must be
// called before Start.
func (a *App) Share() { a.ctx, a.stop = context.WithCancel(context.Background()) }

// follow takes what other members keep, until the app ends.
func (a *App) follow() {
	for a.ctx.Err() == nil {
		there, events, err := a.rows.Store.Watch(a.ctx, a.rows.Prefix)
		if err == nil {
			a.replace(there)
			for batch := range events {
				for _, e := range batch {
					a.kept(e.Key)
				}
			}
		}
		select {
		case <-time.After(rewatch):
		case <-a.ctx.Done():
		}
	}
}

// replace takes all that is kept.
func (a *App) replace(there []store.Entry) {
	keys := map[string]bool{}
	for _, e := range there {
		keys[e.Key] = true
		a.kept(e.Key)
	}
	for _, f := range a.Flows() {
		if key := a.rows.Prefix + rowOf(f).key(); !keys[key] {
			a.kept(key)
		}
	}
}

// kept makes an entry what is kept now under a key: it is read again, as this member may have
// changed it itself meanwhile.
func (a *App) kept(key string) {
	a.changing.Lock()
	defer a.changing.Unlock()
	ctx, cancel := patience.Store.Context(a.ctx)
	defer cancel()
	e, err := a.rows.Store.Get(ctx, key)
	if err != nil {
		return // the store is looked at anew when it is there again
	}
	a.mu.Lock()
	id, had := a.keys[key]
	before := a.flows[id]
	a.mu.Unlock()
	if e.Gone() {
		if had {
			a.forget(id)
			if s := a.c.Switch(before.Switch); s != nil {
				_ = s.Send(remove(before)) // else whose master it is does
			}
		}
		return
	}
	var r row
	if json.Unmarshal(e.Value, &r) != nil || a.rows.Prefix+r.key() != key {
		return
	}
	f, err := r.flow()
	if err != nil || had && rowOf(before) == rowOf(f) {
		return
	}
	a.note(f)
	if s := a.c.Switch(f.Switch); s != nil {
		_ = s.Send(install(f))
	}
}
