package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/version"
)

// Options configure a member.
type Options struct {
	Store    store.Store
	Name     string
	Version  string // default: that of the program
	OpenFlow string // address for switches
	API      string // address for people
	Log      *slog.Logger

	// Beat is the heartbeat interval, the same for all members. Default: 200 ms.
	Beat time.Duration

	// Become makes this controller the master of a switch, Cease a standby. For each switch they
	// are called one after the other, in order. If Become fails, the switch is given up, unless it
	// has been lost meanwhile.
	Become func(dpid uint64, generation uint64) error
	Cease  func(dpid uint64)

	// Ready reports whether another member can take over a switch of this one unnoticed. If a
	// takeover is due, it is called once a beat until it returns true, or until the other member
	// takes the switch nevertheless, after 15 beats. It must not call the member. nil: always true.
	Ready func(dpid uint64) bool

	// Changed is called with the changes in the cluster, in order. It must be quick, and must not
	// call the member. nil: none.
	Changed func(Change)

	lease time.Duration // of the member's keys; for tests
}

// leaseTime is how long a failed member's keys stay.
const leaseTime = 10 * time.Second

// Errors for errors.Is.
var (
	ErrNameTaken = errors.New("a member of that name is alive")
	ErrDisplaced = errors.New("another controller has taken this member's name")
	ErrFormat    = errors.New("the cluster is of a newer version")
)

// Member is a controller's membership in a cluster.
type Member struct {
	o        Options
	instance string
	started  time.Time
	ctx      context.Context
	end      context.CancelCauseFunc
	group    sync.WaitGroup
	calls    sync.WaitGroup

	beating sync.Mutex // guards what follows; held during a beat
	lease   store.Lease
	renewed time.Time // last renewal of the lease
	beats   int64
	said    []uint64 // the connected switches last published
	waited  int      // beats since then

	mu          sync.Mutex // guards what follows
	engine      *engine
	own         int64     // revision of its last heartbeat, as reported by the store
	heard       time.Time // when the store last accepted a heartbeat, or said why not
	lines       map[uint64][]func()
	problem     string
	storeErrors uint64
	changed     chan struct{} // closed and replaced when something changes
}

// Join makes this controller a member of the cluster that shares a store, and returns when the
// other members know it. If a live member has the name, it fails with ErrNameTaken; the name of a
// failed one can be taken over. When ctx ends, the member stops without leaving, as if it had
// crashed; see Leave.
func Join(ctx context.Context, o Options) (*Member, error) {
	if err := CheckName(o.Name); err != nil {
		return nil, err
	}
	o.Version = cmp.Or(o.Version, version.Version)
	o.Beat = cmp.Or(o.Beat, 200*time.Millisecond)
	o.lease = cmp.Or(o.lease, max(leaseTime, 10*o.Beat))
	if o.Log == nil {
		o.Log = slog.Default()
	}
	m := &Member{o: o, instance: rand.Text()[:8], started: time.Now(), lines: map[uint64][]func(){},
		changed: make(chan struct{})}
	m.engine = newEngine(o.Name, m.instance)
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	m.heard = time.Now()
	m.ctx, m.end = context.WithCancelCause(ctx)
	m.group.Go(m.beat)
	m.group.Go(m.watch)
	return m, nil
}

func (m *Member) key() string { return MemberPrefix + m.o.Name }

// record returns the next heartbeat.
func (m *Member) record() []byte {
	m.beats++
	return encode(MemberRecord{Name: m.o.Name, Instance: m.instance, Version: m.o.Version, Started: m.started,
		OpenFlow: m.o.OpenFlow, API: m.o.API, Beat: m.beats, Format: format})
}

