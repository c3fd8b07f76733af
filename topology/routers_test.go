package topology

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestMakeRouters proves that switches turned into routers keep their names, links and impairments,
// and lose what routers do not have; that hosts that shared a subnet are then in different ones;
// and that a topology that already has routers is refused.
func TestMakeRouters(t *testing.T) {
	top := mustGenerate(t, "linear,3")
	for i, h := range top.NodesOf(Host) {
		h.Addresses = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/8", i+1))}
	}
	top.NodesOf(Switch)[0].STP = true
	top.Links[0].Delay = Duration(5e6)
	if err := top.MakeRouters(); err != nil {
		t.Fatal(err)
	}
	r, problems := Resolve(top, Defaults{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if len(r.NodesOf(Switch)) != 0 || len(r.NodesOf(Router)) != 3 || r.NodesOf(Router)[0].Name != "s1" || r.Links[0].Delay != Duration(5e6) {
		t.Errorf("%+v", r.NodesOf(Router)[0])
	}
	seen := map[string]bool{}
	for _, l := range r.Links {
		for _, e := range l.Ends {
			for _, a := range e.Addresses {
				if r.Node(e.Node).Kind == Host {
					seen[a.Masked().String()] = true
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the hosts are in %v", seen)
	}
	if top.MakeRouters() == nil {
		t.Error("routers are made routers")
	}
}
