package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.NewMemory(nil, nil) })
}

// What lasts is written before it counts, and what is under a lease never is: so that nobody finds
// it after a controller that has died. A change that cannot be written is not made.
func TestMemoryWrites(t *testing.T) {
	var wrote []string
	var fail error
	m := store.NewMemory([]store.Entry{{Key: "old", Value: []byte("x"), Revision: 7}}, func(entries []store.Entry) error {
		for _, e := range entries {
			wrote = append(wrote, fmt.Sprintf("%s %t", e.Key, e.Gone()))
			if e.Revision <= 7 {
				t.Errorf("%s has the revision %d, not a later one", e.Key, e.Revision)
			}
		}
		return fail
	})
	defer m.Close()
	l, _ := m.Grant(t.Context(), time.Hour)
	for _, c := range []store.Change{
		store.Put("a", nil), store.Put("b", nil).Under(l), store.Put("a", nil).Under(l), store.Put("b", nil), store.Delete("old"), store.Delete("a"), store.Delete("none"),
	} {
		if err := m.Commit(t.Context(), nil, c); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"a false", "a true", "b false", "old true"}; !slices.Equal(wrote, want) {
		t.Errorf("written: %q, not %q", wrote, want)
	}
	fail = errors.New("the disk is full")
	if err := m.Commit(t.Context(), nil, store.Put("c", nil)); !errors.Is(err, fail) {
		t.Error(err)
	}
	if e, _ := m.Get(t.Context(), "c"); !e.Gone() {
		t.Error("a change that was not written counts")
	}
}

// A lease lasts its time from the last renewal, to the moment.
func TestLeaseTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := store.NewMemory(nil, nil)
		defer m.Close()
		l, _ := m.Grant(t.Context(), 10*time.Second)
		if err := m.Commit(t.Context(), nil, store.Put("k", nil).Under(l)); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(9 * time.Second)
			if err := l.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		there := func() bool {
			synctest.Wait()
			e, _ := m.Get(t.Context(), "k")
			return !e.Gone()
		}
		time.Sleep(9999 * time.Millisecond)
		if !there() {
			t.Error("it has ended too early")
		}
		time.Sleep(2 * time.Millisecond)
		if there() || l.Renew(t.Context()) == nil {
			t.Error("it has not ended in time")
		}
	})
}

// Who watches and does not read is let go when too much waits, and may begin anew.
func TestWatcherThatDoesNotRead(t *testing.T) {
	m := store.NewMemory(nil, nil)
	defer m.Close()
	_, heard, err := m.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	const changes = 25_000
	for i := range changes {
		if err := m.Commit(t.Context(), nil, store.Put("k", fmt.Append(nil, i))); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range heard {
		n++
	}
	if n >= changes {
		t.Error("all of it was kept for who did not read")
	}
	if there, _, err := m.Watch(t.Context(), ""); err != nil || len(there) != 1 || string(there[0].Value) != fmt.Sprint(changes-1) {
		t.Error(there, err)
	}
}
