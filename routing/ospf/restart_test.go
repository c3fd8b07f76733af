package ospf

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// gracePeriod is that of all restarts here.
const gracePeriod = 2 * time.Minute

// crash ends the process that has the routers, which are alone in their domains: nobody is told.
func (s *sim) crash(routers ...*Router) {
	for _, r := range routers {
		s.domains = slices.DeleteFunc(s.domains, func(d *simDomain) bool { return d.Domain == r.domain })
	}
}

// takeOver has a domain go on with a router of another one, which has crashed or gives it away.
func (s *sim) takeOver(r *Router, in *simDomain) *Router {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	up := map[*Interface]bool{}
	for _, i := range r.interfaces {
		if up[i] = i.isUp(); i.segment != nil {
			r.domain.Separate(s.now, i.segment, gracePeriod, func(m *Interface) (InterfaceConfig, bool) { return s.configs[m], m.router != r })
		}
	}
	r.Remove(s.now, false)
	next, err := in.AddRouter(r.id)
	must(err)
	next.Restart(s.now, gracePeriod)
	for _, i := range r.interfaces {
		l := s.on[i]
		x, err := next.AddInterface(s.configs[i])
		must(err)
		s.on[x], s.configs[x] = l, s.configs[i]
		delete(s.on, i)
		l.ends[slices.Index(l.ends, i)] = x
		if s.segments && len(l.ends) > 1 && !slices.ContainsFunc(l.ends, func(o *Interface) bool { return o.router.domain != in.Domain }) {
			for _, o := range l.ends {
				up[o] = up[o] || o.isUp()
				o.Down(s.now)
			}
			_, err := in.Connect(l.ends...)
			must(err)
			for _, o := range l.ends {
				if o != x && up[o] {
					o.Up(s.now)
				}
			}
		}
		if up[i] {
			x.Up(s.now)
		}
	}
	var list []External
	for _, e := range r.externals {
		list = append(list, e)
	}
	must(next.SetExternals(s.now, list))
	return next
}

// restartAfter crashes a router, and begins it anew after a time.
func (s *sim) restartAfter(r *Router, silent time.Duration) *Router {
	s.t.Helper()
	s.crash(r)
	s.run(silent)
	return s.takeOver(r, s.domain())
}

// tables are the routes of all routers that do not restart.
func (s *sim) tables() map[ID]string {
	out := map[ID]string{}
	for _, d := range s.domains {
		for _, r := range d.Routers() {
			if _, restarts := r.Restarting(); !restarts {
				out[r.id] = fmt.Sprint(r.Routes().Routes)
			}
		}
	}
	return out
}

// steady lets time pass in which no router may have other routes than those.
func (s *sim) steady(d time.Duration, want map[ID]string) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.run(50 * time.Millisecond)
		for id, got := range s.tables() {
			if got != want[id] {
				s.t.Fatalf("at %v router %v has\n%s, not\n%s\ntold is %v", s.now.Sub(simEpoch), id, got, want[id], s.told())
			}
		}
	}
}

// told lists what was told of restarts and help.
func (s *sim) told() (out []string) {
	for _, c := range s.restarts {
		text := "restart"
		if c.Interface != nil {
			text = fmt.Sprintf("help of %v by", c.Neighbor)
		}
		if text += fmt.Sprintf(" %v", c.Router.id); c.Begins {
			text += " begins"
		}
		out = append(out, strings.TrimSpace(text+" "+c.Reason))
	}
	return out
}

func (s *sim) wantTold(parts ...string) {
	s.t.Helper()
	all := strings.Join(s.told(), "\n")
	for _, p := range parts {
		if !strings.Contains(all, p) {
			s.t.Errorf("it is not told that %q; told is\n%s", p, all)
		}
	}
}

// wantNoGrace fails unless all grace-LSAs have left, and nobody helps or restarts.
func (s *sim) wantNoGrace() {
	s.t.Helper()
	for i := range s.on {
		if list := i.LSAs(); len(list) > 0 {
			s.t.Errorf("%v still has %v", i, list[0].LSAKey)
		}
		for _, n := range i.Neighbors() {
			if n.Helped != 0 {
				s.t.Errorf("%v still helps %v", i, n.ID)
			}
		}
	}
	for _, d := range s.domains {
		if len(d.restarts) != 0 || d.helping != 0 {
			s.t.Errorf("%d routers restart, %d are helped", len(d.restarts), d.helping)
		}
	}
}

