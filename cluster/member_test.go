package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// station is a member with what it was told.
type station struct {
	*Member
	stop context.CancelFunc

	mu     sync.Mutex
	master map[uint64]uint64 // generation
	keeps  bool              // what it has, while it may
}

func (s *station) has() map[uint64]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint64]uint64{}
	for k, v := range s.master {
		out[k] = v
	}
	return out
}

func join(t *testing.T, st store.Store, name string) *station {
	t.Helper()
	s := &station{master: map[uint64]uint64{}}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	var err error
	s.Member, err = Join(ctx, Options{Store: st, Name: name, OpenFlow: "tcp:" + name, Log: slog.New(slog.DiscardHandler),
		Become: func(dpid, generation uint64) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.master[dpid] != 0 {
				t.Errorf("%s becomes master of %d twice", name, dpid)
			}
			s.master[dpid] = generation
			return nil
		},
		Cease: func(dpid uint64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.master, dpid)
		},
		Ready: func(uint64) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.keeps
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faulty is a store that can be cut off.
type faulty struct {
	store.Store
	mu     sync.Mutex
	down   bool
	silent bool // what is committed gets no answer before its context ends
}

var errDown = errors.New("no majority")

func (f *faulty) is() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	return nil
}

func (f *faulty) set(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *faulty) Commit(ctx context.Context, conditions []store.Condition, changes ...store.Change) error {
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent {
		ctx, cancel := patience.Store.Context(ctx)
		defer cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := f.is(); err != nil {
		return err
	}
	return f.Store.Commit(ctx, conditions, changes...)
}

// Proves, at a store in memory: switches are shared out; those of a member that dies are taken over
// by generations that are later; a member that leaves in good order is master of each switch until
// another is; a switch is moved; and nothing moves while the store cannot be written, which Status
// says.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := store.NewMemory(nil, nil)
		defer mem.Close()
		st := &faulty{Store: mem}
		a, b, c := join(t, st, "a"), join(t, st, "b"), join(t, st, "c")
		const n = 30
		for d := uint64(1); d <= n; d++ {
			for _, m := range []*station{a, b, c} {
				m.Connected(d)
			}
		}
		settle := func() { time.Sleep(5 * time.Second); synctest.Wait() }
		settle()
		for _, m := range []*station{a, b, c} {
			if got := len(m.has()); got != n/3 {
				t.Errorf("%s has %d switches, not %d", m.Name(), got, n/3)
			}
		}
		before := a.has()
		a.stop()
		settle()
		after := b.has()
		for d, g := range c.has() {
			after[d] = g
		}
		if len(b.has()) != n/2 || len(after) != n {
			t.Errorf("after a has died b has %d and both %d", len(b.has()), len(after))
		}
		for d, g := range before {
			if after[d] <= g {
				t.Errorf("switch %d: generation %d after %d", d, after[d], g)
			}
		}
		d := uint64(0)
		for d = range b.has() {
			if d > 2 { // the first two lose their connections below
				break
			}
		}
		if err := c.Move(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		settle()
		if b.has()[d] != 0 || c.has()[d] == 0 {
			t.Error("a switch did not move as it was asked for")
		}
		if err := c.Move(t.Context(), d, "a"); err == nil {
			t.Error("a switch may move to a member that is dead")
		}

		st.set(true)
		settle()
		if s := b.Status(); s.Problem == "" || len(b.has())+len(c.has()) != n {
			t.Errorf("the store is away: %q, %d and %d switches", s.Problem, len(b.has()), len(c.has()))
		}
		st.set(false)
		settle()
		if s := b.Status(); s.Problem != "" || len(b.has())+len(c.has()) != n || len(s.Switches) != n {
			t.Errorf("the store is back: %+v", s)
		}

		b.Lost(1)
		c.Lost(2)
		settle()
		if b.has()[2] == 0 || c.has()[1] == 0 {
			t.Error("a switch that has lost its connection was not taken over")
		}
		b.Connected(1)
		c.Connected(2)
		settle()
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := len(c.has()); got != n {
			t.Errorf("after b has left c has %d of %d", got, n)
		}
		if e, _ := mem.List(t.Context(), "cluster/member/"); len(e) != 1 {
			t.Error("who has left is still there:", e)
		}
		c.stop()
		c.Wait()
	})
}

