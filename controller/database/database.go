package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// Options of a database. Zero values mean the default.
type Options struct {
	Log *slog.Logger // default: slog.Default()

	// Retention is how long rows of the time series are kept; default 24 hours.
	Retention time.Duration

	// MaxRows limits each time series; default 2,000,000, which for port_load take 240 MB. The
	// oldest rows are deleted first.
	MaxRows int

	// QueueRows limits the rows waiting to be written, separately for time series and for
	// everything else; default 100,000.
	QueueRows int
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Retention <= 0 {
		o.Retention = 24 * time.Hour
	}
	if o.MaxRows <= 0 {
		o.MaxRows = 2_000_000
	}
	if o.QueueRows <= 0 {
		o.QueueRows = 100_000
	}
	return o
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	left int // switches that have connected or disconnected; used by the writer only

	path  string
	o     Options
	aside string // new name of the file that could not be used; empty: it could
	lock  *os.File
	read  *sql.DB
	store fileStore
	w     *writer // used by the writing goroutine only

	report reporter

	urgent chan request       // requests that someone waits for
	flush  chan chan struct{} // asks for everything queued to be written
	wake   chan struct{}      // enough rows are queued
	stop   chan struct{}      // closed by Close
	done   chan struct{}      // closed when everything is written

	mu     sync.Mutex
	queue  queue
	stats  Stats
	closed bool
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the database is closed")

// Open opens or creates the file, readable by its owner only. A file that is damaged, or of a later
// Trivet, is renamed and a new one begun, which is logged (see SetAside). Open fails if another
// process has the file open for writing, if it belongs to another program, or on errors of the file
// system.
func Open(path string, o Options) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	d := &DB{path: path, o: o.withDefaults(), urgent: make(chan request), flush: make(chan chan struct{}),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	d.report.db = d
	if d.lock, err = lockFile(path); err != nil {
		return nil, err
	}
	if err := d.openFiles(); err != nil {
		d.lock.Close()
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	go d.run()
	return d, nil
}

// openFiles opens the file, or a new one in its place if it cannot be used.
func (d *DB) openFiles() (err error) {
	d.w, err = newWriter(d.path)
	var unusable *unusableError
	if errors.As(err, &unusable) {
		if d.aside, err = setAside(d.path, unusable.suffix); err != nil {
			return fmt.Errorf("%w; it cannot be moved aside: %w", unusable, err)
		}
		d.o.Log.Error("the database cannot be used and has been moved aside; a new one begins, without what users had added",
			"file", d.path, "problem", unusable.Error(), "kept as", d.aside)
		d.w, err = newWriter(d.path)
	}
	if err != nil {
		return err
	}
	d.read, err = sql.Open("sqlite", source(d.path)+"&_pragma=query_only(1)")
	if err != nil {
		d.w.close()
		return err
	}
	d.read.SetMaxOpenConns(4)
	d.read.SetMaxIdleConns(1)
	if err := d.openStore(); err != nil {
		return errors.Join(err, d.read.Close(), d.w.close())
	}
	return nil
}

// Path returns the file's path.
func (d *DB) Path() string { return d.path }

// SetAside returns the name under which Open has kept a file that it could not use; empty: there
// was none.
func (d *DB) SetAside() string { return d.aside }

// Close writes what is queued and closes the file.
func (d *DB) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return ErrClosed
	}
	d.closed = true
	d.mu.Unlock()
	_ = d.store.Memory.Close() // what it has accepted is written before the file is closed
	close(d.stop)
	<-d.done
	return errors.Join(d.read.Close(), d.w.close(), d.lock.Close())
}

// source returns the driver's data source name, with the settings of each connection.
func source(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(2000)"
}

// writer is the one connection that writes, with its prepared statements.
type writer struct {
	db         *sql.DB
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	err        error // of the transaction
}

// newWriter opens the file, checks it and brings its schema up to date.
func newWriter(path string) (w *writer, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // before SQLite, which would let others read it
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", source(path))
	if err != nil {
		return nil, err
	}
	w = &writer{db: db, statements: map[string]*sql.Stmt{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.conn, err = db.Conn(context.Background()); err != nil {
		return nil, unusable(err)
	}
	return w, w.prepare()
}

// prepare checks the file and sets up the connection. Only faults of the file itself are
// unusableErrors.
func (w *writer) prepare() error {
	if err := w.check(); err != nil {
		return unusable(err)
	}
	for _, pragma := range []string{
		"journal_mode = WAL", // readers do not wait for the writer, nor it for them
		"synchronous = FULL", // a commit is on the disk
		"journal_size_limit = 16777216",
	} {
		if _, err := w.conn.ExecContext(context.Background(), "PRAGMA "+pragma); err != nil {
			return unusable(err)
		}
	}
	if err := w.migrate(migrations()); err != nil {
		return unusable(err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	return w.transaction(func(w *writer) {
		w.do("INSERT OR IGNORE INTO meta VALUES ('created', ?)", now)
		w.do("INSERT OR REPLACE INTO meta VALUES ('opened', ?)", now)
	})
}

func (w *writer) close() error {
	var err error
	for _, s := range w.statements {
		err = errors.Join(err, s.Close())
	}
	if w.conn != nil {
		err = errors.Join(err, w.conn.Close())
	}
	return errors.Join(err, w.db.Close())
}

// do runs a statement, which is prepared once. After an error it does nothing until the transaction
// ends, which is then rolled back.
func (w *writer) do(query string, args ...any) {
	w.changed(query, args...)
}

// changed is do, and returns the number of rows affected.
func (w *writer) changed(query string, args ...any) (rows int64) {
	s := w.statement(query)
	if s == nil {
		return 0
	}
	result, err := s.Exec(args...)
	if err == nil {
		rows, err = result.RowsAffected()
	}
	w.fail(err)
	return rows
}

// values is do for a statement that returns one row of integers.
func (w *writer) values(query string, args []any, to ...any) {
	if s := w.statement(query); s != nil {
		w.fail(s.QueryRow(args...).Scan(to...))
	}
}

// fail records the transaction's first error.
func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// statement is nil after an error.
func (w *writer) statement(query string) *sql.Stmt {
	if w.err != nil {
		return nil
	}
	s := w.statements[query]
	if s == nil {
		if s, w.err = w.conn.PrepareContext(context.Background(), query); w.err != nil {
			return nil
		}
		w.statements[query] = s
	}
	return s
}

// transaction does all that f does, or nothing.
func (w *writer) transaction(f func(*writer)) error {
	w.err = nil
	w.do("BEGIN IMMEDIATE")
	if w.err != nil {
		return w.err
	}
	f(w)
	w.do("COMMIT")
	err := w.err
	if err != nil {
		w.err = nil
		w.do("ROLLBACK") // an error when SQLite has done so by itself
	}
	return err
}