// A router that its process has died with is begun again by another, on a broadcast network in each
// office, on point-to-point links and as a border router that announces an external network: nobody
// has another route at any time, it is what it was (sections 2 and 3, and 5).
func TestGracefulRestart(t *testing.T) {
	for office, priority := range map[InterfaceState]uint8{InterfaceDR: 9, InterfaceBackup: 5, InterfaceDROther: 1} {
		t.Run(office.String(), func(t *testing.T) {
			s := newSim(t, 1)
			r := s.routers(5)
			of := func(r *Router, p uint8) end { return at(r).with(func(c *InterfaceConfig) { c.Priority = p }) }
			lan := s.lan(0, of(r[0], priority), of(r[1], 7), of(r[2], 3))
			line := s.p2p(0, at(r[0]), at(r[3]))
			s.p2p(0, at(r[2]), at(r[3]).cost(50))
			s.p2p(1, at(r[0]), at(r[4]))
			s.stub(1, at(r[4]), "192.168.0.0/24")
			externals(s, r[0], External{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Metric: 3, Type2: true})
			s.run(2 * time.Minute)
			if got := lan.end(r[0]).State(); got != office {
				t.Fatalf("it is %v", got)
			}
			want, lsas := s.tables(), r[1].domain.Area(0).LSAs()
			dr, bdr := lan.end(r[1]).DR()

			s.crash(r[0])
			s.steady(15*time.Second, want)
			again := s.takeOver(r[0], s.domain())
			s.steady(3*time.Minute, want)

			if _, restarts := again.Restarting(); restarts || lan.state(r[1], again) != NeighborFull || line.state(r[3], again) != NeighborFull {
				t.Errorf("it restarts: %v; its neighbours have it as %v and %v", restarts, lan.state(r[1], again), line.state(r[3], again))
			}
			if d, b := lan.end(r[1]).DR(); d != dr || b != bdr || lan.end(again).State() != office {
				t.Errorf("it is %v; DR and Backup are %v and %v, were %v and %v", lan.end(again).State(), d, b, dr, bdr)
			}
			for i, l := range r[1].domain.Area(0).LSAs() {
				if l.LSAKey != lsas[i].LSAKey || !slices.Equal(l.Body, lsas[i].Body) {
					t.Errorf("there is %v in place of %v", l.LSAKey, lsas[i].LSAKey)
				}
			}
			if own, _ := r[1].domain.Area(0).LSA(LSAKey{TypeRouter, again.id, again.id}); own.Age > 180 {
				t.Errorf("its router-LSA is %d s old: it was not originated again (section 2.3 (1))", own.Age)
			}
			s.wantTold(fmt.Sprintf("restart %v begins", again.id), fmt.Sprintf("restart %v all neighbours of before are adjacent", again.id),
				fmt.Sprintf("help of %v by %v begins", again.id, r[3].id), fmt.Sprintf("help of %v by %v it has restarted", again.id, r[3].id))
			s.wantSame()
			s.wantNoGrace()
			if len(s.errors) > 0 {
				t.Error(s.errors)
			}
		})
	}
}

