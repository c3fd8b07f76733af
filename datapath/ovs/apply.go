package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Apply changes the bridges to the given ones, in one transaction that touches only what differs,
// and returns once ovs-vswitchd has applied it. The error names every port that does not work, with
// its bridge; everything else is in place then. If the bridges contradict each other, nothing is
// changed. Packets of flows seen in the last seconds may still be handled as before for some
// milliseconds, until ovs-vswitchd has revalidated the flows it has cached.
func (s *Switches) Apply(ctx context.Context, bridges []Bridge) error {
	if err := validate(bridges); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	have, err := readTables(ctx, s.db)
	if err != nil {
		return err
	}
	t := transaction{db: s.db}
	t.bridges(have, bridges, s.datapath)
	if len(t.ops) > 0 {
		if err := s.commit(ctx, &t, have.root); err != nil {
			return err
		}
		if s.datapath == Netdev {
			s.vswitch.makeRoom()
			s.sending.Do(func() { go s.makeRoomToSend() })
		}
	} else if err := s.waitConfig(ctx, have.root.NextConfig); err != nil { // of an earlier call that has given up waiting
		return err
	}
	return s.portErrors(ctx, bridges)
}

// maxBackoff is the longest time between two attempts to reach a controller, in ms.
const maxBackoff = 1000

