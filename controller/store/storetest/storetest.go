// Package storetest tests that a store satisfies the contract of store.Store; see Run.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/lists"
)

// Run tests the stores returned by open, each of which must be empty. The test closes them.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, store.Store){
		"Keeps": keeps, "Conditions": conditions, "MostInCommit": mostInCommit,
		"Watch": watch, "WatchFromNow": watchFromNow, "Leases": leases,
		"LeaseThatEnds": leaseThatEnds, "Numbers": numbers, "Rows": rows, "Closed": closed,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer s.Close()
			test(t, s)
		})
	}
}

func commit(t *testing.T, s store.Store, changes ...store.Change) {
	t.Helper()
	if err := s.Commit(t.Context(), nil, changes...); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s store.Store, key string) store.Entry {
	t.Helper()
	e, err := s.Get(t.Context(), key)
	if err != nil || e.Key != key {
		t.Fatal(e, err)
	}
	return e
}

func keys(entries []store.Entry) []string {
	return lists.Map(entries, func(e store.Entry) string { return e.Key })
}

// keeps proves that a store has what was committed, lists it by key, and forgets what is deleted;
// that each change has a later revision; and that a commit with the same key twice changes nothing.
func keeps(t *testing.T, s store.Store) {
	if e := get(t, s, "a/1"); e.Revision != 0 || !e.Gone() {
		t.Fatal("an empty store has", e)
	}
	commit(t, s, store.Put("a/2", []byte("two")), store.Put("a/1", []byte{0, 0xff}), store.Put("b", nil),
		store.Delete("c"))
	list, err := s.List(t.Context(), "a/")
	if err != nil || !slices.Equal(keys(list), []string{"a/1", "a/2"}) || !bytes.Equal(list[0].Value, []byte{0, 0xff}) {
		t.Fatal(list, err)
	}
	if e := get(t, s, "b"); e.Revision == 0 || e.Gone() || len(e.Value) != 0 {
		t.Error("an empty value is one:", e)
	}
	first := get(t, s, "a/2")
	commit(t, s, store.Put("a/2", []byte("zwei")))
	if second := get(t, s, "a/2"); string(second.Value) != "zwei" || second.Revision <= first.Revision {
		t.Error(first, second)
	}
	if err := s.Commit(t.Context(), nil, store.Put("x", nil), store.Delete("x")); err == nil {
		t.Error("a key was changed in two ways at once")
	}
	commit(t, s, store.Delete("a/2"))
	if list, err := s.List(t.Context(), ""); err != nil || !slices.Equal(keys(list), []string{"a/1", "b"}) {
		t.Error(list, err)
	}
}

