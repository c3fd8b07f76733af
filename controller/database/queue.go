package database

import (
	"errors"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

const (
	batchRows   = 1000        // written together, and that may wait without waking the writer
	batchTime   = time.Second // that a row waits at most
	reportEvery = 10 * time.Second
)

// Stats counts the rows since Open.
type Stats struct {
	Written uint64 // rows
	Dropped uint64 // rows that found the queue full, or came after Close
	Failed  uint64 // rows rejected by SQLite
	Queued  int    // rows waiting
}

// Stats returns the current numbers.
func (d *DB) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Queued = d.queue.stateRows + d.queue.seriesRows
	return s
}

// op is a write.
type op struct {
	rows  int
	write func(*writer)
}

// request is a write that someone waits for.
type request struct {
	write  func(*writer)
	answer chan error
}

// queue holds the waiting writes. Of state, only the latest per key waits, in the position of the
// first.
type queue struct {
	keys       []string
	state      map[string]op
	stateRows  int
	series     []op
	seriesRows int
}

// put replaces the write waiting for the key, and reports whether there was room.
func (q *queue) put(key string, o op, limit int) bool {
	old, waits := q.state[key]
	if q.stateRows-old.rows+o.rows > limit {
		return false
	}
	if q.state == nil {
		q.state = map[string]op{}
	}
	if !waits {
		q.keys = append(q.keys, key)
	}
	q.state[key] = o
	q.stateRows += o.rows - old.rows
	return true
}

// add appends a write, and reports whether there was room.
func (q *queue) add(o op, limit int) bool {
	if q.seriesRows+o.rows > limit {
		return false
	}
	q.series = append(q.series, o)
	q.seriesRows += o.rows
	return true
}

// take removes and returns the next batch: of state and of the series.
func (q *queue) take() (ops []op) {
	rows := 0
	for len(q.keys) > 0 && rows < batchRows {
		o := q.state[q.keys[0]]
		delete(q.state, q.keys[0])
		q.keys = q.keys[1:]
		q.stateRows -= o.rows
		rows += o.rows
		ops = append(ops, o)
	}
	rows = 0
	for len(q.series) > 0 && rows < batchRows {
		o := q.series[0]
		q.series[0] = op{} // release its rows
		q.series = q.series[1:]
		q.seriesRows -= o.rows
		rows += o.rows
		ops = append(ops, o)
	}
	return ops
}

// enqueue queues a write: of state by its key, of series without one.
func (d *DB) enqueue(key string, rows int, write func(*writer)) {
	o := op{max(rows, 1), write}
	d.mu.Lock()
	defer d.mu.Unlock()
	var room bool
	switch {
	case d.closed:
	case key == "":
		room = d.queue.add(o, d.o.QueueRows)
	default:
		room = d.queue.put(key, o, d.o.QueueRows)
	}
	if !room {
		d.stats.Dropped += uint64(o.rows)
		return
	}
	if d.queue.stateRows+d.queue.seriesRows >= batchRows {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// now writes before everything queued, and returns when the write is on the disk.
func (d *DB) now(write func(*writer)) error {
	r := request{write, make(chan error, 1)}
	select {
	case d.urgent <- r:
		return <-r.answer
	case <-d.stop:
		return ErrClosed
	}
}

// Flush returns when everything queued before the call is written.
func (d *DB) Flush() {
	done := make(chan struct{})
	select {
	case d.flush <- done:
		<-done
	case <-d.stop:
		<-d.done
	}
}

// run writes until the database is closed.
func (d *DB) run() {
	defer close(d.done)
	ticker := time.NewTicker(batchTime)
	defer ticker.Stop()
	for {
		select {
		case u := <-d.urgent:
			u.answer <- d.w.transaction(u.write)
		case <-d.wake:
			d.drain()
		case <-ticker.C:
			d.drain()
			d.trim(batchRows)
			d.report.tell(time.Now())
		case done := <-d.flush:
			d.drain()
			close(done)
		case <-d.stop:
			d.drain()
			d.report.tell(time.Time{})
			return
		}
	}
}

// drain writes what is queued, batch by batch, serving requests in between.
func (d *DB) drain() {
	for {
		d.mu.Lock()
		ops := d.queue.take()
		d.mu.Unlock()
		if len(ops) == 0 {
			return
		}
		d.writeBatch(ops)
		d.answerOne()
	}
}

// writeBatch writes ops together. While another process holds the database it waits; rows that find
// the queue full meanwhile are counted as dropped.
func (d *DB) writeBatch(ops []op) {
	rows := 0
	for _, o := range ops {
		rows += o.rows
	}
	err := d.tryBatch(ops)
	for codeOf(err) == sqlite3.SQLITE_BUSY && !d.closing() {
		d.answerOne()
		d.report.tell(time.Now())
		err = d.tryBatch(ops)
	}
	d.mu.Lock()
	if err == nil {
		d.stats.Written += uint64(rows)
	} else {
		d.stats.Failed += uint64(rows)
	}
	d.mu.Unlock()
	if err != nil {
		d.report.problem = explain(err)
		return
	}
	d.trim(2 * rows)
}

func (d *DB) tryBatch(ops []op) error {
	return d.w.transaction(func(w *writer) {
		for _, o := range ops {
			o.write(w)
		}
	})
}

// answerOne serves one request, if there is any.
func (d *DB) answerOne() {
	select {
	case u := <-d.urgent:
		u.answer <- d.w.transaction(u.write)
	default:
	}
}

func (d *DB) closing() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// explain adds a remedy to an error.
func explain(err error) error {
	switch codeOf(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return errors.Join(err, errors.New("the file is damaged; the next start moves it aside and begins a new one"))
	case sqlite3.SQLITE_FULL:
		return errors.Join(err, errors.New("make room on the disk"))
	}
	return err
}

// reporter logs lost rows, at intervals. Only the writing goroutine uses it.
type reporter struct {
	db      *DB
	problem error // of the last batch that failed
	told    Stats
	last    time.Time
}

// tell logs if the last time is long enough ago; with the zero time, always.
func (r *reporter) tell(now time.Time) {
	if !now.IsZero() && now.Sub(r.last) < reportEvery {
		return
	}
	s := r.db.Stats()
	if n := s.Dropped - r.told.Dropped; n > 0 {
		r.db.o.Log.Warn("more rows came than the database could take; some were dropped",
			"file", r.db.path, "dropped", n, "since the start", s.Dropped, "written", s.Written)
	}
	if n := s.Failed - r.told.Failed; n > 0 {
		r.db.o.Log.Error("rows could not be written to the database and are lost",
			"file", r.db.path, "rows", n, "since the start", s.Failed, "problem", r.problem)
	}
	if s.Dropped != r.told.Dropped || s.Failed != r.told.Failed {
		r.told, r.last = s, now
	}
}
