package ospf_test

import (
	"fmt"
	"net/netip"
	"time"

	"trivet.dev/trivet/routing/ospf"
)

// Three routers of one domain in a row; between them no packet is exchanged.
func Example() {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d := ospf.NewDomain(ospf.Config{}, now)
	var routers []*ospf.Router
	for id := ospf.ID(1); id <= 3; id++ {
		r, _ := d.AddRouter(id)
		routers = append(routers, r)
	}
	join := func(a, b *ospf.Router, addrA, addrB string) {
		i, _ := a.AddInterface(ospf.InterfaceConfig{Address: netip.MustParsePrefix(addrA), Cost: 5})
		j, _ := b.AddInterface(ospf.InterfaceConfig{Address: netip.MustParsePrefix(addrB), Cost: 5})
		d.Connect(i, j)
		i.Up(now)
		j.Up(now)
	}
	join(routers[0], routers[1], "10.0.0.1/30", "10.0.0.2/30")
	join(routers[1], routers[2], "10.0.0.5/30", "10.0.0.6/30")

	for out := d.Poll(now); len(out.Changes) == 0; out = d.Poll(now) {
		now = out.Deadline
	}
	for _, route := range routers[0].Routes().Routes {
		fmt.Println(route)
	}
	// Output:
	// 10.0.0.0/30 intra-area cost 5 via 0.0.0.0
	// 10.0.0.4/30 intra-area cost 10 via 10.0.0.2
}
