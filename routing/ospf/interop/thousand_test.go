package interop

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"trivet.dev/trivet/routing/ospf"
)

// A domain of a thousand routers, in a ring with chords, is seen by FRR as a thousand routers: it
// has the network of each in its kernel, and a cut inside of the domain changes its routes.
func TestThousandRoutersForFRR(t *testing.T) {
	needs(t, "/usr/lib/frr/ospfd", "/usr/lib/frr/zebra", "vtysh")
	ours, theirs := newSite(t), newSite(t)
	join(ours, theirs, "line", "10.1.1.1/30", "10.1.1.2/30")
	theirs.within(func() error { return up("lo", "192.0.2.2/32") })
	theirs.startFRR(frrBackbone)

	const n = 1000
	e := newEngine(t, ours, ospf.Config{})
	var routers []*ospf.Router
	var interfaces []*ospf.Interface
	for i := range n {
		r := e.router(fmt.Sprintf("9.0.%d.%d", i>>8, i&255))
		net, err := r.AddInterface(ospf.InterfaceConfig{Type: ospf.Broadcast, Passive: true, Address: netip.MustParsePrefix(fmt.Sprintf("172.%d.%d.1/24", 20+i>>8, i&255))})
		if err != nil {
			t.Fatal(err)
		}
		routers, interfaces = append(routers, r), append(interfaces, net)
	}
	links := 0
	link := func(a, b int) {
		ends := e.segment(routers[a], routers[b], fmt.Sprintf("10.%d.%d.%d/30", 3+links>>14, links>>6&255, links&63*4), 1)
		interfaces = append(interfaces, ends[:]...)
		links++
	}
	for i := range n {
		link(i, (i+1)%n)
		if i%10 == 0 {
			link(i, (i+n/2)%n)
		}
	}
	line := e.attach(routers[0], "line", fast(ospf.InterfaceConfig{Address: netip.MustParsePrefix("10.1.1.1/30"), Cost: 7}))
	for _, i := range interfaces {
		i.Up(time.Now())
	}
	e.run()
	wait(t, 30*time.Second, func() string { return e.notFull(1, line) })
	networks := func() (count int) {
		for p := range theirs.kernelRoutes(protocolOSPF) {
			if p.Bits() == 24 {
				count++
			}
		}
		return count
	}
	wait(t, 60*time.Second, func() string {
		if got := networks(); got != n {
			return fmt.Sprintf("FRR has %d networks in its kernel", got)
		}
		return ""
	})
	e.do(func(now time.Time) { interfaces[500].Down(now) })
	wait(t, 30*time.Second, func() string {
		if got := networks(); got != n-1 {
			return fmt.Sprintf("after one network went FRR has %d", got)
		}
		return ""
	})
}
