package announce

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/store"
)

// failing is a store that takes nothing while it is down.
type failing struct {
	store.Store
	down atomic.Bool
}

func (f *failing) Commit(ctx context.Context, conditions []store.Condition, changes ...store.Change) error {
	if f.down.Load() {
		return errors.New("down")
	}
	return f.Store.Commit(ctx, conditions, changes...)
}

// TestBoard proves that what a member says comes to the others, the last word where it was said
// quickly or the store was away; that members are known as they come and go, without news of mere
// signs of life; that what cannot be read counts as nothing; and that a member which begins anew
// has said nothing.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{Store: store.NewMemory(nil, nil)}
		put := func(key, value string) {
			t.Helper()
			if err := s.Store.Commit(t.Context(), nil, store.Put(key, []byte(value))); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		var news atomic.Int64
		put("cluster/member/a", "")
		put("view/x/a", "7")
		a := New[int](s, "view/x/", "a", func() { news.Add(1) })
		b := New[int](s, "view/x/", "b", func() {})
		for _, x := range []*Board[int]{a, b} {
			if err := x.Start(ctx, &done); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, members, said int, of string, value int) {
			t.Helper()
			synctest.Wait()
			m, heard := a.Values()
			if len(m) != members || len(heard) != said || said > 0 && heard[of].Value != value {
				t.Errorf("%s: members %v, heard %v", when, m, heard)
			}
		}
		want("of an earlier run", 1, 0, "", 0)
		put("cluster/member/b", "")
		b.Publish(1)
		want("said", 2, 1, "b", 1)
		before := news.Load()
		put("cluster/member/b", "beat")
		want("a sign of life", 2, 1, "b", 1)
		if n := news.Load(); n != before {
			t.Errorf("a sign of life is %d news", n-before)
		}
		s.down.Store(true)
		b.Publish(2)
		synctest.Wait()
		b.Publish(3)
		want("the store is away", 2, 1, "b", 1)
		s.down.Store(false)
		time.Sleep(2 * againTime)
		want("it is back", 2, 1, "b", 3)
		put("view/x/b", "{")
		want("unreadable", 2, 0, "", 0)
		b.Publish(4)
		want("again", 2, 1, "b", 4)
		if err := s.Commit(ctx, nil, store.Delete("cluster/member/b")); err != nil {
			t.Fatal(err)
		}
		want("it has gone, and its word stays", 1, 1, "b", 4)
		cancel()
		done.Wait()
		s.Store.(*store.Memory).Close()
	})
}