// A router is taken over shortly after the network has changed, and is helped all the same, as its
// neighbours know that it has followed: by itself it has told them after ackDelay, and at once when
// it is asked whether it may restart, which it may from then on (section 3.1 (2)).
func TestRestartAfterChange(t *testing.T) {
	for what, follow := range map[string]func(*sim, *Router){
		"its process dies": func(s *sim, _ *Router) { s.run(2 * ackDelay) },
		"it is handed over": func(s *sim, r *Router) {
			s.run(5 * s.delay) // the LSA has come, and waits to be acknowledged and calculated with
			if r.MayRestart(s.now) {
				t.Error("it may restart before its neighbours know what it has")
			}
			s.run(5 * s.delay)
			for _, w := range r.domain.wires {
				if len(w.delayed) > 0 {
					t.Errorf("%v still waits to acknowledge", w)
				}
			}
			s.run(s.domains[0].cfg.SPF.Initial)
			if !r.MayRestart(s.now) {
				t.Error("it may not restart though all is known")
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSim(t, 1)
			r, links := square(s)
			links[1].end(r[2]).SetCost(s.now, 11)
			follow(s, r[0])
			want := s.tables()
			s.crash(r[0])
			again := s.takeOver(r[0], s.domain())
			s.steady(time.Minute, want)
			s.wantTold(fmt.Sprintf("restart %v all neighbours of before are adjacent", again.id),
				fmt.Sprintf("help of %v by %v it has restarted", again.id, r[1].id), fmt.Sprintf("help of %v by %v it has restarted", again.id, r[3].id))
			s.wantNoGrace()
		})
	}
}

// A router that waits for something of a neighbour, restarts, or helps one that does, may not be
// handed over.
func TestMayRestart(t *testing.T) {
	s := newSim(t, 1)
	r, links := square(s)
	may := func(when string, want ...bool) {
		t.Helper()
		for i, r := range r {
			if got := r.MayRestart(s.now); got != want[i] {
				t.Errorf("%s router %v may restart: %v", when, r.id, got)
			}
		}
	}
	may("at rest", true, true, true, true)
	r[0] = s.restartAfter(r[0], time.Second)
	s.run(graceSpacing)
	may("while the first restarts", false, false, true, false)
	s.run(time.Minute)
	may("when it has", true, true, true, true)
	links[1].end(r[1]).SetCost(s.now, 11)
	s.drop = func(g Datagram) bool { return g.Payload[1] == byte(TypeLinkStateAck) }
	s.run(time.Second)
	// The two that are farthest have sent it to each other, which counts (section 13.5, table 19).
	may("while changes are not acknowledged", true, false, false, true)
	s.drop = nil
	s.run(time.Minute)
	may("at the end", true, true, true, true)
}

// The same where packets are lost: the first grace-LSAs may be among them, and then the adjacency
// ends as without; in the end all is well.
func TestGracefulRestartLossy(t *testing.T) {
	for seed := range *seeds {
		s := newSim(t, seed)
		s.loss = 0.2
		r := s.routers(3)
		s.lan(0, at(r[0]), at(r[1]), at(r[2]))
		s.p2p(0, at(r[0]), at(r[1]))
		s.stub(0, at(r[2]), "192.168.0.0/24")
		s.run(5 * time.Minute)
		for round := range 3 {
			r[round] = s.restartAfter(r[round], 5*time.Second)
			s.run(5 * time.Minute)
		}
		for _, l := range s.links {
			l.loss = 0
		}
		s.run(3 * time.Minute)
		s.wantSame()
		s.wantNoGrace()
		s.wantIntraArea(0, r)
	}
}

// square is four routers in a ring, each with a network of its own.
func square(s *sim) (r []*Router, links []*simLink) {
	r = s.routers(4)
	for i := range r {
		links = append(links, s.p2p(0, at(r[i]), at(r[(i+1)%4])))
		s.stub(0, at(r[i]), fmt.Sprintf("192.168.%d.0/24", i))
	}
	s.run(2 * time.Minute)
	return r, links
}