// commit sends the transaction and waits until ovs-vswitchd has applied it.
func (s *Switches) commit(ctx context.Context, t *transaction, root rootRow) error {
	t.raise(&root)
	t.ops = append(t.ops, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Open_vSwitch", Columns: []string{"next_cfg"}})
	results, err := t.commit(ctx)
	if err != nil {
		return err
	}
	last := results[len(t.ops)-1].Rows
	if len(last) != 1 {
		return fmt.Errorf("the database of Open vSwitch has %d rows in its table Open_vSwitch, not 1", len(last))
	}
	next, ok := last[0]["next_cfg"].(float64)
	if !ok {
		return fmt.Errorf("the database of Open vSwitch: next_cfg is %v, not a number", last[0]["next_cfg"])
	}
	return s.waitConfig(ctx, int(next))
}

// transaction collects operations. Its methods return the uuid of the row they deal with; the
// database itself garbage-collects rows that are no longer referred to.
type transaction struct {
	db  client.Client
	ops []ovsdb.Operation
	err error
	new int
}

func (t *transaction) collect(ops []ovsdb.Operation, err error) {
	t.ops = append(t.ops, ops...)
	t.err = errors.Join(t.err, err)
}

func (t *transaction) create(row model.Model) { t.collect(t.db.Create(row)) }

func (t *transaction) update(row model.Model, columns ...any) {
	t.collect(t.db.Where(row).Update(row, columns...))
}

// raise makes ovs-vswitchd report when it has applied what is written.
func (t *transaction) raise(root *rootRow) {
	t.collect(t.db.Where(root).Mutate(root, model.Mutation{Field: &root.NextConfig, Mutator: ovsdb.MutateOperationAdd, Value: 1}))
}

// newUUID returns a name for a row that is yet to be created.
func (t *transaction) newUUID() string {
	t.new++
	return fmt.Sprintf("row%d", t.new)
}

func (t *transaction) commit(ctx context.Context) ([]ovsdb.OperationResult, error) {
	if t.err != nil {
		return nil, t.err
	}
	results, err := t.db.Transact(ctx, t.ops...)
	if err != nil {
		return nil, fmt.Errorf("the database of Open vSwitch: %w", err)
	}
	failed, err := ovsdb.CheckOperationResults(results, t.ops)
	if err == nil {
		return results, nil
	}
	errs := []error{fmt.Errorf("the database of Open vSwitch refused the change: %w", err)}
	for _, f := range failed {
		row, _ := json.Marshal(f.Operation())
		errs = append(errs, fmt.Errorf("%w, in %s", f, row))
	}
	return nil, errors.Join(errs...)
}

func (t *transaction) bridges(have tables, want []Bridge, datapath DatapathType) {
	byName := make(map[string]*bridgeRow, len(have.bridges))
	for _, row := range have.bridges {
		byName[row.Name] = row
	}
	uuids := make([]string, 0, len(want))
	for _, b := range want {
		uuids = append(uuids, t.bridge(have, byName[b.Name], b, datapath))
	}
	if root := have.root; !sameSet(root.Bridges, uuids) {
		root.Bridges = uuids
		t.update(&root, &root.Bridges)
	}
}

func (t *transaction) bridge(have tables, old *bridgeRow, b Bridge, datapath DatapathType) string {
	row := b.row(datapath)
	if old == nil {
		row.UUID = t.newUUID()
		row.Ports = t.ports(have, nil, b)
		row.Controllers = t.controllers(have, nil, b)
		t.create(&row)
		return row.UUID
	}
	row.UUID = old.UUID
	row.Ports = t.ports(have, old, b)
	row.Controllers = t.controllers(have, old, b)
	var columns []any
	column := func(same bool, c any) {
		if !same {
			columns = append(columns, c)
		}
	}
	column(sameSet(old.Ports, row.Ports), &row.Ports)
	column(sameSet(old.Controllers, row.Controllers), &row.Controllers)
	column(sameValue(old.FailMode, row.FailMode), &row.FailMode)
	column(sameSet(old.Protocols, row.Protocols), &row.Protocols)
	column(old.STP == row.STP, &row.STP)
	column(maps.Equal(old.OtherConfig, row.OtherConfig), &row.OtherConfig)
	if len(columns) > 0 {
		t.update(&row, columns...)
	}
	return row.UUID
}

// ports returns the uuids of the bridge's ports. Each bridge has a port of its own name, LOCAL in
// OpenFlow, which the lab does not use.
func (t *transaction) ports(have tables, old *bridgeRow, b Bridge) []string {
	byName := map[string]*portRow{}
	if old != nil {
		for _, uuid := range old.Ports {
			byName[have.ports[uuid].Name] = have.ports[uuid]
		}
	}
	local := interfaceRow{Name: b.Name, Type: "internal"}
	uuids := []string{t.port(have, byName[b.Name], portRow{Name: b.Name}, local)}
	for _, p := range b.Ports {
		uuids = append(uuids, t.port(have, byName[p.Name], p.row(), p.interfaceRow()))
	}
	return uuids
}

func (t *transaction) port(have tables, old *portRow, port portRow, iface interfaceRow) string {
	if old == nil || len(old.Interfaces) != 1 {
		iface.UUID, port.UUID = t.newUUID(), t.newUUID()
		port.Interfaces = []string{iface.UUID}
		t.create(&iface)
		t.create(&port)
		return port.UUID
	}
	port.UUID = old.UUID
	if !sameValue(old.VLANMode, port.VLANMode) || !slices.Equal(old.Trunks, port.Trunks) {
		t.update(&port, &port.VLANMode, &port.Trunks)
	}
	was := have.interfaces[old.Interfaces[0]]
	iface.UUID = was.UUID
	if was.Type != iface.Type || !maps.Equal(was.Options, iface.Options) || !sameValue(was.Requested, iface.Requested) {
		t.update(&iface, &iface.Type, &iface.Options, &iface.Requested)
	}
	return port.UUID
}

func (t *transaction) controllers(have tables, old *bridgeRow, b Bridge) []string {
	byTarget := map[string]string{}
	if old != nil {
		for _, uuid := range old.Controllers {
			byTarget[have.controllers[uuid].Target] = uuid
		}
	}
	var uuids []string
	for _, target := range b.Controllers {
		uuid, known := byTarget[target]
		if !known {
			uuid = t.newUUID()
			backoff := maxBackoff
			t.create(&controllerRow{UUID: uuid, Target: target, MaxBackoff: &backoff})
		}
		uuids = append(uuids, uuid)
	}
	return uuids
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func sameValue[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// portErrors says which of the ports do not work.
func (s *Switches) portErrors(ctx context.Context, bridges []Bridge) error {
	have, err := rows(ctx, s.db, func(r *interfaceRow) string { return r.Name })
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range bridges {
		if err := have[b.Name].failure(); err != nil {
			errs = append(errs, fmt.Errorf("bridge %s: %w", b.Name, err))
		}
		for _, p := range b.Ports {
			if err := have[p.Name].failure(); err != nil {
				errs = append(errs, fmt.Errorf("bridge %s, port %s: %w", b.Name, p.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// failure says why the port of this interface does not work, or nil.
func (r *interfaceRow) failure() error {
	switch {
	case r == nil:
		return errors.New("is not in the database of Open vSwitch")
	case r.Error != nil:
		return errors.New(*r.Error)
	case r.Number == nil || *r.Number < 0:
		return errors.New("got no port from Open vSwitch, whose log says why")
	case r.Requested != nil && *r.Requested != *r.Number:
		return fmt.Errorf("has number %d, not %d as asked", *r.Number, *r.Requested)
	}
	return nil
}
