package api

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

var ctx = context.Background()

// refused checks that something was refused, and that the reason contains words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Fatalf("want an error with %q, got: %v", w, err)
		}
	}
}

// Proves that an entry that a user adds is in the switch, marked as the user's, and works until it
// is deleted; and that the list shows what the switch has.
func TestAddAndDeleteFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,2", "", "")
		if got := b.ping("h1", "h2"); !got["h2"] {
			t.Fatal("the network does not forward")
		}
		f, err := b.AddFlow(ctx, FlowRequest{Switch: "s1", Flow: "priority=100,ip,nw_dst=" + b.host("h2").Addresses[0].Addr().String() + ",actions=drop"})
		b.must(err)
		if got := b.ping("h1", "h2"); got["h2"] {
			t.Error("the entry drops nothing")
		}
		list, err := b.Flows(ctx, "s1")
		b.must(err)
		mine, apps := 0, map[string]bool{}
		for _, x := range list.Flows {
			if apps[x.App] = true; x.App == "user" {
				mine++
				if x.ID != f.ID || x.Priority != 100 || x.Packets == nil || *x.Packets != 1 || x.Actions != "drop" {
					t.Errorf("the entry is %+v, want id %d, one packet", x, f.ID)
				}
			}
		}
		if mine != 1 || !apps["learning"] || !apps["discovery"] || len(list.Silent) != 0 {
			t.Errorf("%d entries of the user; apps %v; silent %v", mine, apps, list.Silent)
		}
		_, err = b.DeleteFlow(ctx, f.ID)
		b.must(err)
		if got := b.ping("h1", "h2"); !got["h2"] {
			t.Error("the entry drops after it was deleted")
		}
		_, err = b.DeleteFlow(ctx, f.ID)
		refused(t, err, "there is no such entry")
	})
}

// Proves that an entry that is malformed, that the switch refuses or that belongs to an app is
// refused with the reason, and that nothing of it is kept.
func TestRefusedFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,2", "", filepath.Join(t.TempDir(), "c.db"))
		for _, c := range []struct{ sw, flow, reason string }{
			{"s1", "priority=1,nw_st=1.2.3.4,actions=drop", "column 12: nw_st: no such field"},
			{"s1", "priority=7,ip", "specify what to do with packets"},
			{"s1", "cookie=7,ip,actions=drop", "cookie"},
			{"s1", "priority=7,ip,actions=group:77", "the switch refuses: OFPET_BAD_ACTION/OFPBAC_BAD_OUT_GROUP"},
			{"s1", "priority=1,in_port=1,actions=drop", "there is an entry of an app"},
			{"s1", "priority=7,ip,actions=output:99", "output:99: the switch has no port 99; its ports are 1 (s1-eth1), 2 (s1-eth2)"},
			{"s1", "priority=7,ip,actions=output:1,output:77", "output:77: the switch has no port 77"},
			{"s1", "priority=7,in_port=9,ip,actions=drop", "in_port=9: the switch has no port 9"},
			{"s9", "ip,actions=drop", `there is no switch "s9"; did you mean s1?`},
		} {
			_, err := b.AddFlow(ctx, FlowRequest{Switch: c.sw, Flow: c.flow})
			refused(t, err, c.reason)
		}
		rows, err := b.c.Database.Store().List(ctx, "user/flow/")
		b.must(err)
		if n := len(b.c.User.Flows()); n != 0 || len(rows) != 0 {
			t.Errorf("%d entries are kept, %d in the database", n, len(rows))
		}
		good, err := b.AddFlow(ctx, FlowRequest{Switch: "s1", Flow: "priority=7,ip,actions=output:1"})
		b.must(err)
		_, err = b.AddFlow(ctx, FlowRequest{Switch: "s1", Flow: "priority=7,ip,actions=group:77"})
		refused(t, err, "refuses")
		list, err := b.Flows(ctx, "s1")
		b.must(err)
		found := false
		for _, f := range list.Flows {
			found = found || f.ID == good.ID && f.Actions == "output:1"
		}
		if kept := b.c.User.Flows(); !found || len(kept) != 1 || openflow.FormatInstructions(kept[0].Flow.Instructions) != "output:1" {
			t.Error("what was refused has taken the place of what was there")
		}
	})
}

// Proves that users' entries and routes, and those of programs, survive the controller: with the
// same database, or a store of another kind, they are put back into switches that have lost
// everything, under the same number; deleted ones stay deleted; and that a program's route waits
// for a router which is not in the topology at first.
func TestRestart(t *testing.T) {
	for _, in := range []string{"database", "store"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if in == "database" {
					file := filepath.Join(t.TempDir(), "c.db")
					restart(t, newFixture(t, "ring,3", topology.Router, file), file)
					return
				}
				b := newFixture(t, "ring,3", topology.Router, "")
				b.stop()
				b.store = toy{store.NewMemory(nil, nil)}
				b.start("")
				b.wait("the routers are connected", func() bool { return len(b.c.Switches()) == 3 && len(b.c.Routing.Missing()) == 0 })
				restart(t, b, "")
			})
		})
	}
}

// toy is a store of another kind, which outlives the controller.
type toy struct{ store.Store }

func (toy) Close() error { panic("a store that was given is not to be closed") }

