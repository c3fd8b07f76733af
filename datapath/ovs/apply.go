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

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// Apply changes the bridges to the given ones, in one transaction that touches only what differs
// from those given last, and returns once ovs-vswitchd has applied it. The error names every port
// that does not work, with its bridge; everything else is in place then. If the bridges contradict
// each other, nothing is changed. Packets of flows seen in the last seconds may still be handled as
// before for some milliseconds, until ovs-vswitchd has revalidated the flows it has cached.
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
	c := changes{transaction: &t, have: have, at: have.places(), known: s.known, was: s.asked}
	c.bridges(bridges, s.datapath)
	s.asked, s.known = map[string]Bridge{}, len(t.ops) == 0
	for _, b := range bridges {
		b.Ports = slices.Clone(b.Ports)
		s.asked[b.Name] = b
	}
	if len(t.ops) > 0 {
		next, err := s.write(ctx, &t, have.root)
		if err != nil {
			return err
		}
		s.known = true
		if err := s.waitConfig(ctx, next); err != nil {
			return err
		}
		if s.datapath == Netdev {
			s.vswitch.makeRoom()
			s.sending.Do(func() { go s.makeRoomToSend() })
		}
	} else if err := s.waitConfig(ctx, have.root.NextConfig); err != nil {
		// Left over from an earlier call that has given up waiting.
		return err
	}
	return s.portErrors(ctx, bridges)
}

// maxBackoff is the longest time between two attempts to reach a controller, in ms.
const maxBackoff = 1000

// Took records which bridges the process that made the switches has asked for last. Their
// controllers may have changed since.
func (s *Switches) Took(ctx context.Context, bridges []Bridge) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	have, err := readTables(ctx, s.db)
	if err != nil {
		return err
	}
	s.asked, s.known = map[string]Bridge{}, true
	for _, b := range bridges {
		b.Controllers = nil
		if row := have.bridge(b.Name); row != nil {
			for _, uuid := range row.Controllers {
				b.Controllers = append(b.Controllers, have.controllers[uuid].Target)
			}
		}
		s.asked[b.Name] = b
	}
	return nil
}

// commit sends the transaction and waits until ovs-vswitchd has applied it.
func (s *Switches) commit(ctx context.Context, t *transaction, root rootRow) error {
	next, err := s.write(ctx, t, root)
	if err != nil {
		return err
	}
	return s.waitConfig(ctx, next)
}

// write sends the transaction and returns the number of the configuration that it makes.
func (s *Switches) write(ctx context.Context, t *transaction, root rootRow) (int, error) {
	t.raise(&root)
	t.ops = append(t.ops, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Open_vSwitch",
		Columns: []string{"next_cfg"}})
	results, err := t.commit(ctx)
	if err != nil {
		return 0, err
	}
	last := results[len(t.ops)-1].Rows
	if len(last) != 1 {
		return 0, fmt.Errorf("the database of Open vSwitch has %d rows in its table Open_vSwitch, not 1", len(last))
	}
	next, ok := last[0]["next_cfg"].(float64)
	if !ok {
		return 0, fmt.Errorf("the database of Open vSwitch: next_cfg is %v, not a number", last[0]["next_cfg"])
	}
	return int(next), nil
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

// mutate adds rows to a column of a row, and removes others.
func (t *transaction) mutate(row model.Model, column any, added, removed []string) {
	var mutations []model.Mutation
	if len(removed) > 0 {
		mutations = append(mutations, model.Mutation{Field: column, Mutator: ovsdb.MutateOperationDelete,
			Value: removed})
	}
	if len(added) > 0 {
		mutations = append(mutations, model.Mutation{Field: column, Mutator: ovsdb.MutateOperationInsert, Value: added})
	}
	if len(mutations) > 0 {
		t.collect(t.db.Where(row).Mutate(row, mutations...))
	}
}

