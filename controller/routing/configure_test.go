package routing

import (
	"net/netip"
	"slices"
	"testing"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// TestAskedWhileConfigured proves that routers which have just come, or have moved to another place
// in the configuration, can be asked for their routes before the network has been looked at again.
func TestAskedWhileConfigured(t *testing.T) {
	router := func(dpid uint64, subnet string) Router {
		return Router{DPID: dpid, Name: subnet, Interfaces: []Interface{{Port: 1, Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix(subnet)}}}}
	}
	a, err := New(discovery.New(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, routers := range [][]Router{{}, {router(1, "10.0.1.1/24"), router(2, "10.0.2.1/24")}, {router(2, "10.0.2.1/24")}, {}} {
		if err := a.Configure(Config{Routers: routers}); err != nil {
			t.Fatal(err)
		}
		ask := func() {
			for dpid := range uint64(4) {
				a.RoutesOf(dpid)
				a.Lookup(dpid, netip.MustParseAddr("10.0.1.9"))
			}
		}
		ask()
		a.follow()
		ask()
	}
}

// Proves that who goes on with a router where another controller has had it changes nothing: a next
// hop has the MAC that the other knew, by the entry for it as a neighbour.
func TestGoesOnWithNeighbors(t *testing.T) {
	app, _, _ := single(t)
	to, via := netip.MustParsePrefix("10.7.0.0/16"), netip.MustParseAddr("10.0.2.9")
	config := app.config
	config.Routers = slices.Clone(config.Routers)
	config.Routers[0].Static = []StaticRoute{{To: to, Via: via}}
	if err := app.Configure(config); err != nil {
		t.Fatal(err)
	}
	n := app.node(1)
	n.mu.Lock()
	n.learn(n.itf[2], via, openflow.MAC{2, 9, 9, 9, 9, 9}, true)
	n.mu.Unlock()
	key := routeKey(to)
	until.True(t, "the route leads to its next hop", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		m := n.rules.Flow(key)
		return m != nil && slices.ContainsFunc(m.Instructions[0].Actions, func(a openflow.Action) bool { return a.Type == openflow.ActionOutput && a.Port == 2 })
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.neighbors)
	changes, gone := n.compare()
	for _, c := range changes {
		t.Errorf("%v changes", c.traffic.To)
	}
	if nb := n.neighbors[via]; len(gone) > 0 || nb == nil || nb.mac != (openflow.MAC{2, 9, 9, 9, 9, 9}) {
		t.Errorf("removed: %v; the next hop: %+v", gone, nb)
	}
}