// Each way in which a restart can end at the router that restarts (section 2.2).
func TestRestartEnds(t *testing.T) {
	t.Run("2.2 (1) an adjacency of before comes late", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		want := s.tables()
		s.crash(r[0])
		links[3].apart = func(a, b *Interface) bool { return true } // to r[3]: for 50 s
		s.steady(10*time.Second, want)
		again := s.takeOver(r[0], s.domain())
		links[3].apart = func(a, b *Interface) bool { return a.router == again } // which does not hear
		s.steady(40*time.Second, want)
		if _, ok := again.Restarting(); !ok || links[0].state(again, r[1]) != NeighborFull {
			t.Errorf("it restarts: %v, though one neighbour is missing; the other is %v", ok, links[0].state(again, r[1]))
		}
		links[3].apart = nil
		s.steady(time.Minute, want)
		if _, ok := again.Restarting(); ok {
			t.Error("it still restarts")
		}
		s.wantNoGrace()
	})
	t.Run("2.2 (2) a neighbour has let it go", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		s.crash(r[0])
		links[0].end(r[1]).Down(s.now)
		s.run(5 * time.Second)
		again := s.takeOver(r[0], s.domain())
		s.run(30 * time.Second)
		s.wantTold("restart " + again.id.String() + " router " + r[1].id.String() + " has no link to it any more")
		s.wantRoute(again, "192.168.1.0/24 intra-area cost 40 via 10.0.7.1") // the long way
		s.wantRoute(r[3], "192.168.0.0/24 intra-area cost 20 via 10.0.7.2")
	})
	for office, priority := range map[string]uint8{"is not": 1, "is not Designated Router": 9} {
		t.Run("2.2 (2) it "+office+" on a broadcast network", func(t *testing.T) {
			s := newSim(t, 1)
			r := s.routers(3)
			of := func(r *Router, p uint8) end { return at(r).with(func(c *InterfaceConfig) { c.Priority = p }) }
			lan := s.lan(0, of(r[0], priority), of(r[1], 7), of(r[2], 5))
			other := s.p2p(0, at(r[0]), at(r[2]))
			s.run(2 * time.Minute)
			s.crash(r[0])
			for _, n := range lan.end(r[1]).wire.list() {
				if n.id == r[0].id {
					n.event(killNbr)
				}
			}
			lan.apart = func(a, b *Interface) bool { return a.router.id == r[0].id || b.router.id == r[0].id }
			s.run(time.Second)
			again := s.takeOver(r[0], s.domain())
			s.run(30 * time.Second)
			if _, ok := again.Restarting(); ok || other.state(again, r[2]) != NeighborFull {
				t.Errorf("it restarts: %v; told is %v", ok, s.told())
			}
			s.wantTold(map[uint8]string{
				1: "restart 0.0.1.1 network 10.0.1.0/24 has it not on it any more",
				9: "restart 0.0.1.1 router 0.0.1.2 does not take it for the Designated Router of 10.0.1.0/24 any more",
			}[priority])
		})
	}
	t.Run("2.2 (3) the grace period is over", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		alone := func(a, b *Interface) bool { return a.router.id == r[0].id }
		links[0].apart, links[3].apart = alone, alone // it does not hear anybody
		again := s.restartAfter(r[0], 5*time.Second)
		s.run(gracePeriod - time.Second)
		if _, ok := again.Restarting(); !ok {
			t.Fatalf("it does not restart any more: %v", s.told())
		}
		s.run(2 * time.Second)
		s.wantTold("restart " + again.id.String() + " the grace period is over")
		links[0].apart, links[3].apart = nil, nil
		s.run(time.Minute)
		r[0] = again
		s.wantIntraArea(0, r)
	})
	t.Run("nobody knows it", func(t *testing.T) {
		s := newSim(t, 1)
		a, b := s.router("1.1.1.1"), s.router("2.2.2.2")
		a.Restart(s.now, gracePeriod)
		s.p2p(0, at(a), at(b))
		s.run(40 * time.Second)
		s.wantTold("restart 1.1.1.1 area 0.0.0.0 has no router-LSA of it")
		s.wantNoGrace()
	})
	t.Run("nobody is there", func(t *testing.T) {
		s := newSim(t, 1)
		s.segments = true
		d := s.domain()
		a, b := s.routerIn(d, "1.1.1.1"), s.routerIn(d, "2.2.2.2")
		a.Restart(s.now, gracePeriod)
		b.Restart(s.now, gracePeriod)
		s.p2p(0, at(a), at(b))
		s.run(10 * time.Second)
		s.wantTold("restart 1.1.1.1 nobody outside is in area 0.0.0.0", "restart 2.2.2.2 nobody outside is in area 0.0.0.0")
		s.wantIntraArea(0, []*Router{a, b})
	})
}

