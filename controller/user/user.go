// Package user is the app for flow entries added by users, which it keeps in the switches until
// they are deleted.
//
// An entry is accepted, and stored, once the switch has confirmed it. It is installed again when
// the switch reconnects without it, and when the controller restarts with the same store. An entry
// with a timeout ends when that expires, and is not installed again.
//
// The entries have a cookie of their own, 0x74720009 followed by the entry's number.
package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/openflow"
)

// Cookie identifies users' entries. Its lower 32 bits are the entry's number.
const Cookie = 0x7472_0009 << 32

// maxFlows limits the stored entries; maxID is the largest number that fits the cookie.
const (
	maxFlows = 100_000
	maxID    = 1<<32 - 1
)

// Flow is a user's flow entry. Its FlowMod must not be changed.
type Flow struct {
	ID      int64
	Switch  uint64
	Flow    *openflow.FlowMod
	Created time.Time
}

// Errors of Add and Delete, for errors.Is. Their texts are for the user.
var (
	ErrNotConnected = errors.New("the switch is not connected")
	ErrRefused      = errors.New("the switch refuses")
	ErrTaken        = errors.New("there is an entry of an app with that table, priority and match")
	ErrNotFound     = errors.New("there is no such entry")
	ErrFull         = fmt.Errorf("there are already %d entries of users", maxFlows)
)

// App is the app user. Make it with New.
type App struct {
	controller.Base
	c    *controller.Controller
	rows store.Rows[row]
	done sync.WaitGroup
	ctx  context.Context // in a cluster: cancelled by Stop; nil: no cluster
	stop context.CancelFunc

	changing sync.Mutex // one change at a time; held while a switch is asked

	mu    sync.Mutex // guards what follows
	flows map[int64]Flow
	at    map[place]int64
	keys  map[string]int64 // as in the store
	given *Flow            // being installed in a switch
	over  bool             // it has expired there already
}

// place identifies an entry in a switch: a new one at the same place replaces it.
type place struct {
	dpid uint64
	key  controller.RuleKey
}

func placeOf(f Flow) place { return place{f.Switch, controller.KeyOf(f.Flow)} }

// New returns the app with the entries of a store.
func New(s store.Store) (*App, error) {
	a := &App{rows: store.Rows[row]{Store: s, Prefix: "user/flow/"}, flows: map[int64]Flow{}, at: map[place]int64{},
		keys: map[string]int64{}}
	rows, err := a.rows.All(context.Background())
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		f, err := r.flow()
		if err != nil {
			slog.Default().Error("an entry in the database cannot be read and is skipped", "id", r.ID, "flow", r.Flow,
				"error", err)
			continue
		}
		a.note(f)
	}
	return a, nil
}

// Name is "user".
func (a *App) Name() string { return "user" }

// Start passes the controller to the app.
func (a *App) Start(c *controller.Controller) error {
	a.c = c
	if a.ctx != nil {
		a.done.Go(a.follow)
	}
	return nil
}

// Stop stops the app. Installed entries stay.
func (a *App) Stop() {
	if a.ctx != nil {
		a.stop()
	}
	a.done.Wait()
}

// SwitchUp brings the users' entries in the switch up to date with the store.
func (a *App) SwitchUp(s *controller.Switch) {
	rules := s.Rules(Cookie, apps.CookieMask, nil)
	var want []*openflow.FlowMod
	for _, f := range a.Flows() {
		if f.Switch != s.DPID() {
			continue
		}
		if hasTimeout(f.Flow) && rules.Flow(controller.KeyOf(f.Flow)) == nil {
			a.ended(f.ID) // it expired while the switch was disconnected
			continue
		}
		want = append(want, install(f))
	}
	_ = rules.Replace(want, nil)
}