// raise makes ovs-vswitchd report when it has applied what is written.
func (t *transaction) raise(root *rootRow) {
	t.collect(t.db.Where(root).Mutate(root, model.Mutation{Field: &root.NextConfig, Mutator: ovsdb.MutateOperationAdd,
		Value: 1}))
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

// changes are the operations that turn what was last asked for into what is asked for now. What is
// the same in both is left alone, because somebody else may have changed it, as is everything never
// asked for. If it is unknown what was last asked for, everything is set.
type changes struct {
	*transaction
	have  tables
	at    map[string]place // of each interface
	known bool             // what was asked for last
	was   map[string]Bridge
}

// bridges adds the operations for all bridges.
func (c *changes) bridges(want []Bridge, datapath DatapathType) {
	root, there := c.have.root, map[string]bool{}
	var added, removed []string
	for _, b := range want {
		there[b.Name] = true
		if old := c.have.bridge(b.Name); old == nil {
			added = append(added, c.newBridge(b, datapath))
		} else {
			c.bridge(old, b, datapath)
		}
	}
	for name := range c.was {
		if old := c.have.bridge(name); old != nil && !there[name] {
			removed = append(removed, old.UUID)
		}
	}
	c.mutate(&root, &root.Bridges, added, removed)
}

// newBridge makes a bridge. Each has a port of its own name, LOCAL in OpenFlow, which the lab does
// not use.
func (c *changes) newBridge(b Bridge, datapath DatapathType) string {
	row := b.row(datapath)
	row.UUID = c.newUUID()
	row.Ports = append(row.Ports, c.newPort(portRow{Name: b.Name}, interfaceRow{Name: b.Name, Type: "internal"}))
	for _, p := range b.Ports {
		if at, ok := c.at[p.Name]; ok {
			c.port(at, nil, p)
		} else {
			row.Ports = append(row.Ports, c.newPort(p.row(), p.interfaceRow()))
		}
	}
	row.Controllers = c.controllers(nil, b.Controllers)
	c.create(&row)
	return row.UUID
}

func (c *changes) bridge(old *bridgeRow, b Bridge, datapath DatapathType) {
	before, asked := c.was[b.Name]
	known := c.known && asked
	was, row := before.row(datapath), b.row(datapath)
	row.UUID = old.UUID
	var columns []any
	column := func(unchanged, is bool, column any) {
		if !(known && unchanged) && !is {
			columns = append(columns, column)
		}
	}
	row.Controllers = old.Controllers
	if !known || !slices.Equal(before.Controllers, b.Controllers) {
		row.Controllers = c.controllers(old.Controllers, b.Controllers)
	}
	column(false, sameSet(old.Controllers, row.Controllers), &row.Controllers)
	column(sameValue(was.FailMode, row.FailMode), sameValue(old.FailMode, row.FailMode), &row.FailMode)
	column(sameSet(was.Protocols, row.Protocols), sameSet(old.Protocols, row.Protocols), &row.Protocols)
	column(was.STP == row.STP, old.STP == row.STP, &row.STP)
	unchanged := maps.Equal(was.OtherConfig, row.OtherConfig)
	config := maps.Clone(old.OtherConfig)
	for _, key := range ourConfig {
		delete(config, key)
	}
	maps.Copy(row.OtherConfig, config)
	column(unchanged, maps.Equal(old.OtherConfig, row.OtherConfig), &row.OtherConfig)
	if len(columns) > 0 {
		c.update(&row, columns...)
	}
	c.ports(old, before.Ports, b.Ports, known)
}

// ports adds the operations for the ports of an existing bridge. A port that somebody has removed
// stays removed until something else is asked of it.
func (c *changes) ports(old *bridgeRow, before, want []Port, known bool) {
	was, there := map[string]Port{}, map[string]bool{}
	for _, p := range before {
		was[p.Name] = p
	}
	var added []string
	for _, p := range want {
		there[p.Name] = true
		last, asked := was[p.Name]
		switch at, ok := c.at[p.Name]; {
		case ok && known && asked:
			c.port(at, &last, p)
		case ok:
			c.port(at, nil, p)
		case !known || last != p:
			added = append(added, c.newPort(p.row(), p.interfaceRow()))
		}
	}
	gone := map[*portRow][]string{} // interfaces of each port
	for _, p := range before {
		if at, ok := c.at[p.Name]; ok && !there[p.Name] {
			gone[at.port] = append(gone[at.port], at.iface.UUID)
		}
	}
	removed := map[*bridgeRow][]string{}
	for port, interfaces := range gone {
		if at := c.at[c.have.interfaces[interfaces[0]].Name]; len(interfaces) == len(port.Interfaces) {
			removed[at.bridge] = append(removed[at.bridge], port.UUID)
		} else { // a bond, which others remain in
			c.mutate(port, &port.Interfaces, nil, interfaces)
		}
	}
	c.mutate(old, &old.Ports, added, removed[old])
	for bridge, ports := range removed {
		if bridge != old {
			c.mutate(bridge, &bridge.Ports, nil, ports)
		}
	}
}

func (c *changes) newPort(port portRow, iface interfaceRow) string {
	iface.UUID, port.UUID = c.newUUID(), c.newUUID()
	port.Interfaces = []string{iface.UUID}
	c.create(&iface)
	c.create(&port)
	return port.UUID
}

// port changes an existing port; was is what was asked for last, nil if unknown.
func (c *changes) port(at place, was *Port, p Port) {
	if was == nil && p.VLANs != (topology.PortVLANs{}) || was != nil && was.VLANs != p.VLANs {
		c.vlans(*at.port, p)
	} else if was == nil || was.Blocked != p.Blocked {
		c.block(*at.port, p.Blocked)
	}
	now, iface := at.iface, p.interfaceRow()
	iface.UUID = now.UUID
	if was == nil || was.Patch != p.Patch || was.Unplugged != p.Unplugged {
		options := map[string]string{}
		maps.Copy(options, now.Options)
		delete(options, "peer")
		maps.Copy(options, iface.Options)
		iface.Options = options
		if now.Type != iface.Type || !maps.Equal(now.Options, iface.Options) {
			c.update(&iface, &iface.Type, &iface.Options)
		}
	}
	if (was == nil || was.Number != p.Number) && !sameValue(now.Requested, iface.Requested) {
		c.update(&iface, &iface.Requested)
	}
}

// vlans sets a port's VLANs as in the topology, whatever they were. A bond is left alone.
func (c *changes) vlans(row portRow, p Port) {
	want := p.row()
	if len(row.Interfaces) != 1 {
		return
	}
	ids := map[string]string{}
	maps.Copy(ids, row.ExternalIDs)
	delete(ids, keptVLANs)
	maps.Copy(ids, want.ExternalIDs)
	if row.vlans().equal(want.vlans()) && sameValue(row.Tag, want.Tag) && maps.Equal(ids, row.ExternalIDs) {
		return
	}
	row.VLANMode, row.Tag, row.Trunks, row.ExternalIDs = want.VLANMode, want.Tag, want.Trunks, ids
	c.update(&row, &row.VLANMode, &row.Tag, &row.Trunks, &row.ExternalIDs)
}

// block keeps a port out of learning, or lets it take part again as before, with the VLANs that
// somebody has set. A bond is left alone: it is no loop.
func (c *changes) block(row portRow, on bool) {
	if len(row.Interfaces) != 1 {
		return
	}
	_, kept := row.ExternalIDs[keptVLANs]
	is := row.vlans().equal(blocked)
	if on == is && (on || !kept) {
		return
	}
	ids := map[string]string{}
	maps.Copy(ids, row.ExternalIDs)
	delete(ids, keptVLANs)
	now := row.vlans()
	switch {
	case on && !now.equal(vlans{}):
		ids[keptVLANs] = now.kept()
		now = blocked
	case on:
		now = blocked
	case is:
		now = vlans{}
		_ = json.Unmarshal([]byte(row.ExternalIDs[keptVLANs]), &now) // nothing was kept: all VLANs
	}
	row.VLANMode, row.Trunks, row.ExternalIDs = now.Mode, now.Trunks, ids
	c.update(&row, &row.VLANMode, &row.Trunks, &row.ExternalIDs)
}

func (c *changes) controllers(old []string, want []string) []string {
	byTarget := lists.Index(old, func(uuid string) string { return c.have.controllers[uuid].Target })
	var uuids []string
	for _, target := range want {
		uuid, known := byTarget[target]
		if !known {
			uuid = c.newUUID()
			backoff := maxBackoff
			c.create(&controllerRow{UUID: uuid, Target: target, MaxBackoff: &backoff})
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

// portErrors reports the ports that do not work.
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
			if err := have[p.Name].failure(); err != nil && !p.Unplugged {
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
		return nil // somebody has removed it
	case r.Error != nil:
		return errors.New(*r.Error)
	case r.Number == nil || *r.Number < 0:
		return errors.New("got no port from Open vSwitch, whose log says why")
	case r.Requested != nil && *r.Requested != *r.Number:
		return fmt.Errorf("has number %d, not %d as asked", *r.Number, *r.Requested)
	}
	return nil
}