// Each way in which help ends (section 3.2), and what is not helped (section 3.1).
func TestHelpEnds(t *testing.T) {
	t.Run("3.2 (2) the grace period is over", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		want := s.tables()
		again := s.restartAfter(r[0], 5*time.Second)
		s.steady(250*time.Millisecond, want) // the grace-LSA is out, no Hello
		s.crash(again)
		s.steady(gracePeriod-5*time.Second, want)
		s.run(10 * time.Second)
		s.wantTold(fmt.Sprintf("help of %v by %v its grace period is over", again.id, r[1].id))
		s.wantNoRoute(r[1], "192.168.0.0/24")
		if links[0].state(r[1], again) != NeighborDown {
			t.Error("it is still a neighbour")
		}
	})
	t.Run("3.2 (3) the network changes", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		want := s.tables()
		again := s.restartAfter(r[0], 5*time.Second)
		links[0].apart = func(a, b *Interface) bool { return a.router == again } // so that it goes on to restart
		s.steady(5*time.Second, want)
		s.fail(links[1]) // between r[1] and r[2]
		s.run(time.Second)
		s.wantTold(fmt.Sprintf("help of %v by %v the network has changed", again.id, r[1].id))
		links[0].apart = nil
		s.run(time.Minute)
		r[0] = again
		s.wantIntraArea(0, r)
		s.wantNoGrace()
	})
	t.Run("3.2 (3) an external network does not matter in a stub area", func(t *testing.T) {
		s := newSim(t, 1)
		r := s.routers(3)
		for _, x := range r[:2] {
			if _, err := x.domain.AddArea(AreaConfig{ID: 1, Stub: true}); err != nil {
				t.Fatal(err)
			}
		}
		stub := s.p2p(1, at(r[0]), at(r[1]))
		s.p2p(0, at(r[1]), at(r[2]))
		s.run(2 * time.Minute)
		d := s.domain()
		if _, err := d.AddArea(AreaConfig{ID: 1, Stub: true}); err != nil {
			t.Fatal(err)
		}
		s.crash(r[0])
		s.run(5 * time.Second)
		again := s.takeOver(r[0], d)
		stub.apart = func(a, b *Interface) bool { return a.router == again }
		s.run(5 * time.Second)
		externals(s, r[2], External{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Metric: 3})
		s.run(5 * time.Second)
		if stub.end(r[1]).Neighbors()[0].Helped == 0 {
			t.Errorf("it is not helped any more: %v", s.told())
		}
	})
	t.Run("3.1 (1) it is not adjacent any more", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		again := s.restartAfter(r[0], 45*time.Second)
		s.run(time.Minute)
		if strings.Contains(strings.Join(s.told(), ""), "help of 0.0.1.1 by 0.0.1.2 begins") || links[0].state(r[1], again) != NeighborFull {
			t.Errorf("it is %v; told is %v", links[0].state(r[1], again), s.told())
		}
		r[0] = again
		s.wantIntraArea(0, r)
		s.wantNoGrace()
	})
	t.Run("3.1 (2) the network has changed meanwhile", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		s.crash(r[0])
		s.run(time.Second)
		s.fail(links[1]) // of which r[1] cannot tell it
		s.run(time.Second)
		again := s.takeOver(r[0], s.domain())
		s.run(time.Second)
		s.wantTold(fmt.Sprintf("help of %v by %v the network has changed since it was last heard", again.id, r[1].id))
		s.run(2 * time.Minute)
		r[0] = again
		s.wantIntraArea(0, r)
	})
	t.Run("3.1 (3) its grace period was over before", func(t *testing.T) {
		s := newSim(t, 1)
		r, links := square(s)
		g := GraceLSA{Period: 5 * time.Second}
		lsa := NewLSA(LSAKey{TypeOpaqueLink, graceID, r[0].id}, OptionE, 1, 6, g.Encode())
		if err := links[0].end(r[1]).wire.neighbors[0].receiveLSA(lsa); err != nil {
			t.Fatal(err)
		}
		s.run(time.Second)
		s.wantTold(fmt.Sprintf("help of %v by %v its grace period is over", r[0].id, r[1].id))
	})
	t.Run("3.1 (5) both restart", func(t *testing.T) {
		s := newSim(t, 1)
		r, _ := square(s)
		want := s.tables()
		s.crash(r[0], r[1])
		s.steady(5*time.Second, want)
		r[0], r[1] = s.takeOver(r[0], s.domain()), s.takeOver(r[1], s.domain())
		s.steady(3*time.Minute, want) // none helps the other, and none says that it is gone
		s.wantNoGrace()
		if n := len(s.tables()); n != 4 {
			t.Errorf("%d routers have restarted", n)
		}
	})
	t.Run("it restarts again meanwhile", func(t *testing.T) {
		s := newSim(t, 1)
		r, _ := square(s)
		want := s.tables()
		for range 3 {
			r[0] = s.restartAfter(r[0], 2*time.Second)
			s.steady(2*time.Second, want)
		}
		s.steady(3*time.Minute, want)
		s.wantNoGrace()
	})
}