// FlowRemoved deletes an entry whose timeout has expired.
func (a *App) FlowRemoved(s *controller.Switch, m *openflow.FlowRemoved) {
	timeout := m.Reason == openflow.RemovedIdleTimeout || m.Reason == openflow.RemovedHardTimeout
	if m.Cookie&apps.CookieMask == Cookie && timeout {
		a.ended(int64(m.Cookie &^ apps.CookieMask))
	}
}

// Flows returns the entries by number.
func (a *App) Flows() []Flow {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Flow, 0, len(a.flows))
	out = slices.AppendSeq(out, maps.Values(a.flows))
	slices.SortFunc(out, func(x, y Flow) int { return cmp.Compare(x.ID, y.ID) })
	return out
}

// Add installs an entry in a switch and stores it, replacing one with the same table, priority and
// match. If the switch refuses it, nothing is stored, and the previous entry stays.
func (a *App) Add(ctx context.Context, dpid uint64, m *openflow.FlowMod) (Flow, error) {
	a.changing.Lock()
	defer a.changing.Unlock()
	s := a.c.Switch(dpid)
	if s == nil && a.c.Seen(dpid) != nil {
		return Flow{}, controller.ErrStandby
	}
	if s == nil {
		return Flow{}, ErrNotConnected
	}
	f := Flow{Switch: dpid, Flow: m, Created: time.Now()}
	if hasTimeout(m) {
		m.Flags |= openflow.FlowSendFlowRem
	}
	before, had := a.find(placeOf(f))
	if err := a.free(ctx, s, placeOf(f), had); err != nil {
		return Flow{}, err
	}
	var err error
	if f.ID, err = a.keep(ctx, f, before.ID); err != nil {
		return Flow{}, err
	}
	a.give(&f)
	if err := s.Do(ctx, install(f)); err != nil {
		_ = s.Send(instead(f, before)) // without an answer it is unknown whether the switch has it
		if had {                       // it may have expired since
			a.note(before)
		}
		a.give(nil)
		return Flow{}, errors.Join(explain(err), a.unkeep(f, before))
	}
	a.note(f)
	if over := a.give(nil); over {
		a.ended(f.ID)
		return f, nil
	}
	if a.c.Switch(dpid) != s { // it has reconnected meanwhile, and got what was stored then
		if again := a.c.Switch(dpid); again != nil {
			err = again.Do(ctx, install(f))
		}
	}
	return f, explain(err)
}

// Delete deletes an entry. A disconnected switch loses it when it connects.
func (a *App) Delete(ctx context.Context, id int64) (Flow, error) {
	a.changing.Lock()
	defer a.changing.Unlock()
	a.mu.Lock()
	f, had := a.flows[id]
	a.mu.Unlock()
	if !had {
		return Flow{}, ErrNotFound
	}
	if err := a.rows.Delete(ctx, rowOf(f).key()); err != nil {
		return Flow{}, err
	}
	a.forget(id)
	s := a.c.Switch(f.Switch)
	if s == nil {
		return f, nil
	}
	return f, explain(s.Do(ctx, remove(f)))
}

// free returns an error if an app has an entry at a place.
func (a *App) free(ctx context.Context, s *controller.Switch, p place, had bool) error {
	if had {
		return nil
	}
	a.mu.Lock()
	full := len(a.flows) >= maxFlows
	a.mu.Unlock()
	if full {
		return ErrFull
	}
	ask := openflow.AllFlows()
	ask.Table, ask.Match = p.key.Table, p.key.Match
	reply, err := s.Request(ctx, &openflow.MultipartRequest{Body: ask})
	if err != nil {
		return explain(err)
	}
	entries, _ := reply.(*openflow.MultipartReply).Body.(openflow.FlowStatsList)
	for i := range entries {
		e := &entries[i]
		if e.Priority == p.key.Priority && e.Match == p.key.Match && e.Cookie&apps.CookieMask != Cookie {
			return ErrTaken
		}
	}
	return nil
}

