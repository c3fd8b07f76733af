package centre

import (
	"cmp"
	"errors"
	"slices"
)

// Switch is a switch and its cost for its master.
type Switch struct {
	DPID   uint64
	Master string // a member, possibly one that is gone
	Fixed  bool   // it must not be moved

	Nodes      int
	Addresses  int
	Southbound uint64
}

// Move is a requested change of a switch's master.
type Move struct {
	DPID     uint64
	From, To string
}

// Limits determine when switches are moved, and how many. Imbalance is the difference between the
// busiest and the least busy member, as a share of the average.
type Limits struct {
	AtOnce int     // moves at a time; 0: none are ever made
	Start  float64 // moves begin when the imbalance exceeds this,
	Stop   float64 // and end when it does not exceed this
}

// DefaultLimits are the limits if none are given.
var DefaultLimits = Limits{AtOnce: 50, Start: 0.25, Stop: 0.1}

// Check reports limits with which moves would never end, or never begin.
func (l Limits) Check() error {
	switch {
	case l.AtOnce < 0 || l.AtOnce > 10_000:
		return errors.New("moves at a time are from 0 (never) to 10,000")
	case !(l.Stop >= 0 && l.Stop < l.Start):
		return errors.New("the imbalance at which moves start must be greater than that at which they stop:  start 0.25, stop 0.1")
	}
	return nil
}

// Plan returns the moves to make now. A member's load is given without these switches. going says
// that moves have been made before and have not reached Stop.
//
// Switches without a live master go to the least busy member. Every other move is from a busier
// member to the least busy one, and moves no more than their difference: so the busiest member
// never gets more than before, the least busy never less, and moves end, whatever the switches'
// costs.
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

// planner is a plan in progress.
type planner struct {
	members []*planned // the least busy first
	orphans []costly
	mean    float64
}

type planned struct {
	name  string
	busy  float64
	moves []costly // switches that may be moved, by cost
}

// costly is a switch, and its contribution to its master's busyness.
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
		x := costly{s.DPID, s.Master, t.share(Member{Nodes: s.Nodes, Addresses: s.Addresses,
			Southbound: s.Southbound}).Busyness}
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

// compare orders by cost; among equals the lowest datapath id is last, and is moved first.
func (x costly) compare(y costly) int {
	return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(y.dpid, x.dpid))
}

func (p *planner) sort() {
	slices.SortFunc(p.members,
		func(a, b *planned) int { return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.name, b.name)) })
}

// dust is the size of rounding errors.
const dust = 1e-9

// worthwhile is the largest share of the difference between two members that a move may transfer.
// Nearly all of it would merely swap their roles, apart from fluctuations of their traffic.
const worthwhile = 0.8

// next makes one move, if the imbalance exceeds most: from the busiest member that has a switch
// worth moving.
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
		from.moves = slices.Delete(from.moves, i, i+1) // it is not considered any more in this plan
		from.busy -= x.cost
		to.busy += x.cost
		p.sort()
		return Move{x.dpid, from.name, to.name}, true
	}
	return Move{}, false
}

// best returns the switch whose move makes two members that differ by gap most equal: the one
// closest to half of it, if worthwhile.
func (x *planned) best(gap float64) (int, bool) {
	above, _ := slices.BinarySearchFunc(x.moves, gap/2, func(c costly, half float64) int {
		if c.cost <= half {
			return -1
		}
		return 1
	})
	best := above - 1
	if above < len(x.moves) && x.moves[above].cost <= gap*worthwhile &&
		(best < 0 || x.moves[above].cost < gap-x.moves[best].cost) {
		best = above
	}
	if best < 0 || x.moves[best].cost <= 0 {
		return 0, false
	}
	return best, true
}
