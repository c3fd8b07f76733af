package database

import (
	"fmt"

	"trivet.dev/trivet/controller/store"
)

// Store returns the apps' store in the file (table kept). It is closed with the database.
func (d *DB) Store() store.Store { return d.store }

// fileStore is a store that is closed with its database.
type fileStore struct{ *store.Memory }

func (fileStore) Close() error { return nil }

// openStore reads the stored entries.
func (d *DB) openStore() error {
	entries, err := query(d, func(scan func(...any) error) (e store.Entry, err error) {
		err = scan(&e.Key, &e.Value, &e.Revision)
		if e.Value == nil {
			e.Value = []byte{}
		}
		return e, err
	}, "SELECT key, value, revision FROM kept")
	d.store = fileStore{store.NewMemory(entries, d.keep)}
	return err
}

// keep writes changed entries, and returns when they are on the disk.
func (d *DB) keep(entries []store.Entry) error {
	err := d.now(func(w *writer) {
		for _, e := range entries {
			if e.Gone() {
				w.do("DELETE FROM kept WHERE key = ?", e.Key)
				continue
			}
			w.do("INSERT OR REPLACE INTO kept VALUES (?,?,?)", e.Key, string(e.Value), e.Revision)
		}
	})
	if err != nil {
		return fmt.Errorf("database %s: %w", d.path, explain(err))
	}
	return nil
}
