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

// Options say what a member is.
type Options struct {
	Store    store.Store
	Name     string
	Version  string // default: the program's
	OpenFlow string // where switches connect to it
	API      string // where people ask it
	Log      *slog.Logger

	// Beat is the time between two signs of life: the same for all members. Default: 200 ms.
	Beat time.Duration

	// Become makes this controller the master of a switch, Cease a standby. Of each switch they are
	// called one after the other, in order. That Become fails gives the switch up, unless it has
	// been lost meanwhile.
	Become func(dpid uint64, generation uint64) error
	Cease  func(dpid uint64)

	// Ready reports whether another member may become master of a switch of this one without
	// anybody's noticing. It is asked once a beat when another is to, until it can or the other
	// takes the switch nevertheless, after 15 beats. It must not ask the member. nil: always.
	Ready func(dpid uint64) bool

	// Changed is told what happens in the cluster, in order. It must be quick, and not ask the
	// member. nil: nobody is.
	Changed func(Change)

	lease time.Duration // of what says that it is there; for tests
}

// leaseTime is how long what a member says of itself is kept when it is not there any more.
const leaseTime = 10 * time.Second

// Errors to be told apart by errors.Is.
var (
	ErrNameTaken = errors.New("a member of that name is alive")
	ErrDisplaced = errors.New("another controller has this member's name by now")
	ErrFormat    = errors.New("the cluster is of a newer version")
)

// Member is a controller's part in a cluster.
type Member struct {
	o        Options
	instance string
	started  time.Time
	ctx      context.Context
	end      context.CancelCauseFunc
	group    sync.WaitGroup
	calls    sync.WaitGroup

	beating sync.Mutex // of what follows, while a beat is made
	lease   store.Lease
	renewed time.Time // when the lease was last
	beats   int64
	said    []uint64 // the switches that it has said to be connected
	waited  int      // beats since it has

	mu          sync.Mutex // of what follows
	engine      *engine
	own         int64     // revision of its sign of life, as the store tells
	heard       time.Time // the store has last taken a sign of life, or said why not
	lines       map[uint64][]func()
	problem     string
	storeErrors uint64
	changed     chan struct{} // closed and made anew when something changes
}

// Join makes this controller a member of the cluster that shares a store. It returns when all know
// it. Another live member of that name is an error (ErrNameTaken); one that has died may be
// followed by another of its name at once. When ctx ends the member stops, as if it died; see
// Leave.
func Join(ctx context.Context, o Options) (*Member, error) {
	if err := CheckName(o.Name); err != nil {
		return nil, err
	}
	if o.Version == "" {
		o.Version = version.Version
	}
	if o.Beat == 0 {
		o.Beat = 200 * time.Millisecond
	}
	if o.lease == 0 {
		o.lease = max(leaseTime, 10*o.Beat)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	m := &Member{o: o, instance: rand.Text()[:8], started: time.Now(), lines: map[uint64][]func(){}, changed: make(chan struct{})}
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

// record is its next sign of life.
func (m *Member) record() []byte {
	m.beats++
	return encode(MemberRecord{Name: m.o.Name, Instance: m.instance, Version: m.o.Version, Started: m.started,
		OpenFlow: m.o.OpenFlow, API: m.o.API, Beat: m.beats, Format: format})
}

// checkFormat refuses a store whose records this version could misunderstand, and notes the format
// of one that has none. The condition is that it is still that.
func (m *Member) checkFormat(ctx context.Context) (is store.Condition, err error) {
	for {
		e, err := m.o.Store.Get(ctx, formatKey)
		if err != nil {
			return is, err
		}
		if e.Gone() {
			err := m.o.Store.Commit(ctx, []store.Condition{e.Is()}, store.Put(formatKey, encode(formatRecord{format})))
			if err != nil && !errors.Is(err, store.ErrChanged) { // another was first
				return is, err
			}
			continue
		}
		var r formatRecord
		if err := json.Unmarshal(e.Value, &r); err != nil {
			return is, fmt.Errorf("%w than trivet %s: it cannot read %s in the store: %w", ErrFormat, m.o.Version, formatKey, err)
		}
		if r.Format > format {
			return is, fmt.Errorf("%w than trivet %s: its records have format %d, and this version knows up to %d; start the version that its other members run", ErrFormat, m.o.Version, r.Format, format)
		}
		return e.Is(), nil
	}
}

// enter takes the name, when nobody of that name shows a sign of life any more.
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
		err = fmt.Errorf("%w: %s, at %s, since %s", ErrNameTaken, m.o.Name, other.OpenFlow, other.Started.Format(time.DateTime))
	}
	if err != nil {
		_ = m.lease.Revoke(context.WithoutCancel(ctx))
	}
	return err
}

// do lets the engine decide, and does what it says.
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

// happened tells whoever watches. mu must be held.
func (m *Member) happened(c Change) {
	if m.o.Changed != nil {
		m.o.Changed(c)
	}
}

// call calls f after all that has been called of a switch before. mu must be held.
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

