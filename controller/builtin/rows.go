package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"trivet.dev/trivet/routing/rib"
)

// routeRow is a route as stored; the database's views user_routes and program_routes show it. A
// program's routes have neither distance nor creation time.
type routeRow struct {
	Router   string   `json:"router"`
	Prefix   string   `json:"prefix"`
	NextHops []string `json:"next_hops"`
	Distance uint8    `json:"distance"`
	Metric   uint32   `json:"metric"`
	Tag      uint32   `json:"tag"`
	Created  float64  `json:"created"` // seconds since 1970, UTC
}

// programRow is a program's routes as stored.
type programRow struct {
	Program  string     `json:"program"`
	Distance uint8      `json:"distance"`
	Routes   []routeRow `json:"routes"`
}

// key is the key under which a user's route is stored.
func (u UserRoute) key() string { return u.Router + "/" + u.Prefix.String() }

func rowOf(u UserRoute) routeRow {
	r := routeRow{Router: u.Router, Prefix: u.Prefix.String(), NextHops: []string{}, Distance: uint8(u.Distance),
		Metric: u.Metric, Tag: u.Tag}
	if !u.Created.IsZero() {
		r.Created = float64(u.Created.UnixMicro()) / 1e6
	}
	for _, via := range u.Via {
		r.NextHops = append(r.NextHops, via.String())
	}
	return r
}

func (r routeRow) route() (u UserRoute, err error) {
	u = UserRoute{Router: r.Router, Distance: rib.Distance(r.Distance), Metric: r.Metric, Tag: r.Tag,
		Created: time.UnixMicro(int64(r.Created * 1e6))}
	u.Prefix, err = netip.ParsePrefix(r.Prefix)
	for _, text := range r.NextHops {
		via, bad := netip.ParseAddr(text)
		u.Via, err = append(u.Via, via), errors.Join(err, bad)
	}
	if err != nil {
		err = fmt.Errorf("stored route of %s to %s: %w", r.Router, r.Prefix, err)
	}
	return u, err
}

// keepProgram stores a program's routes in place of its previous ones; if there are none, it
// deletes the entry.
func (c *Controller) keepProgram(ctx context.Context, p ProgramRoutes) error {
	if len(p.Routes) == 0 {
		return c.routes.given.Delete(ctx, p.Name)
	}
	return c.routes.given.Put(ctx, p.Name, p.row())
}

func (p ProgramRoutes) row() programRow {
	row := programRow{Program: p.Name, Distance: uint8(p.Distance)}
	for _, u := range p.Routes {
		row.Routes = append(row.Routes, rowOf(u))
	}
	return row
}

func (r programRow) program() (ProgramRoutes, error) {
	p := ProgramRoutes{Name: r.Program, Distance: rib.Distance(r.Distance)}
	for _, one := range r.Routes {
		u, err := one.route()
		if err != nil {
			return p, fmt.Errorf("of the program %s: %w", r.Program, err)
		}
		p.Routes = append(p.Routes, u)
	}
	return p, nil
}

// loadPrograms reads the programs' routes from the store.
func (r *routes) loadPrograms() error {
	rows, err := r.given.All(context.Background())
	if err != nil {
		return err
	}
	for _, row := range rows {
		p, err := row.program()
		if err != nil {
			return err
		}
		r.programs[row.Program] = p
	}
	return nil
}
