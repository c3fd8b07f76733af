package user

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// fake is a switch in this process that takes all entries.
type fake struct {
	peer *controller.Memory

	mu     sync.Mutex // of what follows
	cookie uint64     // of the last entry
	then   func()     // what it does before it answers the next barrier
}

func (f *fake) Handle(m openflow.Message) {
	reply := func(r openflow.Message) {
		r.SetTransaction(m.Transaction())
		f.peer.Reply(r)
	}
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		reply(&openflow.FeaturesReply{DatapathID: 1, Tables: 4})
	case *openflow.MultipartRequest:
		bodies := map[openflow.MultipartType]openflow.MultipartBody{openflow.MultipartPortDesc: openflow.PortDescList{},
			openflow.MultipartGroupDesc: openflow.GroupDescList{}, openflow.MultipartFlow: openflow.FlowStatsList{}}
		reply(&openflow.MultipartReply{Body: bodies[m.Body.MultipartType()]})
	case *openflow.FlowMod:
		f.mu.Lock()
		f.cookie = m.Cookie
		f.mu.Unlock()
	case *openflow.BarrierRequest:
		f.mu.Lock()
		then := f.then
		f.then = nil
		f.mu.Unlock()
		if then != nil {
			then()
		}
		reply(&openflow.BarrierReply{})
	}
}

func (f *fake) Close() {}

// next says what the switch does before it answers the next barrier.
func (f *fake) next(then func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.then = then
}

// expire tells that the entry has ended by its timeout.
func (f *fake) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peer.Asynchronous(&openflow.FlowRemoved{Cookie: f.cookie, Reason: openflow.RemovedHardTimeout})
}

// slow is a store in which nothing is deleted while the lock is held.
type slow struct {
	store.Store
	sync.Mutex
}

func (s *slow) Commit(ctx context.Context, conditions []store.Condition, changes ...store.Change) error {
	if changes[0].Value == nil {
		s.Lock()
		defer s.Unlock()
	}
	return s.Store.Commit(ctx, conditions, changes...)
}

// fixture is the app with a switch and a database.
type fixture struct {
	*App
	t     *testing.T
	sw    *fake
	store *slow
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{t: t, store: &slow{}}
	db, err := database.Open(filepath.Join(t.TempDir(), "c.db"), database.Options{})
	b.must(err)
	t.Cleanup(func() { _ = db.Close() })
	b.store.Store = db.Store()
	b.App, err = New(b.store)
	b.must(err)
	c, err := controller.New(slog.New(slog.DiscardHandler), b.App)
	b.must(err)
	t.Cleanup(c.Close)
	b.sw = &fake{peer: c.NewMemory("s1")}
	b.must(b.sw.peer.Join(b.sw))
	return b
}

func (b *fixture) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// add adds an entry of the same table, priority and match every time.
func (b *fixture) add(timeout string) error {
	m, err := Parse("priority=9,udp,hard_timeout=" + timeout + ",actions=drop")
	if err == nil {
		_, err = b.Add(b.t.Context(), 1, m)
	}
	return err
}

// kept checks how many entries there are, also in the database, when all is done.
func (b *fixture) kept(want int) {
	b.t.Helper()
	b.Stop()
	rows, err := b.store.List(b.t.Context(), "user/flow/")
	b.must(err)
	if n := len(b.Flows()); n != want || len(rows) != want {
		b.t.Errorf("%d entries are known, %d in the database, want %d", n, len(rows), want)
	}
}

// Proves that an entry is forgotten that ends by its timeout while it is being added.
func TestEndsWhileAdded(t *testing.T) {
	b := newFixture(t)
	b.sw.next(func() {
		time.Sleep(1100 * time.Millisecond)
		b.sw.expire()
	})
	b.must(b.add("1"))
	b.kept(0)
}

// Proves that an entry is kept that comes in the place of one that ends just then, be it one with a
// timeout or without.
func TestRenewedWhileItEnds(t *testing.T) {
	for _, timeout := range []string{"60", "0"} {
		b := newFixture(t)
		b.must(b.add("50"))
		b.sw.next(b.sw.expire)
		b.must(b.add(timeout))
		b.kept(1)
	}
}

// Proves that an entry is kept that is added while the end of the one before it is still being
// written to the database.
func TestRenewedAfterItHasEnded(t *testing.T) {
	b := newFixture(t)
	b.must(b.add("60"))
	b.store.Lock()
	b.sw.expire()
	until.True(t, "the entry ends", func() bool { return len(b.Flows()) == 0 })
	answer := make(chan error, 1)
	go func() { answer <- b.add("60") }()
	select {
	case err := <-answer:
		answer <- err
	case <-time.After(200 * time.Millisecond): // it may wait for that
	}
	b.store.Unlock()
	b.must(<-answer)
	b.kept(1)
}
