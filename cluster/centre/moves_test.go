package centre

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// field is a cluster on which moves are made as they are planned.
type field struct {
	m        Measure
	members  []Member
	switches []Switch
	going    bool
}

// busy is the busyness of members, the least first.
func (f *field) busy() []float64 {
	of := map[string]Member{}
	for _, x := range f.members {
		of[x.Name] = x
	}
	for _, s := range f.switches {
		if x, ok := of[s.Master]; ok {
			x.Nodes, x.Addresses, x.Southbound = x.Nodes+s.Nodes, x.Addresses+s.Addresses, x.Southbound+s.Southbound
			of[s.Master] = x
		}
	}
	var out []float64
	t := f.m.totals(f.members, f.switches)
	for _, x := range of {
		out = append(out, t.share(x).Busyness)
	}
	slices.Sort(out)
	return out
}

// unequal is how much the busiest has more, as a share of what all have on average.
func (f *field) unequal() float64 {
	b, sum := f.busy(), 0.
	for _, x := range b {
		sum += x
	}
	if sum == 0 {
		return 0
	}
	return (b[len(b)-1] - b[0]) / sum * float64(len(b))
}

func (f *field) round(l Limits) []Move {
	moves := f.m.Plan(f.members, f.switches, l, f.going)
	f.going = len(moves) > 0
	for _, m := range moves {
		for i := range f.switches {
			if s := &f.switches[i]; s.DPID == m.DPID {
				s.Master = m.To
			}
		}
	}
	return moves
}

func (f *field) masters() map[string]int {
	out := map[string]int{}
	for _, s := range f.switches {
		out[s.Master]++
	}
	return out
}

func (f *field) live(names ...string) {
	f.members = nil
	for _, n := range names {
		f.members = append(f.members, Member{Name: n})
	}
}

// Proves of any cluster that moves are few at a time, of switches that may move, each once and to
// another member that is there; that the busiest never has more than before and the least busy
// never less; that they come to an end; and that at the end nobody is without a master, and moves
// do not begin again by themselves.
func TestMovesOfAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &field{m: drawMeasure(t), members: drawMembers(t, 1)}
		n := rapid.IntRange(0, 60).Draw(t, "switches")
		for i := range n {
			master := rapid.IntRange(0, len(f.members)).Draw(t, "master") // one more than there are: it is gone
			f.switches = append(f.switches, Switch{DPID: uint64(i + 1), Master: fmt.Sprintf("c%d", master), Fixed: rapid.IntRange(0, 9).Draw(t, "fixed") == 0,
				Nodes: 1, Addresses: rapid.IntRange(0, 50).Draw(t, "addresses"), Southbound: rapid.Uint64Range(0, 1<<30).Draw(t, "southbound")})
		}
		l := Limits{AtOnce: rapid.IntRange(1, 20).Draw(t, "at once"), Start: 0.25, Stop: 0.1}
		rounds, total := 0, 0
		for {
			lost := 0
			for _, s := range f.switches {
				if _, ok := index(f.members, s.Master); !ok && !s.Fixed {
					lost++
				}
			}
			before, was := f.busy(), maps.Clone(masterOf(f.switches))
			moves := f.round(l)
			after := f.busy()
			if len(moves) > l.AtOnce {
				t.Fatalf("%d moves at once", len(moves))
			}
			seen := map[uint64]bool{}
			for _, m := range moves {
				if _, there := index(f.members, m.To); !there || m.From == m.To || was[m.DPID] != m.From || seen[m.DPID] || f.switches[m.DPID-1].Fixed {
					t.Fatalf("%+v", m)
				}
				seen[m.DPID] = true
			}
			if lost == 0 && (after[len(after)-1] > before[len(before)-1]+1e-9 || after[0] < before[0]-1e-9) {
				t.Fatalf("members are more unequal than before: %v, %v", before, after)
			}
			if len(moves) == 0 {
				if lost > 0 {
					t.Fatalf("%d switches are left without a master", lost)
				}
				break
			}
			total += len(moves)
			if rounds++; total > 20*n+20 {
				t.Fatalf("%d moves of %d switches in %d rounds, and no end", total, n, rounds)
			}
		}
		if again := f.round(l); len(again) > 0 {
			t.Fatalf("at rest they begin again: %v", again)
		}
	})
}

func index(members []Member, name string) (int, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
	return i, i >= 0
}

func masterOf(list []Switch) map[uint64]string {
	out := map[uint64]string{}
	for _, s := range list {
		out[s.DPID] = s.Master
	}
	return out
}

