package learning

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/cluster/announce"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/store"
)

// The members of a cluster make one tree. Each computes it from the links that discovery knows, of
// all switches, by the same rule; but they do not learn of a change at the same time. So a member
// says, when the ports of its switches that are outside its tree are closed, and the switches have
// confirmed it:
//
//	view/tree/NAME    that all ports that are open at these switches are of that tree
//
// A port of a link opens when all members that are there have said so of the very tree that this
// member has now, and each link outside the tree is closed at one end at least by a switch of which
// that has been said: half a link carries nothing. Then what is open anywhere is a part of one
// tree. A member closes what a new tree has not before it says anything of that, and opens nothing
// until all have: so no two trees are being opened at the same time. It does not matter how late
// anybody learns what.
//
// A switch that nobody has now (its member has died, and no other has taken it yet) goes on as was
// last said of it.
//
// With each switch a member says the generation of its role there. Of whom others have said later
// ones for all switches of its word nobody waits: these switches have agreed to other masters and
// refuse it, and before it opens anything at a switch again it has to say so of the tree that it
// has, and hear what all have said until then. So a member that stands still holds nobody up once
// others have its switches, and can do no harm when it wakes up, whatever it believes.
const (
	treePrefix = "view/tree/"

	// freshTime is longer than it takes until a member that has died is missed.
	freshTime = 3 * time.Second
)

// word is what a member says.
type word struct {
	Tree        string   `json:"tree"`
	Switches    []string `json:"switches"`
	Generations []uint64 `json:"generations,omitempty"` // of the roles at these switches; none: not known

	of map[uint64]uint64 // Switches, with their generations; 0: not known
}

func (w word) same(x word) bool {
	return w.Tree == x.Tree && slices.Equal(w.Switches, x.Switches) && slices.Equal(w.Generations, x.Generations)
}

// isPast says whether all switches of a word have agreed to later masters, of which these
// generations are the latest.
func (w word) isPast(latest map[uint64]uint64) bool {
	for dpid, generation := range w.of {
		if generation == 0 || generation >= latest[dpid] {
			return false
		}
	}
	return true
}

// UnmarshalJSON passes over what is no switch.
func (w *word) UnmarshalJSON(data []byte) error {
	type plain word
	if err := json.Unmarshal(data, (*plain)(w)); err != nil {
		return err
	}
	w.of = make(map[uint64]uint64, len(w.Switches))
	for i, s := range w.Switches {
		if dpid, err := strconv.ParseUint(s, 16, 64); err == nil {
			w.of[dpid] = 0
			if len(w.Generations) == len(w.Switches) {
				w.of[dpid] = w.Generations[i]
			}
		}
	}
	return nil
}

// agreement is what the members have said.
type agreement struct {
	member string
	board  *announce.Board[word]

	mu    sync.Mutex
	fresh time.Time // until then a member that has died may not have followed the last tree

	// Of follow:
	want   *word  // what this member is to say; nil: nothing yet
	tree   string // of the network as it is
	agreed string // the last one on which all have agreed
	arcs   map[string][]end
	former [][]end // links that are gone, until all have agreed without them
	said   map[uint64]said
}

// said is what is known to be closed at a switch since a member has last said something of it.
type said struct {
	revision int64
	closed   map[end]bool
}

// Share makes the app that of a member of a cluster. It must be called before Start.
func (a *App) Share(member string, s store.Store) {
	a.agreement = &agreement{member: member, board: announce.New[word](s, treePrefix, member, a.poke), said: map[uint64]said{}}
}

// agree begins to follow what members say.
func (a *App) agree() error {
	if err := a.agreement.board.Start(a.ctx, &a.done); err != nil {
		return fmt.Errorf("what members say of their trees: %w", err)
	}
	return nil
}

// mayLack says whether a switch that comes from another member may not have been told to forget
// addresses, because that one has died.
func (g *agreement) mayLack(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Before(g.fresh)
}

// wants has this member say what it has not.
func (g *agreement) wants(w word) {
	if g.want == nil || !g.want.same(w) {
		g.want = &w
		g.board.Say(w)
	}
}

// followShared is follow with other members: the tree is that of all switches, and what joins it
// waits until all have agreed.
func (a *App) followShared(tables []*table, ports []discovery.Port, links []discovery.Link, now time.Time) (settled bool) {
	g, s := a.build(tables, ports, links, now), a.agreement
	g.plan()
	tree := g.name()
	if s.tree != tree && s.tree != "" {
		a.stale = now // addresses lead by the old one
	}
	if s.tree != tree || s.agreed != tree {
		s.mu.Lock()
		s.fresh = now.Add(freshTime)
		s.mu.Unlock()
	}
	s.tree = tree
	changes := map[*table]*change{}
	of := func(t *table) *change {
		if changes[t] == nil {
			changes[t] = &change{close: map[uint32]role{}, open: map[uint32]role{}}
		}
		return changes[t]
	}
	g.closings(tables, of, false, now)
	for _, l := range g.leaves {
		if l.want == open {
			of(l.table).open[l.port] = edge
		}
	}
	s.remember(g)
	mine, firm := own(tree, tables)
	agreed := firm && s.holds(g, mine)
	if agreed {
		if s.agreed != tree && s.agreed != "" {
			a.stale = now // all others have the new one, too
		}
		s.agreed = tree
		for _, e := range g.edges {
			for _, x := range e.ends {
				if e.tree {
					of(x.table).open[x.port] = link
				}
			}
		}
	}
	for t, c := range changes {
		a.tell(t, c)
	}
	a.followHosts(g, tables)
	if agreed {
		passWaiting(tables, now)
	}
	leaving := slices.ContainsFunc(tables, (*table).isLeaving)
	if mine, firm = own(tree, tables); firm && !leaving {
		s.wants(mine)
	}
	return a.flush(tables, now) && agreed && !leaving
}

