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
	"trivet.dev/trivet/internal/lists"
)

// The members of a cluster maintain one tree. Each computes it from discovery's links, of all
// switches, by the same rule; but they learn of a change at different times. So a member publishes
// a confirmation when the ports of its switches that are outside its tree are closed, and the
// switches have confirmed that:
//
//	view/tree/NAME    all open ports of these switches belong to that tree
//
// A port of a link is opened only when all live members have confirmed the very tree that this
// member has now, and each link outside the tree is closed, at one end at least, by a switch that a
// confirmation covers: a link closed at one end carries nothing. Then all open ports belong to one
// tree. A member closes what is not in a new tree before it confirms that tree, and opens nothing
// until all have confirmed it: so two trees are never being opened at the same time, however late a
// member learns of a change.
//
// A switch without a master (its member has failed, and no other has taken over yet) stays as last
// confirmed.
//
// A confirmation has the generation of the member's role at each switch. A member is not waited for
// if others have confirmed later generations for all of its switches: these have agreed to other
// masters and refuse its changes, and before it opens anything at a switch again, it has to confirm
// its current tree and read what all have confirmed until then. So a member that stalls delays
// nobody once others have its switches, and does no harm when it resumes, whatever it believes.
const (
	treePrefix = "view/tree/"

	// freshTime is longer than it takes to detect that a member has failed.
	freshTime = 3 * time.Second
)

// confirmation is what a member confirms.
type confirmation struct {
	Tree        string   `json:"tree"`
	Switches    []string `json:"switches"`
	Generations []uint64 `json:"generations,omitempty"` // of its roles at these switches; none: unknown

	of map[uint64]uint64 // Switches, with their generations; 0: unknown
}

func (w confirmation) same(x confirmation) bool {
	return w.Tree == x.Tree && slices.Equal(w.Switches, x.Switches) && slices.Equal(w.Generations, x.Generations)
}

// isPast reports whether all switches of a confirmation have agreed to later masters, given the
// latest generation of each.
func (w confirmation) isPast(latest map[uint64]uint64) bool {
	for dpid, generation := range w.of {
		if generation == 0 || generation >= latest[dpid] {
			return false
		}
	}
	return true
}

// UnmarshalJSON ignores switches with invalid ids.
func (w *confirmation) UnmarshalJSON(data []byte) error {
	type plain confirmation
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

// agreement is what the members have confirmed.
type agreement struct {
	member string
	board  *announce.Board[confirmation]

	mu    sync.Mutex
	fresh time.Time // until then a failed member may not have followed the last tree

	// Used by follow only:
	want      *confirmation // this member's confirmation; nil: none yet
	tree      string        // of the current network
	agreed    string        // the last one confirmed by all
	arcs      map[string][]end
	former    [][]end // removed links, until all have confirmed a tree without them
	confirmed map[uint64]closedPorts
}

// closedPorts is what is known to be closed at a switch since its last confirmation.
type closedPorts struct {
	revision int64
	closed   map[end]bool
}

// Share makes the app part of a cluster. Call it before Start.
func (a *App) Share(member string, s store.Store) {
	a.agreement = &agreement{member: member, board: announce.New[confirmation](s, treePrefix, member, a.poke),
		confirmed: map[uint64]closedPorts{}}
}

// agree starts following the members' confirmations.
func (a *App) agree() error {
	if err := a.agreement.board.Start(a.ctx, &a.done); err != nil {
		return fmt.Errorf("members' confirmations of trees: %w", err)
	}
	return nil
}

// mayLack reports whether a switch taken over from another member may not have been told to forget
// addresses, because that member has failed.
func (g *agreement) mayLack(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Before(g.fresh)
}

// wants publishes a confirmation, unless it is the current one.
func (g *agreement) wants(w confirmation) {
	if g.want == nil || !g.want.same(w) {
		g.want = &w
		g.board.Publish(w)
	}
}

// followShared is follow in a cluster: the tree spans all members' switches, and ports are opened
// only when all have confirmed it.
func (a *App) followShared(tables []*table, ports []discovery.Port, links []discovery.Link,
	now time.Time) (settled bool) {
	g, s := a.build(tables, ports, links, now), a.agreement
	g.plan()
	tree := g.name()
	if s.tree != tree && s.tree != "" {
		a.stale = now // addresses lead along the old one
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
			a.stale = now // all other members have the new one, too
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

// own returns the confirmation of a tree for this member's switches. firm is false if this member
// has claimed a switch anew: another may have been its master since the table was read.
func own(tree string, tables []*table) (w confirmation, firm bool) {
	w, firm = confirmation{Tree: tree, Switches: []string{}}, true
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
	mine := lists.Set(out, func(t *table) uint64 { return t.dpid })
	for dpid := range far {
		if !mine[dpid] && a.only(dpid) {
			out = append(out, &table{app: a, dpid: dpid, other: true})
		}
	}
	slices.SortFunc(out, func(x, y *table) int { return cmp.Compare(x.dpid, y.dpid) })
	return out
}

// dropShared forgets a switch that another member has taken over.
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

// name identifies a tree.
func (g *graph) name() string {
	h := sha256.New()
	for _, e := range g.edges {
		if e.tree {
			fmt.Fprintln(h, e.name(), e.v >= len(g.index))
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// name identifies an edge by its ports.
func (e *arc) name() string {
	out := lists.Map(e.ends, func(x *endState) string { return fmt.Sprintf("%x:%d", x.dpid, x.port) })
	return strings.Join(out, "-")
}

// remember records removed links. Until all have confirmed a tree without them they may carry
// packets.
func (s *agreement) remember(g *graph) {
	arcs := make(map[string][]end, len(g.edges))
	for _, e := range g.edges {
		ends := lists.Map(e.ends, func(x *endState) end { return x.end })
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
			return !there || g.inLink[x] // its switch is gone, or the port has another link, or the same again
		})
	})
}

// holds reports whether all have confirmed the tree.
func (s *agreement) holds(g *graph, own confirmation) bool {
	if s.want == nil || s.want.Tree != s.tree {
		return false
	}
	members, heard := s.board.Values()
	mine, ok := heard[s.member]
	if !ok || !mine.Value.same(own) {
		return false
	}
	last, latest := map[uint64]announce.Published[confirmation]{}, map[uint64]uint64{}
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
	shut := func(x end) bool { return s.confirmed[x.dpid].closed[x] }
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

// note keeps what is closed at each switch since its last confirmation, if that was of this tree or
// of one that was this member's at the time.
func (s *agreement) note(g *graph, last map[uint64]announce.Published[confirmation]) {
	for dpid, w := range last {
		switch {
		case w.Value.Tree == s.tree:
			s.confirmed[dpid] = closedPorts{w.Revision, map[end]bool{}}
		case s.confirmed[dpid].revision != w.Revision:
			delete(s.confirmed, dpid)
		}
	}
	maps.DeleteFunc(s.confirmed, func(dpid uint64, _ closedPorts) bool { _, there := g.index[dpid]; return !there })
	for _, e := range g.edges {
		for _, x := range e.ends {
			if w := last[x.dpid]; w.Value.Tree == s.tree && !e.tree && w.Revision > 0 {
				s.confirmed[x.dpid].closed[x.end] = true
			}
		}
	}
	for _, ends := range s.former {
		for _, x := range ends {
			if w := last[x.dpid]; w.Value.Tree == s.tree && w.Revision > 0 {
				s.confirmed[x.dpid].closed[x] = true
			}
		}
	}
}
