package ovs

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"trivet.dev/trivet/internal/lists"
)

// The tables and columns of the Open_vSwitch database that this package uses; they are documented
// in ovs-vswitchd.conf.db(5).

type rootRow struct {
	UUID        string            `ovsdb:"_uuid"`
	Bridges     []string          `ovsdb:"bridges"`
	NextConfig  int               `ovsdb:"next_cfg"` // raised with each change
	CurConfig   int               `ovsdb:"cur_cfg"`  // set by ovs-vswitchd to the next_cfg that it has applied
	OtherConfig map[string]string `ovsdb:"other_config"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

type bridgeRow struct {
	UUID         string            `ovsdb:"_uuid"`
	Name         string            `ovsdb:"name"`
	DatapathType string            `ovsdb:"datapath_type"`
	Ports        []string          `ovsdb:"ports"`
	Controllers  []string          `ovsdb:"controller"`
	FailMode     *string           `ovsdb:"fail_mode"`
	Protocols    []string          `ovsdb:"protocols"`
	STP          bool              `ovsdb:"stp_enable"`
	OtherConfig  map[string]string `ovsdb:"other_config"`
}

type portRow struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Interfaces  []string          `ovsdb:"interfaces"`
	VLANMode    *string           `ovsdb:"vlan_mode"`
	Tag         *int              `ovsdb:"tag"`
	Trunks      []int             `ovsdb:"trunks"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

type interfaceRow struct {
	UUID      string            `ovsdb:"_uuid"`
	Name      string            `ovsdb:"name"`
	Type      string            `ovsdb:"type"`
	Options   map[string]string `ovsdb:"options"`
	Requested *int              `ovsdb:"ofport_request"`
	Number    *int              `ovsdb:"ofport"`
	Error     *string           `ovsdb:"error"`
}

type controllerRow struct {
	UUID       string            `ovsdb:"_uuid"`
	Target     string            `ovsdb:"target"`
	MaxBackoff *int              `ovsdb:"max_backoff"` // ms
	Connected  bool              `ovsdb:"is_connected"`
	Role       *string           `ovsdb:"role"`
	Status     map[string]string `ovsdb:"status"`
}

// connect opens the database and keeps a copy of these tables; onChange is called after every
// change.
func connect(ctx context.Context, socket string, onChange func()) (client.Client, error) {
	tables, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		"Open_vSwitch": &rootRow{}, "Bridge": &bridgeRow{}, "Port": &portRow{},
		"Interface": &interfaceRow{}, "Controller": &controllerRow{},
	})
	if err != nil {
		return nil, err
	}
	endpoint := url.URL{Scheme: "unix", Path: socket}
	db, err := client.NewOVSDBClient(tables, client.WithEndpoint(endpoint.String()))
	if err != nil {
		return nil, err
	}
	if err := db.Connect(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("the database of Open vSwitch: %w", err)
	}
	db.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { onChange() },
		UpdateFunc: func(string, model.Model, model.Model) { onChange() },
		DeleteFunc: func(string, model.Model) { onChange() },
	})
	// Columns are listed one by one: if all were monitored, the server would send every counter of
	// every port whenever ovs-vswitchd writes them.
	var o rootRow
	var b bridgeRow
	var p portRow
	var i interfaceRow
	var c controllerRow
	_, err = db.Monitor(ctx, db.NewMonitor(
		client.WithTable(&o, &o.Bridges, &o.NextConfig, &o.CurConfig, &o.OtherConfig, &o.ExternalIDs),
		client.WithTable(&b, &b.Name, &b.DatapathType, &b.Ports, &b.Controllers, &b.FailMode, &b.Protocols, &b.STP,
			&b.OtherConfig),
		client.WithTable(&p, &p.Name, &p.Interfaces, &p.VLANMode, &p.Tag, &p.Trunks, &p.ExternalIDs),
		client.WithTable(&i, &i.Name, &i.Type, &i.Options, &i.Requested, &i.Number, &i.Error),
		client.WithTable(&c, &c.Target, &c.MaxBackoff, &c.Connected, &c.Role, &c.Status),
	))
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("the database of Open vSwitch: %w", err)
	}
	return db, nil
}

// tables is a copy of the rows, by uuid.
type tables struct {
	root        rootRow
	bridges     map[string]*bridgeRow
	ports       map[string]*portRow
	interfaces  map[string]*interfaceRow
	controllers map[string]*controllerRow
}

// bridge returns the bridge with a name, or nil.
func (t tables) bridge(name string) *bridgeRow {
	for _, row := range t.bridges {
		if row.Name == name {
			return row
		}
	}
	return nil
}

// place says which port an interface is in: usually a port of its own name, unless somebody has
// made a bond.
type place struct {
	bridge *bridgeRow
	port   *portRow
	iface  *interfaceRow
}

// places returns the place of each interface, by name.
func (t tables) places() map[string]place {
	out := map[string]place{}
	for _, bridge := range t.bridges {
		for _, uuid := range bridge.Ports {
			for _, iface := range t.ports[uuid].Interfaces {
				out[t.interfaces[iface].Name] = place{bridge, t.ports[uuid], t.interfaces[iface]}
			}
		}
	}
	return out
}

// readTables copies the tables. The client applies a change one table after the other, so if it is
// doing that, the tables are read again.
func readTables(ctx context.Context, db client.Client) (t tables, err error) {
	for {
		if t, err = readRows(ctx, db); err != nil || t.whole() {
			return t, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
}

// whole reports whether all referenced rows exist.
func (t tables) whole() bool {
	if !allIn(t.bridges, t.root.Bridges) {
		return false
	}
	for _, b := range t.bridges {
		if !allIn(t.ports, b.Ports) || !allIn(t.controllers, b.Controllers) {
			return false
		}
	}
	for _, p := range t.ports {
		if !allIn(t.interfaces, p.Interfaces) {
			return false
		}
	}
	return true
}

func allIn[R any](rows map[string]*R, uuids []string) bool {
	return !slices.ContainsFunc(uuids, func(uuid string) bool { return rows[uuid] == nil })
}

func readRows(ctx context.Context, db client.Client) (t tables, err error) {
	if t.root, err = readRoot(ctx, db); err != nil {
		return t, err
	}
	if t.bridges, err = rows(ctx, db, func(r *bridgeRow) string { return r.UUID }); err != nil {
		return t, err
	}
	if t.ports, err = rows(ctx, db, func(r *portRow) string { return r.UUID }); err != nil {
		return t, err
	}
	if t.interfaces, err = rows(ctx, db, func(r *interfaceRow) string { return r.UUID }); err != nil {
		return t, err
	}
	t.controllers, err = rows(ctx, db, func(r *controllerRow) string { return r.UUID })
	return t, err
}

func readRoot(ctx context.Context, db client.Client) (rootRow, error) {
	var roots []rootRow
	if err := db.List(ctx, &roots); err != nil {
		return rootRow{}, err
	}
	if len(roots) != 1 {
		return rootRow{}, fmt.Errorf("the database of Open vSwitch has %d rows in its table Open_vSwitch, not 1",
			len(roots))
	}
	return roots[0], nil
}

func rows[R any](ctx context.Context, db client.Client, uuid func(*R) string) (map[string]*R, error) {
	var list []*R
	if err := db.List(ctx, &list); err != nil {
		return nil, err
	}
	byUUID := lists.Index(list, uuid)
	return byUUID, nil
}
