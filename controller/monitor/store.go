package monitor

import (
	"fmt"
	"reflect"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/openflow"
)

// Store stores measurements; *database.DB is one. Its methods must not block, and may be called
// concurrently. Arguments are not modified afterwards.
type Store interface {
	PutSwitch(database.Switch)
	ReplacePorts(dpid uint64, ports []database.Port)
	CountFlows(dpid uint64, flows int)
	ReplaceFlows(dpid uint64, at time.Time, flows []database.Flow)
	ReplaceGroups(dpid uint64, at time.Time, groups []database.Group)
	AddLoads([]database.Load)
	AddPackets([]database.PacketsIn)
}

var _ Store = (*database.DB)(nil)

func (a *App) storeSwitch(s *controller.Switch, up bool) {
	if a.o.Store == nil {
		return
	}
	f := s.Features()
	a.o.Store.PutSwitch(database.Switch{DPID: s.DPID(), Tables: int(f.Tables), Buffers: f.Buffers, Up: up,
		Since: time.Now()})
}

func (a *App) storePorts(s *controller.Switch) {
	if a.o.Store == nil {
		return
	}
	described := s.Ports()
	ports := make([]database.Port, len(described))
	for i, d := range described {
		ports[i] = database.Port{Number: d.Number, Name: valid(d.Name), MAC: d.HWAddr.String(), Up: d.Works(),
			Speed: uint64(speedOf(d))}
	}
	a.o.Store.ReplacePorts(s.DPID(), ports)
}

// storeFlows stores the number of entries and, if they have changed, the entries.
func (a *App) storeFlows(dpid uint64, t *FlowTable, changed bool) {
	a.o.Store.CountFlows(dpid, t.Count)
	if !changed {
		return
	}
	flows := make([]database.Flow, len(t.Entries))
	for i := range t.Entries {
		e := &t.Entries[i]
		flows[i] = database.Flow{Table: e.Table, Priority: e.Priority, Match: e.Match.String(),
			Instructions: openflow.FormatInstructions(e.Instructions), Cookie: e.Cookie, App: a.o.AppOf(e.Cookie),
			Packets: e.Packets, Bytes: e.Bytes, Duration: e.Duration.Time()}
	}
	a.o.Store.ReplaceFlows(dpid, t.Time, flows)
}

func (a *App) storeGroups(dpid uint64, at time.Time, groups []Group) {
	rows := make([]database.Group, len(groups))
	for i, g := range groups {
		rows[i] = database.Group{ID: g.Group, Type: g.Kind.String(), Packets: g.Stats.Packets, Bytes: g.Stats.Bytes,
			Duration: g.Stats.Duration.Time()}
		for _, b := range g.Buckets {
			rows[i].Buckets = append(rows[i].Buckets, openflow.FormatActions(b.Actions))
		}
	}
	a.o.Store.ReplaceGroups(dpid, at, rows)
}

// same reports whether entries are the same, with the same counters.
func same(before, now []openflow.FlowStats) bool {
	if len(before) != len(now) {
		return false
	}
	for i := range now {
		x, y := &before[i], &now[i]
		sameKey := x.Table == y.Table && x.Priority == y.Priority && x.Match == y.Match && x.Cookie == y.Cookie
		sameCounters := x.Packets == y.Packets && x.Bytes == y.Bytes
		if !sameKey || !sameCounters || !reflect.DeepEqual(x.Instructions, y.Instructions) {
			return false
		}
	}
	return true
}

// dpidText is a datapath id as controller.Switch.Name writes it.
func dpidText(dpid uint64) string { return fmt.Sprintf("%016x", dpid) }

// valid reports whether a name, which the switch has chosen, may be a label.
func valid(name string) string { return words.Printable(name) }
