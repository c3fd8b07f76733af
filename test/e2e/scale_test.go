package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/topology"
)

// TestManyRoutingNodes proves that a torus of 400 routing nodes, which have no tables but compute a
// route when a packet needs it, carries traffic right across at the first try; that each link of
// the first router can fail, and all but one of them, with traffic going round when the command
// returns; that it goes straight again when they are up; and that path and routes answer for
// routers that have no table.
func TestManyRoutingNodes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("torus,20,20,1,21", "--nodes", "router")
	ping := func(to string, hops int) {
		t.Helper()
		contains(t, m.twice("h1x1", to, "-t 100"), fmt.Sprintf("ttl=%d", 64-hops))
	}
	const across = 21 // 10 rows, 10 columns, and the last router
	ping("h11x11", across)
	ping("h2x2", 3)
	m.ok("ping", "h6x6", "h16x16", "--timeout", "30s")
	links := []string{"r1x1-r1x2", "r1x1-r2x1", "r1x20-r1x1", "r20x1-r1x1"}
	for _, l := range links[:3] {
		m.ok("link", "set", l, "down")
		m.twice("h1x1", "h11x11")
	}
	ping("h2x2", 5) // up, right, right, down, down
	for _, l := range links[:3] {
		m.ok("link", "set", l, "up")
	}
	ping("h2x2", 3)
	contains(t, m.ok("path", "h1x1", "h11x11"), "more paths")
	if n := len(jsonOf[struct{ Routes []struct{ Prefix string } }](m, "routes", "r7x7").Routes); n != 820 {
		t.Errorf("r7x7 has %d routes, and there are 820 subnets", n)
	}
	m.ok("down")
	m.unchanged(before)
}

// lsa is what tells two instances of an LSA apart.
type lsa struct{ Router, Sequence, Checksum string }

// TestFlappingLinks proves that while links of an area of 50 routing nodes go down and up, a dozen
// in a second or two, FRR follows: in the end all links are up, FRR's database has the same LSAs as
// the area's, instance by instance, its kernel has a route to every network, and no adjacency of it
// has been lost.
func TestFlappingLinks(t *testing.T) {
	if _, err := routerd.Of(topology.FRR).Path("ospfd"); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("area.yaml", `
defaults: {link: {ospf: {hello: 1s, dead: 20s}}}
nodes: {"r[1-50]": {router: {ospf: area 0}}, frr: {router: {ospf: area 0, datapath: frr}}, "h[1-2]": host}
links:
  - "r[1-50] -- r[2-50,1]"
  - "r[1-12] -- r[25-36]"
  - [r1 -- frr, h1 -- r20, h2 -- frr]
`))
	eventually(t, "FRR has all routes", func() bool { return m.routesInKernel("frr") == 65 })
	before := m.descriptions("r1")
	result := jsonOf[struct{ Flaps, Links int }](m, "link", "flap", "--rate", "10", "--for", "2s", "--down", "500ms")
	if result.Flaps < 1 || result.Links != 62 {
		t.Errorf("%+v", result)
	}
	for _, l := range jsonOf[struct {
		Topology struct{ Links []struct{ Down bool } }
	}](m, "inspect").Topology.Links {
		if l.Down {
			t.Error("a link has stayed down")
		}
	}
	eventually(t, "FRR's database is the area's", func() bool { return maps.Equal(m.ownLSAs(), m.lsasOfFRR("frr")) })
	eventually(t, "FRR has all routes again", func() bool { return m.routesInKernel("frr") == 65 })
	m.ok("ping", "h1", "h2", "--timeout", "30s")
	if after := m.descriptions("r1"); after != before {
		t.Errorf("the adjacency with FRR has begun anew: r1 had sent %d Database Descriptions, and now %d", before, after)
	}
	r := m.want(1, "link", "flap", "r1-r3")
	contains(t, r.err, "there is no link r1-r3")
	m.want(1, "link", "flap", "--rate", "0")
}

// routesInKernel counts the networks that a router's kernel has routes to: BIRD gives it its own
// ones twice.
func (m *machine) routesInKernel(router string) int {
	m.t.Helper()
	networks := map[string]bool{}
	for line := range strings.Lines(m.exec(router, "ip -oneline route")) {
		networks[strings.Fields(line)[0]] = true
	}
	return len(networks)
}

// ownLSAs returns the router-LSAs that the controller has, by the router that advertises each.
func (m *machine) ownLSAs() map[string]lsa {
	m.t.Helper()
	out := map[string]lsa{}
	for _, l := range jsonOf[[]struct {
		Type, Sequence, Checksum string
		AdvRtr                   string `json:"advertising_router"`
	}](m, "ospf", "database") {
		if l.Type == "router" {
			out[l.AdvRtr] = lsa{l.AdvRtr, strings.TrimPrefix(l.Sequence, "0x"), strings.TrimPrefix(l.Checksum, "0x")}
		}
	}
	return out
}

// lsasOfFRR returns those that an FRR router has.
func (m *machine) lsasOfFRR(router string) map[string]lsa {
	m.t.Helper()
	var database struct {
		Areas map[string]struct {
			RouterLinkStates []struct{ AdvertisedRouter, SequenceNumber, Checksum string }
		}
	}
	must(m.t, json.Unmarshal([]byte(m.exec(router, "vtysh -c 'show ip ospf database json'")), &database))
	out := map[string]lsa{}
	for _, a := range database.Areas {
		for _, l := range a.RouterLinkStates {
			out[l.AdvertisedRouter] = lsa{l.AdvertisedRouter, l.SequenceNumber, fmt.Sprintf("%04s", l.Checksum)}
		}
	}
	return out
}

// TestBigArea proves by the example that FRR and BIRD learn an area of a thousand routing nodes,
// and forward to it.
func TestBigArea(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	m.up(example("big-area.yaml"))
	for _, router := range []string{"frr", "bird"} {
		eventually(t, router+" has the routes to 2,005 networks", func() bool { return m.routesInKernel(router) == 2005 })
	}
	m.pingAll(6)
	m.ok("down")
	m.unchanged(before)
}