// commit makes a commit. What became of it is told by the watch; one that has failed is followed by
// another with the next beat at the earliest.
func (m *Member) commit(c *commit) {
	if err := m.o.Store.Commit(m.ctx, c.conditions, c.changes...); err != nil && !m.pause() {
		return
	}
	m.do((*engine).committed)
}

// pause waits for a beat, and says whether the member goes on.
func (m *Member) pause() bool {
	select {
	case <-time.After(m.o.Beat):
		return true
	case <-m.ctx.Done():
		return false
	}
}

// beat gives signs of life.
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

// sign gives a sign of life, on condition that nobody else has the name.
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
	if revision == 0 { // the watch has not told yet, or the lease has ended
		e, err := m.o.Store.Get(m.ctx, m.key())
		if err != nil {
			return err
		}
		var r MemberRecord
		if _ = json.Unmarshal(e.Value, &r); !e.Gone() && r.Instance != m.instance {
			return nil // the watch tells, and the member ends
		}
		revision = e.Revision
	}
	changes := []store.Change{store.Put(m.key(), m.record()).Under(m.lease)}
	if m.waited++; !slices.Equal(here, m.said) && (m.waited >= sayAfter || len(here) < fewSwitches) {
		changes = append(changes, store.Put(connectedPrefix+m.o.Name, encodeConnected(slices.Clone(here))).Under(m.lease))
	} else {
		here = nil
	}
	err := m.o.Store.Commit(m.ctx, []store.Condition{{Key: m.key(), Revision: revision}}, changes...)
	switch {
	case err == nil && len(changes) > 1:
		m.said, m.waited = here, 0
	case errors.Is(err, store.ErrChanged), errors.Is(err, store.ErrEnded):
		m.mu.Lock()
		m.own = 0 // the watch is behind, or the lease has ended: look before the next
		m.mu.Unlock()
		if errors.Is(err, store.ErrEnded) {
			m.renewed = time.Time{}
		}
		return nil
	}
	return err
}

// Who is connected is said at most every few beats where it is many.
const (
	sayAfter    = 5
	fewSwitches = 1000
)

// tell says, once, that the store cannot be used, and that it can again.
func (m *Member) tell(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.problem
	if err != nil {
		m.storeErrors++
	}
	switch {
	case err != nil && was == "":
		m.o.Log.Error("the store of the cluster cannot be used: this member takes no switch until it can", "problem", err)
		m.happened(Change{What: ChangeStoreLost, Member: m.o.Name})
	case err == nil && was != "":
		m.o.Log.Info("the store of the cluster is there again")
		m.happened(Change{What: ChangeStoreBack, Member: m.o.Name})
	}
	m.heard = time.Now()
	if m.problem = ""; err != nil {
		m.problem = "the store cannot be used: " + err.Error()
	}
}

// watch follows the store, and begins anew when it cannot tell all.
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

// note keeps the revision of the member's own sign of life. mu must be held.
func (m *Member) note(events []store.Event) {
	for _, e := range events {
		if e.Key == m.key() {
			if m.own = e.Revision; e.Gone() {
				m.own = 0
			}
		}
	}
}

// Connected is that a switch has connected to this controller, which is its standby.
func (m *Member) Connected(dpid uint64) { m.do(func(e *engine) { e.connected(dpid) }) }

// Lost is that the connection has ended. Of what follows for the switch nothing is called before it
// is connected again.
func (m *Member) Lost(dpid uint64) { m.do(func(e *engine) { e.lost(dpid) }) }

// Deposed is that a switch says that it has a later master than this member.
func (m *Member) Deposed(dpid uint64) { m.do(func(e *engine) { e.deposed(dpid) }) }

// Status is what this member knows.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.engine.status()
	s.Problem = cmp.Or(s.Problem, m.cutOff())
	return s
}

// CutOff reports whether the member cannot use the store: what it knows of others may be old.
func (m *Member) CutOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cutOff() != ""
}

// cutOff says why the member cannot use the store; mu must be held.
func (m *Member) cutOff() string {
	// Where packets are lost without a word the store's own limit is long: the others have taken
	// this member for dead by then.
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

// Name is the member's.
func (m *Member) Name() string { return m.o.Name }

// Context ends with the member.
func (m *Member) Context() context.Context { return m.ctx }

// Done is closed when the member has ended: it was told to, or another has its name (Err).
func (m *Member) Done() <-chan struct{} { return m.ctx.Done() }

// Err is why it has ended.
func (m *Member) Err() error { return context.Cause(m.ctx) }

// Move asks for a switch to be taken over by a member, which must be alive and connected to it.
func (m *Member) Move(ctx context.Context, dpid uint64, to string) error {
	m.mu.Lock()
	err := m.engine.mayMove(dpid, to)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.o.Store.Commit(ctx, nil, store.Put(WantedKey(dpid), encode(WantedRecord{Member: to})))
}

// Drain asks for all switches of a member to be taken over by others, and lets it take none; undo
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

// Leave hands the member's switches over, waits until the others have those that somebody else is
// connected to, at the latest until ctx ends, and ends the member.
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

// Wait waits, after the member has ended, for what it was still doing.
func (m *Member) Wait() {
	<-m.ctx.Done()
	m.group.Wait()
	m.calls.Wait()
}
