package ospf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller/discovery"
)

// around is what discovery.Around returns of what is joined.
func (s *sim) around(only map[place]bool) joined {
	for known := -1; known < len(only); {
		known = len(only)
		if !s.widen(only) {
			s.t.Fatal("there are routers that do not know their ports")
		}
		for _, l := range s.joined.links {
			if from, to := (place{l.From, l.FromPort}), (place{l.To, l.ToPort}); only[from] || only[to] {
				only[from], only[to] = true, true
			}
		}
	}
	j := s.joined
	j.only, j.ports, j.links = only, nil, nil
	for _, p := range s.joined.ports {
		if only[place{p.Switch, p.Number}] {
			j.ports = append(j.ports, p)
		}
	}
	for _, l := range s.joined.links {
		if only[place{l.From, l.FromPort}] {
			j.links = append(j.links, l)
		}
	}
	return j
}

// picture is who is joined to whom, and the routes of all routers.
func (s *sim) picture() (out []string) {
	for _, r := range s.sorted {
		for _, p := range r.ports {
			line := fmt.Sprintf("%s %v", p.Name, p.engine.State())
			if p.segment != nil {
				for _, m := range p.segment.members {
					line += " " + m.Name
				}
			}
			out = append(out, line)
		}
		for _, l := range s.routes(r.DPID) {
			out = append(out, fmt.Sprintf("%s %v %d", r.Name, l.Prefix, l.Metric))
		}
	}
	return out
}

// move pulls a cable, plugs it in, or plugs it in elsewhere, and returns the ports that are
// concerned.
func (s *sim) move(rng *rand.Rand, away map[int][2]discovery.Link) map[place]bool {
	i := rng.IntN(len(s.joined.links)/2) * 2
	l := s.joined.links[i]
	at := map[place]bool{{l.From, l.FromPort}: true, {l.To, l.ToPort}: true}
	if was, ok := away[i]; ok { // it comes back
		delete(away, i)
		copy(s.joined.links[i:], was[:])
		l = was[0]
		at = map[place]bool{{l.From, l.FromPort}: true, {l.To, l.ToPort}: true}
		s.set(l.From, l.FromPort, true)
		s.set(l.To, l.ToPort, true)
		return at
	}
	away[i] = [2]discovery.Link(s.joined.links[i : i+2])
	s.joined.links[i], s.joined.links[i+1] = discovery.Link{}, discovery.Link{}
	s.set(l.From, l.FromPort, false)
	s.set(l.To, l.ToPort, false)
	return at
}

func (s *sim) set(dpid uint64, number uint32, up bool) {
	kind := discovery.Open
	if up {
		kind = discovery.Inner
	}
	s.known(dpid, number, kind)
	s.portIs(s.now, dpid, number, up)
}

// TestLooksAroundOnly proves that to look around what has changed alone comes to the same as to
// look at everything: in a network of 24 routers whose cables are pulled and plugged in by chance,
// one to four at a time, a look at everything after each change finds nothing to do, and all links
// are used in the end.
func TestLooksAroundOnly(t *testing.T) {
	const routers = 24
	rng := rand.New(rand.NewPCG(7, 7))
	s := newSim(t, routers)
	for i := range routers {
		s.link(i+1, (i+1)%routers+1)
		s.link(i+1, (i+5)%routers+1)
	}
	s.start()
	first := s.picture()
	away := map[int][2]discovery.Link{}
	for turn := range 150 {
		at := map[place]bool{}
		for range rng.IntN(4) + 1 {
			for p := range s.move(rng, away) {
				at[p] = true
			}
		}
		delete(at, place{})
		if !s.join(s.now, s.around(at)) {
			t.Fatal("it wants to look at everything")
		}
		s.run(2 * time.Second)
		narrow := s.picture()
		s.rejoin()
		if wide := s.picture(); !slices.Equal(narrow, wide) {
			t.Fatalf("turn %d: a look around found\n%q\na look at everything\n%q", turn, narrow, wide)
		}
	}
	for i, was := range away {
		copy(s.joined.links[i:], was[:])
		for _, l := range was {
			s.set(l.From, l.FromPort, true)
		}
		s.join(s.now, s.around(map[place]bool{{was[0].From, was[0].FromPort}: true}))
	}
	s.run(2 * time.Second)
	if last := s.picture(); !slices.Equal(first, last) {
		t.Errorf("with all cables plugged in:\n%q\nin the beginning:\n%q", last, first)
	}
}