// checkFormat rejects a store whose records this version could misread, and sets the format of a
// new one. The condition is that the format has not changed.
func (m *Member) checkFormat(ctx context.Context) (is store.Condition, err error) {
	for {
		e, err := m.o.Store.Get(ctx, formatKey)
		if err != nil {
			return is, err
		}
		if e.Gone() {
			err := m.o.Store.Commit(ctx, []store.Condition{e.Is()}, store.Put(formatKey, encode(formatRecord{format})))
			if err != nil && !errors.Is(err, store.ErrChanged) { // another member was first
				return is, err
			}
			continue
		}
		var r formatRecord
		if err := json.Unmarshal(e.Value, &r); err != nil {
			return is, fmt.Errorf("%w than trivet %s: it cannot read %s in the store: %w", ErrFormat, m.o.Version,
				formatKey, err)
		}
		if r.Format > format {
			return is, fmt.Errorf("%w than trivet %s: its records have format %d, and this version knows up to %d; start the version that its other members run", ErrFormat, m.o.Version, r.Format, format)
		}
		return e.Is(), nil
	}
}

// enter takes the name, once no process with that name sends heartbeats any more.
func (m *Member) enter(ctx context.Context) error {
	if _, err := m.checkFormat(ctx); err != nil {
		return err
	}
	before, err := m.o.Store.Get(ctx, m.key())
	if err != nil {
		return err
	}
	if !before.Gone() {
		select {
		case <-time.After(2 * deadAfter * m.o.Beat):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if m.lease, err = m.o.Store.Grant(ctx, m.o.lease); err != nil {
		return err
	}
	m.renewed = time.Now()
	now, err := m.o.Store.Get(ctx, m.key())
	if err == nil && !now.Gone() && now.Revision != before.Revision {
		err = store.ErrChanged
	}
	var known store.Condition
	if err == nil {
		known, err = m.checkFormat(ctx)
	}
	if err == nil {
		err = m.o.Store.Commit(ctx, []store.Condition{now.Is(), known}, store.Put(m.key(), m.record()).Under(m.lease),
			store.Delete(connectedPrefix+m.o.Name), store.Delete(drainPrefix+m.o.Name))
	}
	if errors.Is(err, store.ErrChanged) {
		if _, newer := m.checkFormat(ctx); newer != nil {
			err = newer
		}
	}
	if errors.Is(err, store.ErrChanged) {
		var other MemberRecord
		_ = json.Unmarshal(now.Value, &other)
		err = fmt.Errorf("%w: %s, at %s, since %s", ErrNameTaken, m.o.Name, other.OpenFlow,
			other.Started.Format(time.DateTime))
	}
	if err != nil {
		_ = m.lease.Revoke(context.WithoutCancel(ctx))
	}
	return err
}

// do calls the engine, and carries out its actions.
func (m *Member) do(f func(*engine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.engine)
	for _, a := range m.engine.take() {
		switch {
		case a.commit != nil:
			m.group.Go(func() { m.commit(a.commit) })
		case a.say != "":
			m.o.Log.Info(a.say, append(a.args, "as", m.o.Name)...)
		case a.ask:
			m.call(a.dpid, func() {
				if m.o.Ready == nil || m.o.Ready(a.dpid) {
					m.do(func(e *engine) { e.ready(a.dpid, a.turn) })
				}
			})
		case a.become != 0:
			m.call(a.dpid, func() {
				if err := m.o.Become(a.dpid, uint64(a.become)); err != nil {
					m.do(func(e *engine) { e.failed(a.dpid, a.turn, err) })
				}
			})
		default:
			m.call(a.dpid, func() { m.o.Cease(a.dpid) })
		}
	}
	changes := m.engine.changes
	m.engine.changes = nil
	for _, c := range changes {
		m.happened(c)
	}
	if m.engine.ended != "" {
		m.end(fmt.Errorf("%w: %s", ErrDisplaced, m.engine.ended))
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// happened notifies watchers. mu must be held.
func (m *Member) happened(c Change) {
	if m.o.Changed != nil {
		m.o.Changed(c)
	}
}

// call calls f after all earlier calls for the switch. mu must be held.
func (m *Member) call(dpid uint64, f func()) {
	line, busy := m.lines[dpid]
	m.lines[dpid] = append(line, f)
	if busy {
		return
	}
	m.calls.Go(func() {
		for {
			m.mu.Lock()
			line := m.lines[dpid]
			if len(line) == 0 {
				delete(m.lines, dpid)
				m.mu.Unlock()
				return
			}
			m.lines[dpid] = line[1:]
			m.mu.Unlock()
			line[0]()
		}
	})
}

// commit makes a commit, whose result is learned from the watch. After a failure the next one is
// made with the next beat at the earliest.
func (m *Member) commit(c *commit) {
	if err := m.o.Store.Commit(m.ctx, c.conditions, c.changes...); err != nil && !m.pause() {
		return
	}
	m.do((*engine).committed)
}

// pause waits for a beat, and reports whether the member goes on.
func (m *Member) pause() bool {
	select {
	case <-time.After(m.o.Beat):
		return true
	case <-m.ctx.Done():
		return false
	}
}

// beat sends heartbeats.
func (m *Member) beat() {
	tick := time.NewTicker(m.o.Beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		err := m.sign()
		if m.ctx.Err() == nil {
			m.tell(err)
		}
	}
}

// sign sends a heartbeat, on condition that nobody else has taken the name.
func (m *Member) sign() error {
	m.beating.Lock()
	defer m.beating.Unlock()
	if time.Since(m.renewed) > m.o.lease/3 {
		switch err := m.lease.Renew(m.ctx); {
		case errors.Is(err, store.ErrEnded):
			if m.lease, err = m.o.Store.Grant(m.ctx, m.o.lease); err != nil {
				return err
			}
			m.said = nil
		case err != nil:
			return err
		}
		m.renewed = time.Now()
	}
	m.mu.Lock()
	revision, here := m.own, m.engine.here()
	m.mu.Unlock()
	if revision == 0 { // the watch is behind, or the lease has ended
		e, err := m.o.Store.Get(m.ctx, m.key())
		if err != nil {
			return err
		}
		var r MemberRecord
		if _ = json.Unmarshal(e.Value, &r); !e.Gone() && r.Instance != m.instance {
			return nil // the watch will report that, and end the member
		}
		revision = e.Revision
	}
	changes := []store.Change{store.Put(m.key(), m.record()).Under(m.lease)}
	if m.waited++; !slices.Equal(here, m.said) && (m.waited >= sayAfter || len(here) < fewSwitches) {
		changes = append(changes, store.Put(connectedPrefix+m.o.Name,
			encodeConnected(slices.Clone(here))).Under(m.lease))
	} else {
		here = nil
	}
	err := m.o.Store.Commit(m.ctx, []store.Condition{{Key: m.key(), Revision: revision}}, changes...)
	switch {
	case err == nil && len(changes) > 1:
		m.said, m.waited = here, 0
	case errors.Is(err, store.ErrChanged), errors.Is(err, store.ErrEnded):
		m.mu.Lock()
		m.own = 0 // the watch is behind, or the lease has ended: read before the next
		m.mu.Unlock()
		if errors.Is(err, store.ErrEnded) {
			m.renewed = time.Time{}
		}
		return nil
	}
	return err
}

// If there are many connected switches, they are published once in several beats.
const (
	sayAfter    = 5
	fewSwitches = 1000
)

// tell logs, once, that the store cannot be used, and that it can be used again.
func (m *Member) tell(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.problem
	if err != nil {
		m.storeErrors++
	}
	switch {
	case err != nil && was == "":
		m.o.Log.Error("the store of the cluster cannot be used: until then this member takes over no switch", "problem",
			err)
		m.happened(Change{What: ChangeStoreLost, Member: m.o.Name})
	case err == nil && was != "":
		m.o.Log.Info("the store of the cluster can be used again")
		m.happened(Change{What: ChangeStoreBack, Member: m.o.Name})
	}
	m.heard = time.Now()
	if m.problem = ""; err != nil {
		m.problem = "the store cannot be used: " + err.Error()
	}
}

// watch follows the store, and starts over when changes were lost.
func (m *Member) watch() {
	store.Follow(m.ctx, m.o.Store, prefix, m.o.Beat, nil, func(there []store.Entry) {
		m.do(func(e *engine) {
			m.own = 0
			m.note(there)
			e.snapshot(there)
		})
	}, func(events []store.Event) {
		m.do(func(e *engine) {
			m.note(events)
			e.events(events)
		})
	})
}

// note records the revision of the member's own heartbeat. mu must be held.
func (m *Member) note(events []store.Event) {
	for _, e := range events {
		if e.Key == m.key() {
			if m.own = e.Revision; e.Gone() {
				m.own = 0
			}
		}
	}
}

// Connected records that a switch has connected to this controller, which is its standby.
func (m *Member) Connected(dpid uint64) { m.do(func(e *engine) { e.connected(dpid) }) }

// Lost records that the connection has ended. No function of Options is called for the switch until
// it connects again.
func (m *Member) Lost(dpid uint64) { m.do(func(e *engine) { e.lost(dpid) }) }

// Deposed records that a switch has reported a later master than this member.
func (m *Member) Deposed(dpid uint64) { m.do(func(e *engine) { e.deposed(dpid) }) }

// Status returns the cluster as this member knows it.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.engine.status()
	s.Problem = cmp.Or(s.Problem, m.cutOff())
	return s
}

// CutOff reports whether the member cannot use the store, so that what it knows of others may be
// out of date.
func (m *Member) CutOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cutOff() != ""
}

// cutOff returns why the member cannot use the store; mu must be held.
func (m *Member) cutOff() string {
	// If packets are dropped silently, the store's own timeout is too long: by then the others
	// consider this member dead.
	if silent := time.Since(m.heard); m.problem == "" && silent > 2*deadAfter*m.o.Beat {
		return fmt.Sprintf("the store has not answered for %s", silent.Round(100*time.Millisecond))
	}
	return m.problem
}

// Alive lists the live members.
func (m *Member) Alive() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.alive()
}

// Name returns the member's name.
func (m *Member) Name() string { return m.o.Name }

// Context returns a context that ends with the member.
func (m *Member) Context() context.Context { return m.ctx }

// Done is closed when the member has ended: it was told to, or another process has its name (Err).
func (m *Member) Done() <-chan struct{} { return m.ctx.Done() }

// Err returns why it has ended.
func (m *Member) Err() error { return context.Cause(m.ctx) }

// Move requests that a member take over a switch; it must be alive and connected to the switch.
func (m *Member) Move(ctx context.Context, dpid uint64, to string) error {
	m.mu.Lock()
	err := m.engine.mayMove(dpid, to)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.o.Store.Commit(ctx, nil, store.Put(WantedKey(dpid), encode(WantedRecord{Member: to})))
}

// Drain requests that others take over all switches of a member, and keeps it from taking any; undo
// lets it take switches again.
func (m *Member) Drain(ctx context.Context, name string, undo bool) error {
	m.mu.Lock()
	err := m.engine.mayDrain(name)
	m.mu.Unlock()
	switch {
	case undo:
		return m.o.Store.Commit(ctx, nil, store.Delete(drainPrefix+name))
	case err != nil:
		return err
	}
	return m.o.Store.Commit(ctx, nil, store.Put(drainPrefix+name, nil))
}

// Leave hands over the member's switches, waits until the others have those that they are connected
// to, or until ctx ends, and ends the member.
func (m *Member) Leave(ctx context.Context) error {
	m.beating.Lock()
	lease := m.lease
	m.beating.Unlock()
	err := m.o.Store.Commit(ctx, nil, store.Put(drainPrefix+m.o.Name, nil).Under(lease))
	for err == nil {
		m.mu.Lock()
		left, changed := m.engine.shared(), m.changed
		m.mu.Unlock()
		if left == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = fmt.Errorf("%d switches were not taken over in time: %w", left, ctx.Err())
		case <-m.ctx.Done():
			return m.Err()
		}
	}
	m.end(nil)
	m.group.Wait()
	m.calls.Wait()
	m.beating.Lock()
	defer m.beating.Unlock()
	return errors.Join(err, m.lease.Revoke(context.WithoutCancel(ctx)))
}

// Wait waits for the goroutines of a member that has ended.
func (m *Member) Wait() {
	<-m.ctx.Done()
	m.group.Wait()
	m.calls.Wait()
}
