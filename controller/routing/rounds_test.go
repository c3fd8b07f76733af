package routing

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// share is a member's part of a change: its changes, in rounds, and which of these follow others'.
type share struct {
	rounds [][]change
	waits  map[int]bool
	at     int // its next round
}

// shares divides the routers of a network between members at random.
func shares(rng *rand.Rand, members int, from, to *network, what Traffic) (out []*share, now map[int]*Route) {
	now = map[int]*Route{}
	lists, own := make([][]change, members), make([]map[int]bool, members)
	for m := range members {
		own[m] = map[int]bool{}
	}
	for i := range from.routers {
		m := rng.IntN(members)
		own[m][i] = true
		now[i] = from.wayOf(i, what)
		if next := to.wayOf(i, what); next != nil && !next.leadsAs(now[i]) {
			lists[m] = append(lists[m], change{node: &node{index: i}, traffic: what, route: next, fresh: now[i] == nil})
		}
	}
	for m, list := range lists {
		r := &rounds{others: &others{net: to, before: []*network{from}}, own: own[m]}
		s := &share{waits: map[int]bool{}, rounds: make([][]change, len(from.routers)+1)}
		at, follows := layers(to, what, list, r)
		for i, layer := range at {
			s.rounds[layer] = append(s.rounds[layer], list[i])
			s.waits[layer] = s.waits[layer] || follows[i]
		}
		out = append(out, s)
		s.next(0)
	}
	return out, now
}

// next is the member's next round, not before the given one.
func (s *share) next(from int) {
	for s.at = from; s.at < len(s.rounds) && len(s.rounds[s.at]) == 0; s.at++ {
	}
}

// Proves that routers of several members, each of which changes its own in rounds and waits for the
// others only where one of its changes follows theirs, never send a packet in a circle, however
// unlike the members' pace is; and that they come to an end.
func TestNoLoopsOverMembers(t *testing.T) {
	circles := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := randomWires(rng, 14, 12)
		whole := w.network(t)
		without := w.without(rng.IntN(len(w.links) / 2)).network(t)
		for _, step := range [][2]*network{{whole, without}, {without, whole}} {
			for lan := range w.Routers {
				p := Traffic{To: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(lan), 0}), 24)}
				if circled(t, rng, step[0], step[1], p, true) {
					t.Fatalf("seed %d: a loop towards %v", seed, p)
				}
				if circled(t, rng, step[0], step[1], p, false) {
					circles++
				}
			}
		}
	}
	if circles == 0 {
		t.Error("without waiting there is no loop either: the test shows nothing")
	}
}

// circled has three members change the ways of some traffic, one round of one of them after the
// other, and says whether there was a loop at any time.
func circled(t *testing.T, rng *rand.Rand, from, to *network, what Traffic, waits bool) (loop bool) {
	t.Helper()
	list, now := shares(rng, 3, from, to, what)
	for {
		var ready []*share
		done := 0
		for _, s := range list {
			if s.at == len(s.rounds) {
				done++
				continue
			}
			free := true
			for _, o := range list {
				free = free && (!waits || !s.waits[s.at] || o == s || o.at >= s.at)
			}
			if free {
				ready = append(ready, s)
			}
		}
		if done == len(list) {
			return loop
		}
		if len(ready) == 0 {
			t.Fatal("members wait for each other")
		}
		s := ready[rng.IntN(len(ready))]
		for _, i := range rng.Perm(len(s.rounds[s.at])) {
			c := s.rounds[s.at][i]
			now[c.index] = c.route
			loop = loop || circle(now)
		}
		s.next(s.at + 1)
	}
}

// inRounds has members, with their stores, follow a picture.
func inRounds(t *testing.T, f func(k *store.Memory, members []*rounds)) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(nil, nil)
		var done sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		var members []*rounds
		for i := range 3 {
			name := fmt.Sprint("m", i+1)
			if err := s.Commit(ctx, nil, store.Put("cluster/member/"+name, nil)); err != nil {
				t.Fatal(err)
			}
			a := &App{ctx: ctx, changed: make(chan struct{}, 1)}
			a.Share(name, s)
			a.others.picture = "p"
			members = append(members, &rounds{others: a.others, app: a})
			if err := a.others.board.Start(ctx, &done); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		f(s, members)
		cancel()
		for _, m := range members {
			m.end()
		}
		done.Wait()
		s.Close()
	})
}

var one = []change{{}}

// Proves that a member waits for what the others say of the same picture, and not for its own word,
// nor for rounds that they do not have; and that a change of the network ends that.
func TestRoundsWait(t *testing.T) {
	inRounds(t, func(_ *store.Memory, m []*rounds) {
		m[1].begin([][]change{one, nil, one})
		m[2].begin(nil)
		waited := make(chan bool, 1)
		go func() { waited <- m[0].wait(1) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Fatal("it did not wait for m2's first round")
		default:
		}
		m[1].passed([][]change{one, nil, one}, 0)
		if !<-waited {
			t.Error("it was called off")
		}
		if !m[0].wait(2) {
			t.Error("m2 has no second round")
		}
		go func() { waited <- m[0].wait(3) }()
		synctest.Wait()
		m[0].app.again()
		if <-waited {
			t.Error("it goes on though the network has changed")
		}
		if len(m[0].app.changed) != 1 {
			t.Error("the change is forgotten")
		}
	})
}

// Proves that a member is not waited for that is there no more; that one which says nothing is, but
// not for longer than it takes to miss one that has died, and not again until it says something
// new.
func TestRoundsEnd(t *testing.T) {
	inRounds(t, func(s *store.Memory, m []*rounds) {
		m[1].begin(nil)
		began := time.Now()
		time.AfterFunc(200*time.Millisecond, func() { _ = s.Commit(context.Background(), nil, store.Delete("cluster/member/m3")) })
		if !m[0].wait(1) || time.Since(began) != 200*time.Millisecond {
			t.Errorf("m3 has gone, and was waited for %v", time.Since(began))
		}
	})
	inRounds(t, func(_ *store.Memory, m []*rounds) {
		defer patience.Rounds.Be(time.Second)()
		c, err := controller.New(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m[0].app.c = c
		m[1].begin(nil)
		for _, want := range []time.Duration{time.Second, 0} {
			if began := time.Now(); !m[0].wait(1) || time.Since(began) != want {
				t.Errorf("m3 says nothing, and was waited for %v, want %v", time.Since(began), want)
			}
			m[0].end()
		}
		m[2].begin([][]change{one, one})
		synctest.Wait()
		if m[0].past(1) {
			t.Error("it does not wait for one that has said something new")
		}
	})
}
