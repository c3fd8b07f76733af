package ospf

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// chaos lets something happen: a link fails with or without its ends being told, comes back,
// changes its cost, loses packets; a router announces other external routes.
func (s *sim) chaos(routers []*Router) {
	l := s.links[s.rnd.IntN(len(s.links))]
	i := l.ends[s.rnd.IntN(len(l.ends))]
	switch s.rnd.IntN(7) {
	case 0:
		s.cut(l)
	case 1:
		i.Down(s.now)
	case 2:
		s.fail(l)
	case 3:
		i.SetCost(s.now, uint16(1+s.rnd.IntN(9)))
	case 4:
		l.loss = 0.3
	case 5:
		r := routers[s.rnd.IntN(len(routers))]
		var list []External
		for n := range s.rnd.IntN(4) {
			list = append(list, External{Prefix: netip.PrefixFrom(ID(0xc0000200+n<<8).Addr(), 24), Metric: uint32(s.rnd.IntN(20)), Type2: n == 1})
		}
		externals(s, r, list...)
	case 6:
		s.repair(l)
	}
}

// repair makes a link whole again.
func (s *sim) repair(l *simLink) {
	l.down, l.loss = false, 0
	for _, i := range l.ends {
		i.Up(s.now)
	}
}

// After twenty minutes in which links fail, flap, change and lose packets, everything is repaired
// but a few links; then databases are equal, and each router has the oracle's routes: whether each
// router is a domain, or some share one.
func TestChaos(t *testing.T) {
	for seed := range *seeds {
		for _, spread := range []int{0, 3} {
			t.Run(fmt.Sprint(seed, spread), func(t *testing.T) {
				s := newSim(t, seed)
				s.spread, s.segments = spread, spread > 0
				routers := s.areasNetwork(3)
				for range 120 {
					s.chaos(routers)
					s.run(time.Duration(s.rnd.IntN(20000)) * time.Millisecond)
				}
				for _, l := range s.links {
					s.repair(l)
				}
				s.run(5 * time.Minute)
				s.wantSame()
				for _, r := range routers {
					externals(s, r)
				}
				s.run(time.Minute)
				if n := len(routers[0].domain.Externals()); n != 0 {
					t.Errorf("%d AS-external-LSAs are left", n)
				}
				s.wantInter(routers)
				if len(s.errors) > 0 {
					t.Error(s.errors)
				}
			})
		}
	}
}