// What a router has announced and does not any more is flushed after its restart (section 2.3 (5)),
// what it has meant to announce again stays.
func TestRestartFlushesWhatIsStale(t *testing.T) {
	s := newSim(t, 1)
	r, _ := square(s)
	kept, gone := netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.0/24")
	externals(s, r[0], External{Prefix: kept, Metric: 3}, External{Prefix: gone, Metric: 3})
	s.run(time.Minute)
	s.crash(r[0])
	s.run(2 * time.Second)
	delete(r[0].externals, keyOfPrefix(gone))
	again := s.takeOver(r[0], s.domain())
	for has := true; has; _, has = again.Restarting() {
		s.wantRoute(r[2], "198.51.100.0/24 type 1 external cost 23 via 10.0.3.1 via 10.0.5.2")
		s.run(time.Second)
	}
	s.run(time.Minute)
	s.wantNoRoute(r[2], "198.51.100.0/24")
	s.wantRoute(r[2], "203.0.113.0/24 type 1 external cost 23 via 10.0.3.1 via 10.0.5.2")
}

// Routers go from one domain to another and back, over which a network of links and broadcast
// networks is spread; each domain shares a database, and packets flow between them only: nobody has
// another route meanwhile, and afterwards all have the oracle's.
func TestRoutersChangeDomains(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, seed)
			s.spread, s.segments = 3, true
			r := s.routers(8)
			for i := range r {
				s.p2p(0, at(r[i]), at(r[(i+1)%len(r)]))
				s.p2p(0, at(r[i]), at(r[s.rnd.IntN(i+1)/2+len(r)/2-1]).cost(20))
				s.stub(0, at(r[i]), fmt.Sprintf("192.168.%d.0/24", i))
			}
			s.run(2 * time.Minute)
			s.wantIntraArea(0, r)
			want := s.tables()
			for range 12 {
				i := s.rnd.IntN(len(r))
				to := s.domains[s.rnd.IntN(3)]
				if r[i].domain == to.Domain {
					continue
				}
				r[i] = s.takeOver(r[i], to)
				s.steady(time.Duration(s.rnd.IntN(20))*time.Second, want)
			}
			s.steady(30*time.Second, want)
			s.run(3 * time.Minute)
			s.wantNoGrace()
			s.wantIntraArea(0, r)
			if all := s.tables(); !maps.Equal(all, want) {
				t.Errorf("at the end there are %v, not %v", all, want)
			}
		})
	}
}

// A grace-LSA decodes to what was encoded; lengths that lie, and one without a period, are refused.
func TestGraceLSA(t *testing.T) {
	g := GraceLSA{Period: 2 * time.Minute, Reason: RestartReload, Address: 0x0a000001}
	if got, err := DecodeGrace(g.Encode()); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("%+v, %v", got, err)
	}
	unknown := append([]byte{0, 99, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0}, g.Encode()...)
	if got, err := DecodeGrace(unknown); err != nil || got != g {
		t.Errorf("%+v, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"no period":           {0, 2, 0, 1, 1, 0, 0, 0},
		"too short":           g.Encode()[:len(g.Encode())-1],
		"a length that lies":  {0, 1, 0, 200, 0, 0, 0, 9},
		"a period of 2 bytes": {0, 1, 0, 2, 0, 9, 0, 0},
	} {
		if _, err := DecodeGrace(b); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