// Proves that a little inequality moves nothing, more does, and that once begun it goes on to less.
func TestHysteresis(t *testing.T) {
	f := &field{m: Default}
	f.live("c1", "c2")
	for i := range uint64(100) {
		f.switches = append(f.switches, Switch{DPID: i + 1, Master: map[bool]string{true: "c1", false: "c2"}[i < 55], Nodes: 1})
	}
	l := Limits{AtOnce: 2, Start: 0.25, Stop: 0.1}
	if moves := f.round(l); len(moves) > 0 { // 55 to 45 is 0.2 of 50
		t.Errorf("%d moves at 0.2", len(moves))
	}
	for i := 55; i < 60; i++ {
		f.switches[i].Master = "c1" // 60 to 40 is 0.4
	}
	total := 0
	for moves := f.round(l); len(moves) > 0; moves = f.round(l) {
		total += len(moves)
	}
	if total != 8 || f.unequal() > l.Stop { // 52 to 48 is 0.08
		t.Errorf("%d moves, and members are unequal by %v", total, f.unequal())
	}
	if (&field{m: Default, members: f.members, switches: f.switches}).round(Limits{AtOnce: 0, Start: 1}) != nil {
		t.Error("moves that are never to be made")
	}
}

// Proves that one heavy switch that nobody else could have without being as busy does not go to and
// fro, and that a heavy one that moves is the one that makes the most difference.
func TestHeavySwitch(t *testing.T) {
	f := &field{m: Measure{Weights{0, 0, 1}, 100}}
	f.live("c1", "c2")
	f.switches = []Switch{{DPID: 1, Master: "c1", Southbound: 90}, {DPID: 2, Master: "c1"}}
	if moves := f.round(DefaultLimits); len(moves) > 0 {
		t.Error(moves)
	}
	f.switches = []Switch{{DPID: 1, Master: "c1", Southbound: 50}, {DPID: 2, Master: "c1", Southbound: 40}, {DPID: 3, Master: "c1", Southbound: 5}}
	if moves := f.round(DefaultLimits); len(moves) != 1 || moves[0].DPID != 1 && moves[0].DPID != 2 {
		t.Error(moves)
	}
}

// Proves of small clusters, whose switches differ by a little traffic only, that a move is made
// exactly when members have numbers of switches that differ by two or more: 2, 1, 1 stay so.
func TestNothingMovesForNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &field{m: Default, members: drawMembers(t, 1)}
		for i := range rapid.IntRange(0, 12).Draw(t, "switches") {
			f.switches = append(f.switches, Switch{DPID: uint64(i + 1), Master: rapid.SampledFrom(f.members).Draw(t, "master").Name, Nodes: 1,
				Southbound: rapid.Uint64Range(0, 100_000).Draw(t, "southbound")})
		}
		for i := range f.members {
			f.members[i] = Member{Name: f.members[i].Name}
		}
		apart := func() int {
			least, most := len(f.switches), 0
			for _, m := range f.members {
				n := f.masters()[m.Name]
				least, most = min(least, n), max(most, n)
			}
			return most - least
		}
		for {
			before := apart()
			moves := f.round(Limits{AtOnce: 1, Start: 0.25, Stop: 0.1})
			if (len(moves) > 0) != (before >= 2) {
				t.Fatalf("with %v of members: %v", f.masters(), moves)
			}
			if len(moves) == 0 {
				return
			}
		}
	})
}

// figures puts nodes on members as they come and go, and says in the log what that took.
func figures(t *testing.T, nodes int, steps ...int) {
	random := rand.New(rand.NewPCG(1, 2))
	f := &field{m: Default}
	for i := range nodes {
		f.switches = append(f.switches, Switch{DPID: uint64(i + 1), Nodes: 1, Addresses: 2 + random.IntN(8), Southbound: random.Uint64N(20_000)})
	}
	for _, n := range steps {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("c%d", i+1))
		}
		f.live(names...)
		before := maps.Clone(masterOf(f.switches))
		begun, rounds, moves := time.Now(), 0, 0
		for made := f.round(DefaultLimits); len(made) > 0; made = f.round(DefaultLimits) {
			if len(made) > DefaultLimits.AtOnce {
				t.Fatalf("%d moves at once", len(made))
			}
			rounds, moves = rounds+1, moves+len(made)
		}
		moved := 0
		for dpid, m := range masterOf(f.switches) {
			if before[dpid] != m {
				moved++
			}
		}
		got := f.masters()
		t.Logf("%d nodes over %d members: %v, unequal by %.3f; %d moves of %d switches in %d rounds, planned in %v a round", nodes, n, got, f.unequal(), moves, moved,
			rounds, (time.Since(begun) / time.Duration(max(1, rounds))).Round(time.Microsecond))
		if len(got) != n || f.unequal() > DefaultLimits.Stop+0.01 {
			t.Errorf("%v, unequal by %v", got, f.unequal())
		}
		if moves > nodes {
			t.Errorf("%d moves for %d switches", moves, nodes)
		}
	}
}

// Proves that nodes are spread over members as they come and go, without a switch moving twice on
// average: 1,000 over 3, then 5, then 2 members, and 10,000 over 3.
func TestFigures(t *testing.T) {
	figures(t, 1000, 3, 5, 2)
	figures(t, 10_000, 3)
}
