package centre

import (
	"cmp"
	"errors"
	"slices"
)

// Switch is what one switch costs its master.
type Switch struct {
	DPID   uint64
	Master string // a member; or one that is gone
	Fixed  bool   // it stays where it is

	Nodes      int
	Addresses  int
	Southbound uint64
}

// Move is that a switch is to have another master.
type Move struct {
	DPID     uint64
	From, To string
}

// Limits say when switches move, and how many. How unequal members are is how much the busiest
// has more than the least busy, as a share of what all have on average.
type Limits struct {
	AtOnce int     // moves at a time; 0: none are ever made
	Start  float64 // moves begin when members are more unequal than this,
	Stop   float64 // and end when they are no more than this
}

// DefaultLimits are the limits where none are given.
var DefaultLimits = Limits{AtOnce: 50, Start: 0.25, Stop: 0.1}

// Check says what limits would not end, or never begin.
func (l Limits) Check() error {
	switch {
	case l.AtOnce < 0 || l.AtOnce > 10_000:
		return errors.New("moves at a time are from 0 (never) to 10,000")
	case !(l.Stop >= 0 && l.Stop < l.Start):
		return errors.New("moves begin where members are more unequal than where they end:  start 0.25, stop 0.1")
	}
	return nil
}

// Plan says which switches are to move now. A member is given with what it has beside these
// switches. going says that moves have been made before, and are not at their end.
//
// What has no master that is there goes to the least busy. Each other move is from a member that is
// busier to the least busy one, and takes no more than the difference: so the busiest never has
// more than before, the least busy never less, and moves come to an end, whatever the switches are
// like.
func (m Measure) Plan(members []Member, switches []Switch, l Limits, going bool) []Move {
	if len(members) == 0 || l.AtOnce <= 0 {
		return nil
	}
	p := newPlanner(m.totals(members, switches), members, switches)
	var moves []Move
	for _, s := range p.orphans {
		if len(moves) == l.AtOnce {
			return moves
		}
		to := p.members[0]
		moves = append(moves, Move{s.dpid, s.from, to.name})
		to.busy += s.cost
		p.sort()
	}
	most := l.Start
	if going {
		most = l.Stop
	}
	for len(moves) < l.AtOnce {
		move, ok := p.next(most)
		if !ok {
			break
		}
		moves, most = append(moves, move), l.Stop
	}
	return moves
}

// planner is a plan that is being made.
type planner struct {
	members []*planned // the least busy first
	orphans []costly
	mean    float64
}

type planned struct {
	name  string
	busy  float64
	moves []costly // what may be moved, by cost
}

// costly is a switch, and what it adds to the busyness of its master.
type costly struct {
	dpid uint64
	from string
	cost float64
}

func newPlanner(t totals, members []Member, switches []Switch) *planner {
	p := &planner{}
	byName := map[string]*planned{}
	for _, x := range members {
		one := &planned{name: x.Name, busy: t.share(x).Busyness}
		p.members, byName[x.Name] = append(p.members, one), one
	}
	for _, s := range switches {
		x := costly{s.DPID, s.Master, t.share(Member{Nodes: s.Nodes, Addresses: s.Addresses, Southbound: s.Southbound}).Busyness}
		switch master := byName[s.Master]; {
		case master != nil:
			if master.busy += x.cost; !s.Fixed {
				master.moves = append(master.moves, x)
			}
		case !s.Fixed:
			p.orphans = append(p.orphans, x)
		}
		p.mean += x.cost / float64(len(members))
	}
	for _, one := range p.members {
		slices.SortFunc(one.moves, costly.compare)
	}
	for _, x := range members {
		p.mean += t.share(x).Busyness / float64(len(members))
	}
	slices.SortFunc(p.orphans, func(a, b costly) int { return cmp.Compare(a.dpid, b.dpid) })
	p.sort()
	return p
}

// compare orders by cost; of the same cost, the lowest datapath id is the last, which moves first.
func (x costly) compare(y costly) int {
	return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(y.dpid, x.dpid))
}

func (p *planner) sort() {
	slices.SortFunc(p.members, func(a, b *planned) int { return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.name, b.name)) })
}

// dust is a difference that is one of rounding only.
const dust = 1e-9

// worthwhile is the most that a move may take of what two members differ by. One that takes nearly
// all of it turns them round: as unequal as before, but for what their traffic happens to differ
// by.
const worthwhile = 0.8

// next makes a move, if members are more unequal than that, from the busiest that has a switch
// whose move makes a difference.
func (p *planner) next(most float64) (Move, bool) {
	to := p.members[0]
	for _, from := range slices.Backward(p.members[1:]) {
		gap := from.busy - to.busy
		if gap <= max(most, dust)*p.mean {
			return Move{}, false
		}
		i, ok := from.best(gap)
		if !ok {
			continue
		}
		x := from.moves[i]
		from.moves = slices.Delete(from.moves, i, i+1) // for this time it moves no more
		from.busy -= x.cost
		to.busy += x.cost
		p.sort()
		return Move{x.dpid, from.name, to.name}, true
	}
	return Move{}, false
}

// best is the switch whose move makes two members most equal that differ by gap: that which is
// nearest to half of it, and worthwhile.
func (x *planned) best(gap float64) (int, bool) {
	above, _ := slices.BinarySearchFunc(x.moves, gap/2, func(c costly, half float64) int {
		if c.cost <= half {
			return -1
		}
		return 1
	})
	best := above - 1
	if above < len(x.moves) && x.moves[above].cost <= gap*worthwhile && (best < 0 || x.moves[above].cost < gap-x.moves[best].cost) {
		best = above
	}
	if best < 0 || x.moves[best].cost <= 0 {
		return 0, false
	}
	return best, true
}
