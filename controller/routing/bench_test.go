package routing

import (
	"net/netip"
	"testing"
)

// What a change of a network of 100 × 100 routers costs before a route can be computed, and what
// the routes of all of them to one prefix cost then.
func BenchmarkTorus(b *testing.B) {
	const side = 100
	w := newWires(1)
	w.Routers, w.up = nil, nil
	for i := range side * side {
		w.Routers = append(w.Routers, newWires(1).Routers[0])
		r := &w.Routers[i]
		r.DPID, r.Interfaces = uint64(i+1), nil
		w.up = append(w.up, map[uint32]bool{})
	}
	for i := range side * side {
		w.join(i, i/side*side+(i+1)%side, 1)
		w.join(i, (i+side)%(side*side), 1)
	}
	p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), 24)
	w.port(side*side/2+side/2, p, 1)
	w.Reactive = true
	if err := w.check(); err != nil {
		b.Fatal(err)
	}
	b.Run("Change", func(b *testing.B) {
		for b.Loop() {
			if _, err := newNetwork(&w.Config, w.up, w.links, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Routes", func(b *testing.B) {
		n, err := newNetwork(&w.Config, w.up, w.links, nil)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			clear(n.far)
			for i := range w.Routers {
				n.route(i, p.Masked())
			}
		}
	})
}
