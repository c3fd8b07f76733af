package database

import (
	"errors"
	"fmt"
	"time"
)

// UserFlow is a row of user_flows: a flow entry that a user has asked for. There is one
// for each switch, table, priority and match.
type UserFlow struct {
	ID       int64 // given by PutUserFlow
	Switch   uint64
	Table    uint8
	Priority uint16
	Match    string
	Flow     string // all of it, as openflow.FormatFlow writes and ParseFlow reads it
	Created  time.Time
}

// UserRoute is a row of user_routes: a route that a user has asked for. There is one for
// each router and prefix.
type UserRoute struct {
	ID       int64 // given by PutUserRoute
	Router   string
	Prefix   string
	NextHops []string
	Distance uint8
	Metric   uint32
	Tag      uint32
	Created  time.Time
}

// ProgramRoute is a row of program_routes: a route that a program has given to a router.
type ProgramRoute struct {
	Program  string
	Distance uint8 // of the program; 0: none is given
	Router   string
	Prefix   string
	NextHops []string
	Metric   uint32
	Tag      uint32
}

// ErrNotFound is that there is no row with that id.
var ErrNotFound = errors.New("no such entry")

// PutUserFlow keeps a flow entry, in the place of one with the same switch, table,
// priority and match, whose id it takes over. It is on the disk when the call returns.
func (d *DB) PutUserFlow(f UserFlow) (id int64, err error) {
	return d.putUser(`INSERT INTO user_flows (switch, table_id, priority, match, flow, created) VALUES (?,?,?,?,?,?)
		ON CONFLICT DO UPDATE SET flow = excluded.flow, created = excluded.created RETURNING id`,
		dpidText(f.Switch), int64(f.Table), int64(f.Priority), f.Match, f.Flow, seconds(created(f.Created)))
}

// PutUserRoute keeps a route, in the place of one of the same router and prefix, whose id
// it takes over. It is on the disk when the call returns.
func (d *DB) PutUserRoute(r UserRoute) (id int64, err error) {
	return d.putUser(`INSERT INTO user_routes (router, prefix, next_hops, distance, metric, tag, created) VALUES (?,?,?,?,?,?,?)
		ON CONFLICT DO UPDATE SET next_hops = excluded.next_hops, distance = excluded.distance, metric = excluded.metric, tag = excluded.tag,
		created = excluded.created RETURNING id`,
		r.Router, r.Prefix, list(r.NextHops), int64(r.Distance), int64(r.Metric), int64(r.Tag), seconds(created(r.Created)))
}

func created(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now()
	}
	return t
}

func (d *DB) putUser(text string, args ...any) (id int64, err error) {
	err = d.now(func(w *writer) { w.values(text, args, &id) })
	if err != nil {
		return 0, fmt.Errorf("database %s: %w", d.path, explain(err))
	}
	return id, nil
}

// DeleteUserFlow takes a flow entry back, also from the disk. It is ErrNotFound that there is none
// with the id.
func (d *DB) DeleteUserFlow(id int64) error { return d.deleteUser("user_flows", id) }

// DeleteUserRoute takes a route back, also from the disk. It is ErrNotFound that there is none with
// the id.
func (d *DB) DeleteUserRoute(id int64) error { return d.deleteUser("user_routes", id) }

func (d *DB) deleteUser(table string, id int64) error {
	err := d.now(func(w *writer) {
		if w.changed("DELETE FROM "+table+" WHERE id = ?", id) == 0 {
			w.fail(ErrNotFound)
		}
	})
	if err != nil {
		return fmt.Errorf("database %s: %s %d: %w", d.path, table, id, explain(err))
	}
	return nil
}

// UserFlows returns the flow entries that users have asked for, in the order of their ids.
func (d *DB) UserFlows() ([]UserFlow, error) {
	return query(d, func(scan func(...any) error) (f UserFlow, err error) {
		var dpid string
		var created float64
		if err := scan(&f.ID, &dpid, &f.Table, &f.Priority, &f.Match, &f.Flow, &created); err != nil {
			return f, err
		}
		f.Created = timeOf(created)
		f.Switch, err = dpidOf(dpid)
		return f, err
	}, "SELECT id, switch, table_id, priority, match, flow, created FROM user_flows ORDER BY id")
}

// UserRoutes returns the routes that users have asked for, in the order of their ids.
func (d *DB) UserRoutes() ([]UserRoute, error) {
	return query(d, func(scan func(...any) error) (r UserRoute, err error) {
		var hops string
		var created float64
		if err := scan(&r.ID, &r.Router, &r.Prefix, &hops, &r.Distance, &r.Metric, &r.Tag, &created); err != nil {
			return r, err
		}
		r.Created = timeOf(created)
		r.NextHops, err = listOf(hops)
		return r, err
	}, "SELECT id, router, prefix, next_hops, distance, metric, tag, created FROM user_routes ORDER BY id")
}

// PutProgramRoutes keeps a program's routes, whose Program does not count, in the place of all that
// it has had; none: nothing is left of it. They are on the disk when the call returns.
func (d *DB) PutProgramRoutes(program string, routes []ProgramRoute) error {
	err := d.now(func(w *writer) {
		w.do("DELETE FROM program_routes WHERE program = ?", program)
		for _, r := range routes {
			w.do("INSERT INTO program_routes (program, distance, router, prefix, next_hops, metric, tag) VALUES (?,?,?,?,?,?,?)",
				program, int64(r.Distance), r.Router, r.Prefix, list(r.NextHops), int64(r.Metric), int64(r.Tag))
		}
	})
	if err != nil {
		return fmt.Errorf("database %s: %w", d.path, explain(err))
	}
	return nil
}

// ProgramRoutes returns the routes that programs have given, in their order.
func (d *DB) ProgramRoutes() ([]ProgramRoute, error) {
	return query(d, func(scan func(...any) error) (r ProgramRoute, err error) {
		var hops string
		if err := scan(&r.Program, &r.Distance, &r.Router, &r.Prefix, &hops, &r.Metric, &r.Tag); err != nil {
			return r, err
		}
		r.NextHops, err = listOf(hops)
		return r, err
	}, "SELECT program, distance, router, prefix, next_hops, metric, tag FROM program_routes ORDER BY rowid")
}