// Proves that a member keeps a switch that another is to have, by a move or as it is drained, until
// it says that it is ready, for 15 beats at most; and not at all once it is dead.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory(nil, nil)
		defer st.Close()
		a, b := join(t, st, "a"), join(t, st, "b")
		const beat = 200 * time.Millisecond
		wait := func(beats int) { time.Sleep(time.Duration(beats) * beat); synctest.Wait() }
		keep := func(keeps bool) {
			for _, m := range []*station{a, b} {
				m.mu.Lock()
				m.keeps = keeps
				m.mu.Unlock()
			}
		}
		of := func(when string, m *station) {
			t.Helper()
			for _, x := range []*station{a, b} {
				if is := x.has()[1] != 0; is != (x == m) {
					t.Errorf("%s: %s has it: %v", when, x.Name(), is)
				}
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		a.Connected(1)
		b.Connected(1)
		wait(20)
		of("at first", a)

		must(a.Move(t.Context(), 1, "b"))
		synctest.Wait()
		of("a is ready", b)

		keep(true)
		must(a.Move(t.Context(), 1, "a"))
		wait(yieldAfter - 2)
		of("b is not ready", b)
		keep(false)
		wait(2)
		of("b has become ready", a)

		keep(true)
		must(a.Move(t.Context(), 1, "b"))
		wait(yieldAfter - 2)
		of("a is not ready", a)
		wait(3)
		of("a has not become ready", b)

		must(a.Drain(t.Context(), "b", false))
		wait(yieldAfter - 2)
		of("b is drained and not ready", b)
		keep(false)
		wait(2)
		of("b is drained", a)
		must(a.Drain(t.Context(), "b", true))

		keep(true)
		must(a.Drain(t.Context(), "a", false))
		wait(yieldAfter - 2)
		of("a is drained and not ready", a)
		wait(3)
		of("a is drained and has not become ready", b)
		must(a.Drain(t.Context(), "a", true))
		synctest.Wait()

		must(a.Move(t.Context(), 1, "a"))
		wait(2)
		b.stop()
		wait(deadAfter + 2)
		if a.has()[1] == 0 {
			t.Error("b is dead, and a waits for it")
		}
		a.stop()
		a.Wait()
		b.Wait()
	})
}

// Proves that a member whose store gives no answer at all says so when the others take it for dead,
// not only when its own patience ends; and no longer once the store answers.
func TestSilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := store.NewMemory(nil, nil)
		defer mem.Close()
		st := &faulty{Store: mem}
		a, b := join(t, st, "a"), join(t, mem, "b")
		be := func(silent bool) {
			st.mu.Lock()
			defer st.mu.Unlock()
			st.silent = silent
		}
		time.Sleep(2 * time.Second)
		if s := a.Status(); s.Problem != "" {
			t.Errorf("all is well: %q", s.Problem)
		}
		be(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := a.Status(); !strings.Contains(s.Problem, "has not answered for") {
			t.Errorf("the store has been silent for 2 s: %q", s.Problem)
		}
		if s := b.Status(); s.Problem != "" || s.Members[0].Alive {
			t.Errorf("a is not dead to b: %+v", s)
		}
		be(false)
		time.Sleep(patience.Store.Duration() + 2*time.Second)
		synctest.Wait()
		if s := a.Status(); s.Problem != "" || !s.Members[0].Alive {
			t.Errorf("the store answers again: %+v", s)
		}
		a.stop()
		b.stop()
		a.Wait()
		b.Wait()
	})
}

// Proves that a name is one live member's: another is refused; after it has died its successor has
// its switches by later generations; and when it was not dead but cut off, it ends.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory(nil, nil)
		defer st.Close()
		way := &faulty{Store: st}
		a := join(t, way, "a")
		a.Connected(1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		old := a.has()[1]
		if old == 0 {
			t.Fatal("a member that is alone has no switch")
		}
		if _, err := Join(t.Context(), Options{Store: st, Name: "a"}); !errors.Is(err, ErrNameTaken) {
			t.Error(err)
		}
		if _, err := Join(t.Context(), Options{Store: st, Name: "a/b"}); err == nil {
			t.Error("a name with a slash")
		}
		way.set(true) // it cannot give a sign of life
		next := join(t, st, "a")
		next.Connected(1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := next.has()[1]; got <= old {
			t.Errorf("generation %d after %d", got, old)
		}
		<-a.Done()
		if err := a.Err(); !errors.Is(err, ErrDisplaced) || len(a.has()) != 0 {
			t.Error(err, a.has())
		}
		next.stop()
		a.Wait()
		next.Wait()
	})
}