// conditions proves that the changes of a commit are all made or none: none if a key has changed,
// appeared or disappeared since it was read.
func conditions(t *testing.T, s store.Store) {
	absent := get(t, s, "k").Is()
	commit(t, s, store.Put("k", []byte("1")))
	one := get(t, s, "k").Is()
	refuse := func(what string, c ...store.Condition) {
		t.Helper()
		if err := s.Commit(t.Context(), c, store.Put("other", nil), store.Put("k", []byte("no"))); !errors.Is(err,
			store.ErrChanged) {
			t.Error(what, err)
		}
	}
	refuse("it has come", absent)
	if err := s.Commit(t.Context(), []store.Condition{one}, store.Put("k", []byte("2"))); err != nil {
		t.Fatal(err)
	}
	refuse("it is another", one)
	commit(t, s, store.Delete("k"))
	refuse("it has gone", one)
	if e := get(t, s, "other"); !e.Gone() {
		t.Error("half of a change was made")
	}
	var group sync.WaitGroup
	for range 8 { // eight concurrent writers: nothing is lost
		group.Go(func() {
			for range 20 {
				for {
					e, err := s.Get(context.Background(), "sum")
					if err == nil {
						err = s.Commit(context.Background(), []store.Condition{e.Is()},
							store.Put("sum", append([]byte("x"), e.Value...)))
					}
					if err == nil {
						break
					}
					if !errors.Is(err, store.ErrChanged) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	if n := len(get(t, s, "sum").Value); n != 160 {
		t.Errorf("%d of 160 changes are there", n)
	}
}

// mostInCommit proves that a store takes as many conditions and changes at once as MostInCommit
// says, and makes all of the changes.
func mostInCommit(t *testing.T, s store.Store) {
	var conditions []store.Condition
	var changes []store.Change
	for i := range store.MostInCommit {
		conditions = append(conditions, store.Condition{Key: fmt.Sprintf("other/%03d", i)})
		changes = append(changes, store.Put(fmt.Sprintf("many/%03d", i), []byte{1}))
	}
	if err := s.Commit(t.Context(), conditions, changes...); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(t.Context(), "many/"); err != nil || len(all) != store.MostInCommit {
		t.Errorf("of %d changes in one commit %d were made (%v)", store.MostInCommit, len(all), err)
	}
}

// next waits for the next events of a watcher.
func next(t *testing.T, heard <-chan []store.Event) []store.Event {
	t.Helper()
	select {
	case events, open := <-heard:
		if !open {
			t.Fatal("nothing more comes")
		}
		return events
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
	}
	return nil
}

// watch proves that a watcher receives all changes of its keys, in order, grouped by commit and
// with their revisions, and none of other keys; and that it ends with its context.
func watch(t *testing.T, s store.Store) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	commit(t, s, store.Put("w/0", []byte("there")))
	there, heard, err := s.Watch(ctx, "w/")
	if err != nil || !slices.Equal(keys(there), []string{"w/0"}) || string(there[0].Value) != "there" {
		t.Fatal(there, err)
	}
	commit(t, s, store.Put("v", nil))
	commit(t, s, store.Put("w/1", []byte("a")), store.Put("w/2", []byte("b")), store.Put("v", []byte("c")))
	commit(t, s, store.Delete("w/0"))
	both := next(t, heard)
	if slices.SortFunc(both, func(a, b store.Event) int { return bytes.Compare(a.Value, b.Value) }); len(both) != 2 ||
		both[0].Key != "w/1" || string(both[1].Value) != "b" || both[0].Revision != get(t, s, "w/1").Revision {
		t.Error(both)
	}
	if gone := next(t, heard); len(gone) != 1 || gone[0].Key != "w/0" || !gone[0].Gone() ||
		gone[0].Revision <= both[0].Revision {
		t.Error(gone)
	}
	stop()
	for range heard { // until it ends
	}
}

// watchFromNow proves that between the initial entries and the later events of a watcher, nothing
// is lost and nothing is repeated.
func watchFromNow(t *testing.T, s store.Store) {
	const changes = 300
	var group sync.WaitGroup
	group.Go(func() {
		for i := range changes {
			if err := s.Commit(context.Background(), nil, store.Put("n", fmt.Appendf(nil, "%d", i))); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		there, heard, err := s.Watch(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		last := -1
		if len(there) > 0 {
			_, _ = fmt.Sscan(string(there[0].Value), &last)
		}
		for last < changes-1 {
			for _, e := range next(t, heard) {
				if want := fmt.Sprint(last + 1); string(e.Value) != want {
					t.Fatalf("after %d came %s", last, e.Value)
				}
				last++
			}
		}
	}
	group.Wait()
}

// leases proves that entries under a lease are deleted with it, that watchers are notified, and
// that an entry that was since put without a lease, or deleted, is not affected.
func leases(t *testing.T, s store.Store) {
	l, err := s.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, store.Put("l/a", nil).Under(l), store.Put("l/b", nil).Under(l), store.Put("l/c", nil).Under(l))
	commit(t, s, store.Put("l/b", nil), store.Delete("l/c"))
	_, heard, err := s.Watch(t.Context(), "l/")
	if err != nil || l.Renew(t.Context()) != nil {
		t.Fatal(err)
	}
	if err := l.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := next(t, heard); len(e) != 1 || e[0].Key != "l/a" || !e[0].Gone() {
		t.Error(e)
	}
	if list, err := s.List(t.Context(), "l/"); err != nil || !slices.Equal(keys(list), []string{"l/b"}) {
		t.Error(list, err)
	}
	if err := l.Renew(t.Context()); !errors.Is(err, store.ErrEnded) {
		t.Error("a lease that has ended was renewed:", err)
	}
	if err := s.Commit(t.Context(), nil, store.Put("l/d", nil).Under(l)); !errors.Is(err, store.ErrEnded) {
		t.Error("something was put under a lease that has ended:", err)
	}
}

// leaseThatEnds proves that a lease ends if it is not renewed, and does not if it is.
func leaseThatEnds(t *testing.T, s store.Store) {
	short, err := s.Grant(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	long, err := s.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, store.Put("short", nil).Under(short), store.Put("long", nil).Under(long))
	there, heard, err := s.Watch(t.Context(), "short")
	if err != nil {
		t.Fatal(err)
	}
	if len(there) > 0 { // otherwise it has ended already, on a machine that stalled
		if e := next(t, heard); !e[0].Gone() {
			t.Error(e)
		}
	}
	if err := short.Renew(t.Context()); !errors.Is(err, store.ErrEnded) {
		t.Error(err)
	}
	if e := get(t, s, "long"); e.Gone() {
		t.Error("what is under a lease of an hour has gone")
	}
}

// numbers proves that each number of a sequence is returned exactly once.
func numbers(t *testing.T, s store.Store) {
	var mu sync.Mutex
	var got []int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10 {
				n, err := store.Next(context.Background(), s, "numbers")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				got = append(got, n)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(got)
	for i, n := range got {
		if n != int64(i+1) {
			t.Fatal(got)
		}
	}
}

// rows proves that rows of a type are returned as they were put, by key, and that an invalid one
// causes an error that names it.
func rows(t *testing.T, s store.Store) {
	type row struct{ Name string }
	r := store.Rows[row]{Store: s, Prefix: "rows/"}
	for _, name := range []string{"ö\x00/", "a", "b"} {
		if err := r.Put(t.Context(), name, row{name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.Delete(t.Context(), "b"), r.Delete(t.Context(), "none")); err != nil {
		t.Fatal(err)
	}
	all, err := r.All(t.Context())
	if err != nil || !slices.Equal(all, []row{{"a"}, {"ö\x00/"}}) {
		t.Error(all, err)
	}
	commit(t, s, store.Put("rows/c", []byte("{")))
	if _, err := r.All(t.Context()); err == nil || !bytes.Contains([]byte(err.Error()), []byte("rows/c")) {
		t.Error(err)
	}
}

// closed proves that a closed store returns ErrClosed, and that its watchers end.
func closed(t *testing.T, s store.Store) {
	_, heard, err := s.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range heard {
	}
	if err := s.Commit(t.Context(), nil, store.Put("k", nil)); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
	if err := l.Renew(t.Context()); err == nil {
		t.Error("a lease of a store that is closed was renewed")
	}
}
