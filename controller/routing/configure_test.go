package routing

import (
	"net/netip"
	"testing"

	"trivet.dev/trivet/controller/discovery"
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