// own is the word of a tree at this member's switches. firm is false while there is a switch that
// this member has claimed anew: another may have been its master since the table was read.
func own(tree string, tables []*table) (w word, firm bool) {
	w, firm = word{Tree: tree, Switches: []string{}}, true
	for _, t := range tables {
		if t.other {
			continue
		}
		w.Switches = append(w.Switches, fmt.Sprintf("%x", t.dpid))
		w.Generations = append(w.Generations, t.reign)
		t.mu.Lock()
		if t.sw != nil {
			reign, settled := t.sw.Reign()
			firm = firm && settled && reign == t.reign
		}
		t.mu.Unlock()
	}
	return w, firm
}

// others adds the switches of other members that have links.
func (a *App) others(out []*table, far map[uint64]bool) []*table {
	mine := map[uint64]bool{}
	for _, t := range out {
		mine[t.dpid] = true
	}
	for dpid := range far {
		if !mine[dpid] && a.only(dpid) {
			out = append(out, &table{app: a, dpid: dpid, other: true})
		}
	}
	slices.SortFunc(out, func(x, y *table) int { return cmp.Compare(x.dpid, y.dpid) })
	return out
}

// dropShared forgets a switch that this member does not have any more: another one has it.
func (a *App) dropShared(t *table) {
	if a.agreement == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.switches[t.dpid] == t {
		delete(a.switches, t.dpid)
	}
}

// name tells a tree from others.
func (g *graph) name() string {
	h := sha256.New()
	for _, e := range g.edges {
		if e.tree {
			fmt.Fprintln(h, e.name(), e.v >= len(g.index))
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// name tells an edge from others: it has the ports of the edge.
func (e *arc) name() string {
	var out []string
	for _, x := range e.ends {
		out = append(out, fmt.Sprintf("%x:%d", x.dpid, x.port))
	}
	return strings.Join(out, "-")
}

// remember takes note of links that are gone. Until all have agreed without them they may carry
// packets.
func (s *agreement) remember(g *graph) {
	arcs := make(map[string][]end, len(g.edges))
	for _, e := range g.edges {
		var ends []end
		for _, x := range e.ends {
			ends = append(ends, x.end)
		}
		arcs[e.name()] = ends
	}
	for name, ends := range s.arcs {
		if arcs[name] == nil {
			s.former = append(s.former, ends)
		}
	}
	s.arcs = arcs
	s.former = slices.DeleteFunc(s.former, func(ends []end) bool {
		return slices.ContainsFunc(ends, func(x end) bool {
			_, there := g.index[x.dpid]
			return !there || g.inLink[x] // it joins nothing, or there is another link, or it again
		})
	})
}

// holds says whether all have agreed on the tree.
func (s *agreement) holds(g *graph, own word) bool {
	if s.want == nil || s.want.Tree != s.tree {
		return false
	}
	members, heard := s.board.Heard()
	mine, ok := heard[s.member]
	if !ok || !mine.Value.same(own) {
		return false
	}
	last, latest := map[uint64]announce.Said[word]{}, map[uint64]uint64{}
	for _, w := range heard {
		for dpid, generation := range w.Value.of {
			latest[dpid] = max(latest[dpid], generation)
			if w.Revision > last[dpid].Revision {
				last[dpid] = w
			}
		}
	}
	for name, w := range heard {
		if members[name] && w.Value.Tree != s.tree && !w.Value.isPast(latest) {
			return false
		}
	}
	s.note(g, last)
	shut := func(x end) bool { return s.said[x.dpid].closed[x] }
	for _, e := range g.edges {
		if !e.tree && !slices.ContainsFunc(e.ends, func(x *endState) bool { return shut(x.end) }) {
			return false
		}
	}
	for _, ends := range s.former {
		if !slices.ContainsFunc(ends, shut) {
			return false
		}
	}
	s.former = nil
	return true
}

// note keeps what is closed at each switch since the last word of it, if that was of this tree or
// of one that was this member's then.
func (s *agreement) note(g *graph, last map[uint64]announce.Said[word]) {
	for dpid, w := range last {
		switch {
		case w.Value.Tree == s.tree:
			s.said[dpid] = said{w.Revision, map[end]bool{}}
		case s.said[dpid].revision != w.Revision:
			delete(s.said, dpid)
		}
	}
	maps.DeleteFunc(s.said, func(dpid uint64, _ said) bool { _, there := g.index[dpid]; return !there })
	for _, e := range g.edges {
		for _, x := range e.ends {
			if w := last[x.dpid]; w.Value.Tree == s.tree && !e.tree && w.Revision > 0 {
				s.said[x.dpid].closed[x.end] = true
			}
		}
	}
	for _, ends := range s.former {
		for _, x := range ends {
			if w := last[x.dpid]; w.Value.Tree == s.tree && w.Revision > 0 {
				s.said[x.dpid].closed[x] = true
			}
		}
	}
}
