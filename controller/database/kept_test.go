package database

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/storetest"
)

// keepFlow keeps an entry like a user's flow entry.
func (d *DB) keepFlow(i int) error {
	row := fmt.Appendf(nil, `{"id":%d,"switch":"0000000000000001","table":0,"priority":%d,"match":"ip","flow":"ip,actions=drop","created":1.5}`, i+1, i)
	return d.Store().Commit(context.Background(), nil, store.Put(fmt.Sprintf("user/flow/1/0/%d/ip", i), row))
}

func (d *DB) put(t *testing.T, i int) {
	t.Helper()
	if err := d.keepFlow(i); err != nil {
		t.Fatal(err)
	}
}

// Proves that the file's store is one.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		d, _ := open(t, filepath.Join(t.TempDir(), "db"), Options{})
		return closesAll{d.Store(), d}
	})
}

// closesAll is a store that closes its database.
type closesAll struct {
	store.Store
	d *DB
}

func (c closesAll) Close() error {
	if err := c.d.Close(); err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// Proves that what is kept comes back as it was, with its revision, through Close and Open; that
// later changes have later revisions; and that what was under a lease does not come back.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	d, _ := open(t, path, Options{})
	s := d.Store()
	l, err := s.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{"bytes": {0, 0xff, 'x'}, "empty": {}, "ö/\x00": []byte(`{"a": "ü"}`)}
	for key, value := range all {
		if err := s.Commit(t.Context(), nil, store.Put(key, value), store.Put("gone "+key, value), store.Put("leased "+key, value).Under(l)); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), nil, store.Delete("gone "+key)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	before = slices.DeleteFunc(before, func(e store.Entry) bool { return all[e.Key] == nil })
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), nil, store.Put("k", nil)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	d, _ = open(t, path, Options{})
	after, err := d.Store().List(t.Context(), "")
	same := func(a, b store.Entry) bool {
		return a.Key == b.Key && a.Revision == b.Revision && bytes.Equal(a.Value, b.Value) && !b.Gone()
	}
	if err != nil || len(after) != len(all) || !slices.EqualFunc(before, after, same) {
		t.Errorf("%v after, %v before; %v", after, before, err)
	}
	if err := d.Store().Commit(t.Context(), nil, store.Put("new", nil)); err != nil {
		t.Fatal(err)
	}
	if e, _ := d.Store().Get(t.Context(), "new"); slices.ContainsFunc(after, func(old store.Entry) bool { return old.Revision >= e.Revision }) {
		t.Errorf("the revision %d is no later one", e.Revision)
	}
}

// Proves that what users and programs had asked for in files of the versions before is there in
// this one, as the apps read it and as people see it with sqlite3.
func TestKeptMigrates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	d, _ := open(t, path, Options{})
	answer := make(chan error, 1)
	d.urgent <- request{func(w *writer) { // the file as version 3 had it
		for _, text := range []string{"DROP VIEW user_flows", "DROP VIEW user_routes", "DROP VIEW program_routes", "DROP TABLE kept",
			`CREATE TABLE user_flows (id INTEGER PRIMARY KEY AUTOINCREMENT, switch TEXT NOT NULL, table_id INTEGER NOT NULL, priority INTEGER NOT NULL,
				match TEXT NOT NULL, flow TEXT NOT NULL, created REAL NOT NULL, UNIQUE (switch, table_id, priority, match))`,
			`CREATE TABLE user_routes (id INTEGER PRIMARY KEY AUTOINCREMENT, router TEXT NOT NULL, prefix TEXT NOT NULL, next_hops TEXT NOT NULL,
				metric INTEGER NOT NULL, created REAL NOT NULL, distance INTEGER NOT NULL DEFAULT 0, tag INTEGER NOT NULL DEFAULT 0, UNIQUE (router, prefix))`,
			`CREATE TABLE program_routes (program TEXT NOT NULL, distance INTEGER NOT NULL, router TEXT NOT NULL, prefix TEXT NOT NULL,
				next_hops TEXT NOT NULL, metric INTEGER NOT NULL, tag INTEGER NOT NULL)`,
			`INSERT INTO user_flows VALUES (41, '000000000000002a', 1, 7, 'ip,nw_src=10.0.0.1', 'table=1,priority=7,ip,nw_src=10.0.0.1,actions=drop', 1900000000.5)`,
			`DELETE FROM user_flows WHERE id = 41`,
			`INSERT INTO user_flows VALUES (12, '000000000000002a', 1, 7, 'ip', 'table=1,priority=7,ip,actions=drop', 1900000000.5)`,
			`INSERT INTO user_routes VALUES (3, 'r1', '10.0.0.0/8', '["10.1.1.1","10.1.1.2"]', 5, 1900000000.25, 200, 7)`,
			`INSERT INTO program_routes VALUES ('sdwan', 30, 'r1', '10.0.0.0/8', '["10.1.1.1"]', 5, 2147483648), ('sdwan', 30, 'r2', 'fd00::/64', '[]', 0, 0)`,
			"PRAGMA user_version = 3"} {
			w.do(text)
		}
	}, answer}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, _ = open(t, path, Options{})
	for key, want := range map[string]string{
		"user/flow/000000000000002a/1/7/ip": `{"id":12,"switch":"000000000000002a","table":1,"priority":7,"match":"ip","flow":"table=1,priority=7,ip,actions=drop","created":1900000000.5}`,
		"user/flow-number":                  `41`,
		"user/route/r1/10.0.0.0/8":          `{"router":"r1","prefix":"10.0.0.0/8","next_hops":["10.1.1.1","10.1.1.2"],"distance":200,"metric":5,"tag":7,"created":1900000000.25}`,
		"program/sdwan": `{"program":"sdwan","distance":30,"routes":[{"router":"r1","prefix":"10.0.0.0/8","next_hops":["10.1.1.1"],"metric":5,"tag":2147483648},` +
			`{"router":"r2","prefix":"fd00::/64","next_hops":[],"metric":0,"tag":0}]}`,
	} {
		if e, err := d.Store().Get(t.Context(), key); err != nil || string(e.Value) != want {
			t.Errorf("%s is %s, not %s; %v", key, e.Value, want, err)
		}
	}
	for text, want := range map[string]int{
		"SELECT count(*) FROM user_flows WHERE id = 12 AND switch = '000000000000002a' AND table_id = 1 AND priority = 7 AND match = 'ip' AND flow LIKE 'table=1,%' AND created = 1900000000.5": 1,
		"SELECT count(*) FROM user_routes WHERE router = 'r1' AND prefix = '10.0.0.0/8' AND next_hops = '[\"10.1.1.1\",\"10.1.1.2\"]' AND distance = 200 AND metric = 5 AND tag = 7":            1,
		"SELECT count(*) FROM program_routes WHERE program = 'sdwan' AND distance = 30":                                                                                                         2,
		"SELECT count(*) FROM program_routes WHERE router = 'r1' AND prefix = '10.0.0.0/8' AND next_hops = '[\"10.1.1.1\"]' AND metric = 5 AND tag = 2147483648":                                1,
	} {
		if got := count(t, d, text); got != want {
			t.Errorf("%d rows, not %d: %s", got, want, text)
		}
	}
	if n, err := store.Next(t.Context(), d.Store(), "user/flow-number"); err != nil || n != 42 {
		t.Errorf("the next number is %d (%v): one that was used is used again", n, err)
	}
}