func restart(t *testing.T, b *fixture, file string) {
	f, err := b.AddFlow(ctx, FlowRequest{Switch: "r1", Flow: "priority=300,udp,tp_dst=53,actions=drop"})
	b.must(err)
	gone, err := b.AddFlow(ctx, FlowRequest{Switch: "r1", Flow: "priority=301,udp,tp_dst=53,actions=drop"})
	b.must(err)
	_, err = b.DeleteFlow(ctx, gone.ID)
	b.must(err)
	via := b.host("h1").Addresses[0].Addr()
	b.must(b.AddRoute(ctx, RouteRequest{Router: "r1", Prefix: netip.MustParsePrefix("10.99.0.0/16"), Via: []netip.Addr{via}}))
	given := ProgramRequest{Distance: 30, Routes: []ProgramRoute{{Router: "r1", Prefix: netip.MustParsePrefix("10.98.0.0/16"), Via: []netip.Addr{via}, Metric: 5, Tag: 7},
		{Router: "r3", Prefix: netip.MustParsePrefix("10.97.0.0/16"), Tag: 8}}}
	b.must(b.SetProgram(ctx, "gone", given))
	b.must(b.DropProgram(ctx, "gone"))
	b.must(b.SetProgram(ctx, "sdwan", given))
	b.stop()
	for _, a := range b.agents {
		b.wait("no controller", func() bool { return !a.Connected() })
		a.Switch().Clear(b.dp.Now())
	}
	whole := b.topology
	b.topology = whole.Clone()
	b.topology.Nodes = slices.DeleteFunc(b.topology.Nodes, func(n *topology.Node) bool { return n.Name == "r3" })
	b.topology.Links = slices.DeleteFunc(b.topology.Links, func(l *topology.Link) bool { return l.Ends[0].Node == "r3" || l.Ends[1].Node == "r3" })
	b.start(file)
	b.wait("the routers are connected", func() bool { return len(b.c.Switches()) == 3 && len(b.c.Routing.Missing()) == 0 })
	program := func(router, prefix string) (found Route) {
		routes, err := b.Routes(ctx, router, prefix)
		b.must(err)
		for _, r := range routes.Routes {
			if r.Used && r.Source == "program sdwan" {
				found = r
			}
		}
		return found
	}
	b.wait("the program's route is back", func() bool {
		r := program("r1", "10.98.0.0/16")
		return r.Distance == 30 && r.Metric == 5 && r.Tag == 7 && r.Hops[0].Via == via
	})
	b.must(b.c.Configure(whole))
	b.wait("the program's other route is back", func() bool { r := program("r3", "10.97.0.0/16"); return r.Drop && r.Tag == 8 })
	if all, err := b.AllRoutes(ctx, ""); err != nil || slices.ContainsFunc(all.Routes, func(r Route) bool { return r.Source == "program gone" }) {
		t.Errorf("routes that a program has taken back: %+v, %v", all.Routes, err)
	}
	list, err := b.Flows(ctx, "r1")
	b.must(err)
	ids := []int64{}
	for _, x := range list.Flows {
		if x.App == "user" {
			ids = append(ids, x.ID)
		}
	}
	if len(ids) != 1 || ids[0] != f.ID {
		t.Errorf("the user's entries after the restart: %v, want %d", ids, f.ID)
	}
	b.wait("the route is back", func() bool {
		routes, err := b.Routes(ctx, "r1", "")
		b.must(err)
		for _, r := range routes.Routes {
			if r.Prefix.String() == "10.99.0.0/16" && r.User && r.Source == "static" && r.Hops[0].Via == via {
				return true
			}
		}
		return false
	})
	b.must(b.DeleteRoute(ctx, "r1", "10.99.0.0/16"))
	routes, err := b.Routes(ctx, "r1", "")
	b.must(err)
	if len(routes.Added) != 0 {
		t.Errorf("routes after deleting: %v", routes.Added)
	}
}

// Proves that an entry with a timeout is forgotten when it expires, also in the database.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,2", "", filepath.Join(t.TempDir(), "c.db"))
		_, err := b.AddFlow(ctx, FlowRequest{Switch: "s1", Flow: "priority=9,hard_timeout=1,udp,actions=drop"})
		b.must(err)
		b.wait("the entry has ended", func() bool {
			rows, err := b.c.Database.Store().List(ctx, "user/flow/")
			b.must(err)
			return len(b.c.User.Flows()) == 0 && len(rows) == 0
		})
	})
}

// Proves that a static route that could never be used is refused, with the reason.
func TestRefusedRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,3", topology.Router, "")
		own := b.host("h1").Addresses[0]
		for _, c := range []struct {
			router, prefix, via, reason string
		}{
			{"r9", "10.99.0.0/16", own.Addr().String(), `no router "r9"`},
			{"r1", "10.99.0.1/16", own.Addr().String(), "is not a prefix"},
			{"r1", "10.99.0.0/16", "192.0.2.1", "is not a neighbour of r1"},
			{"r1", "fd00::/64", own.Addr().String(), "different IP versions"},
			{"r1", own.Masked().String(), own.Addr().String(), "is a subnet of r1 itself"},
		} {
			err := b.AddRoute(ctx, RouteRequest{Router: c.router, Prefix: netip.MustParsePrefix(c.prefix), Via: []netip.Addr{netip.MustParseAddr(c.via)}})
			refused(t, err, c.reason)
		}
		refused(t, b.DeleteRoute(ctx, "r1", "10.98.0.0/16"), "no such route")
	})
}