// keep stores an entry and returns its number: that of the entry it replaces, if any.
func (a *App) keep(ctx context.Context, f Flow, before int64) (id int64, err error) {
	if f.ID = before; before == 0 {
		if f.ID, err = store.Next(ctx, a.rows.Store, "user/flow-number"); err != nil {
			return 0, err
		}
		if f.ID > maxID {
			return 0, errors.New("all numbers of entries have been used")
		}
	}
	return f.ID, a.rows.Put(ctx, rowOf(f).key(), rowOf(f))
}

// unkeep undoes keep, even if the caller no longer waits.
func (a *App) unkeep(f, before Flow) error {
	if before.Flow != nil {
		return a.rows.Put(context.Background(), rowOf(before).key(), rowOf(before))
	}
	return a.rows.Delete(context.Background(), rowOf(f).key())
}

// install returns the message that installs an entry.
func install(f Flow) *openflow.FlowMod {
	m := *f.Flow
	m.Command, m.Cookie, m.CookieMask = openflow.FlowAdd, Cookie|uint64(f.ID), 0
	return &m
}

// remove returns the message that removes an entry.
func remove(f Flow) *openflow.FlowMod {
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, f.Flow.Priority, f.Flow.Match)
	m.Table, m.Cookie, m.CookieMask = f.Flow.Table, Cookie, apps.CookieMask
	return m
}

// instead returns the message that restores what an entry has replaced.
func instead(f, before Flow) *openflow.FlowMod {
	if before.Flow != nil {
		return install(before)
	}
	return remove(f)
}

func (a *App) find(p place) (Flow, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, had := a.at[p]
	return a.flows[id], had
}

func (a *App) note(f Flow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flows[f.ID], a.at[placeOf(f)], a.keys[a.rows.Prefix+rowOf(f).key()] = f, f.ID, f.ID
}

func (a *App) forget(id int64) (f Flow, had bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, had = a.flows[id]; had {
		delete(a.flows, id)
		delete(a.at, placeOf(f))
		delete(a.keys, a.rows.Prefix+rowOf(f).key())
	}
	return f, had
}

// give sets the entry being installed, nil: none, and reports whether the previous one has expired
// meanwhile.
func (a *App) give(f *Flow) (over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	over = a.over
	a.given, a.over = f, false
	return over
}

// isGiven reports whether the entry with a number is being installed. If so, its expiry is
// recorded; before the installation the number is that of the entry it replaces.
func (a *App) isGiven(id int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.given
	if f == nil || f.ID != id {
		return false
	}
	a.over = a.over || hasTimeout(f.Flow) && time.Since(f.Created) >= life(f.Flow)
	return true
}

// ended deletes an expired entry, also from the store, without making the switch wait.
func (a *App) ended(id int64) {
	if a.isGiven(id) {
		return
	}
	f, had := a.forget(id)
	if !had {
		return
	}
	a.done.Go(func() {
		a.changing.Lock()
		defer a.changing.Unlock()
		if _, taken := a.find(placeOf(f)); taken { // a newer entry has replaced it
			return
		}
		if err := a.rows.Delete(context.Background(), rowOf(f).key()); err != nil {
			a.c.Log().Error("an entry that has expired could not be deleted from the database", "id", id, "error", err)
		}
	})
}

func hasTimeout(m *openflow.FlowMod) bool { return m.IdleTimeout != 0 || m.HardTimeout != 0 }

// life is the minimum time for which a switch keeps an entry with a timeout.
func life(m *openflow.FlowMod) time.Duration {
	return time.Second * time.Duration(min(cmp.Or(m.IdleTimeout, m.HardTimeout), cmp.Or(m.HardTimeout, m.IdleTimeout)))
}

// explain explains a switch's error.
func explain(err error) error {
	var refusal *openflow.Error
	switch {
	case errors.As(err, &refusal):
		return fmt.Errorf("%w: %v", ErrRefused, refusal.Code)
	case errors.Is(err, controller.ErrGone):
		return ErrNotConnected
	}
	return err
}
