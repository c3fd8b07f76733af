package centre

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/lists"
)

// leading is the centre's state while this member is the centre.
type leading struct {
	c    *Centre
	held *store.Held

	placing sync.Mutex // one placement at a time

	// Used by look only:
	vain     map[uint64]time.Time // switches that were not taken over: until when they stay
	orphans  map[uint64]bool      // switches without a live master at the last look
	going    bool                 // moves are under way
	nextLook time.Time            // earlier than this, reports do not reflect the last moves

	mu      sync.Mutex      // guards what follows
	kept    map[uint64]kept // switches that a user has moved
	masters map[uint64]string
	is      map[uint64]store.Condition // conditions that a switch's master is as read
	wishes  map[uint64]wish
}

// wish is a requested move of a switch.
type wish struct {
	cluster.WantedRecord // By is one of those below; otherwise the centre leaves the wish alone

	is    store.Condition
	since time.Time
}

// kept is a switch that a user has moved, which stays at that member for a while.
type kept struct {
	member string
	until  time.Time
}

// The centre's own wishes: to move a switch, and where one that does not exist yet is to be.
const (
	byCentre    = "centre"
	byPlacement = "placement"
)

// Times of moves.
const (
	wishTime = 20 * time.Second // for a member to take over a switch: it may not be connected to it
	vainTime = 5 * time.Minute  // before the move is tried again
	keptTime = 5 * time.Minute  // before a switch that a user has moved may be moved again
)

// last is the lifetime of one of the centre's wishes.
func (w wish) last() time.Duration {
	if w.By == byPlacement {
		return placedFor
	}
	return wishTime
}

// run plans moves at intervals, until ctx ends.
func (l *leading) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.follow(ctx); err != nil && ctx.Err() == nil {
			l.c.o.Log.Warn("the scheduling centre cannot read the masters of switches: retrying", "problem", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.c.o.Every):
		}
	}
}

// follow follows masters and wishes, and moves switches.
func (l *leading) follow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	switches, changed, err := l.c.o.Store.Watch(ctx, cluster.SwitchPrefix)
	if err != nil {
		return err
	}
	wanted, wishes, err := l.c.o.Store.Watch(ctx, cluster.WantedPrefix)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.masters, l.is, l.wishes = map[uint64]string{}, map[uint64]store.Condition{}, map[uint64]wish{}
	if l.kept == nil {
		l.kept = map[uint64]kept{}
	}
	l.mu.Unlock()
	l.take(append(switches, wanted...))
	l.c.lead.Store(l)
	tick := time.NewTicker(l.c.o.Every)
	defer tick.Stop()
	for {
		select {
		case events, more := <-changed:
			if !more {
				return errors.New("the watch of the store has ended")
			}
			l.take(events)
		case events, more := <-wishes:
			if !more {
				return errors.New("the watch of the store has ended")
			}
			l.take(events)
		case now := <-tick.C:
			l.look(ctx, now)
		case <-ctx.Done():
			return nil
		}
	}
}

// take applies changes of masters and wishes. Entries with invalid ids or values are ignored.
func (l *leading) take(events []store.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if dpid, ok := cluster.DPIDOf(e.Key, cluster.WantedPrefix); ok {
			w := wish{is: e.Is(), since: time.Now()}
			if was, ok := l.wishes[dpid]; ok && was.By == "" && e.Gone() { // fulfilled by the member, or withdrawn
				l.kept[dpid] = kept{was.Member, time.Now().Add(keptTime)}
			}
			if delete(l.wishes, dpid); !e.Gone() && json.Unmarshal(e.Value, &w) == nil {
				l.wishes[dpid] = w
			}
		} else if dpid, ok := cluster.DPIDOf(e.Key, cluster.SwitchPrefix); ok {
			var r cluster.SwitchRecord
			delete(l.masters, dpid)
			delete(l.is, dpid)
			if !e.Gone() && json.Unmarshal(e.Value, &r) == nil {
				l.masters[dpid], l.is[dpid] = r.Master, e.Is()
			}
		}
	}
}

// counts returns the number of switches of each member.
func (l *leading) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for _, m := range l.masters {
		out[m]++
	}
	return out
}

// look withdraws wishes that were not fulfilled in time, and wishes for new moves when none are
// open and the reports reflect the previous ones.
func (l *leading) look(ctx context.Context, now time.Time) {
	withdrawn, open := l.expired(now)
	if len(withdrawn) > 0 {
		l.withdraw(ctx, withdrawn, now)
	}
	if open || now.Before(l.nextLook) {
		return
	}
	live := l.c.live(now)
	moves := l.plan(live, now)
	if l.going = len(moves) > 0; !l.going {
		return
	}
	made := 0
	for together := range slices.Chunk(moves, inOneCommit) {
		switch err := l.wish(ctx, together); {
		case err == nil:
			made += len(together)
		case errors.Is(err, store.ErrChanged): // the next look sees what has changed
		default:
			l.c.o.Log.Warn("the store does not accept moves of switches", "problem", err)
			return
		}
	}
	l.c.o.Log.Info("moving switches", "switches", made, "members", strings.Join(live, ", "))
}

// inOneCommit is the number of moves in one commit, each with two conditions.
const inOneCommit = store.MostInCommit / 2

// expired returns the centre's wishes that were not fulfilled in time; open: some may still be.
func (l *leading) expired(now time.Time) (out []uint64, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for dpid, w := range l.wishes {
		switch {
		case w.By != byCentre && w.By != byPlacement:
		case now.Sub(w.since) > w.last():
			out = append(out, dpid)
		case w.By == byCentre:
			open = true
		}
	}
	return out, open
}

func (l *leading) withdraw(ctx context.Context, list []uint64, now time.Time) {
	if l.vain == nil {
		l.vain = map[uint64]time.Time{}
	}
	maps.DeleteFunc(l.vain, func(_ uint64, until time.Time) bool { return now.After(until) })
	for _, dpid := range list {
		l.mu.Lock()
		w := l.wishes[dpid]
		l.mu.Unlock()
		l.vain[dpid] = now.Add(vainTime)
		err := l.c.o.Store.Commit(ctx, []store.Condition{l.held.Is(), w.is}, store.Delete(w.is.Key))
		if err == nil {
			l.c.o.Log.Warn("a member has not taken a switch over: is it connected to it?", "switch",
				fmt.Sprintf("%016x", dpid), "member", w.Member)
		}
	}
}

// plan returns the moves to make now. Switches without a live master are left to the other members,
// which know sooner; only those still without one at the next look are moved.
func (l *leading) plan(live []string, now time.Time) []Move {
	l.mu.Lock()
	masters := maps.Clone(l.masters)
	wished := make(map[uint64]bool, len(l.wishes))
	for dpid := range l.wishes {
		wished[dpid] = true
	}
	maps.DeleteFunc(l.kept, func(_ uint64, k kept) bool { return now.After(k.until) })
	keeps := maps.Clone(l.kept)
	l.mu.Unlock()
	before := l.orphans
	l.orphans = map[uint64]bool{}
	for dpid, m := range masters {
		if !slices.Contains(live, m) {
			l.orphans[dpid] = true
		}
	}
	fixed := func(dpid uint64) bool {
		k, ok := keeps[dpid]
		return wished[dpid] || ok && k.member == masters[dpid] && !l.orphans[dpid] || now.Before(l.vain[dpid]) ||
			l.orphans[dpid] && !before[dpid]
	}
	switches := l.c.table.switches(masters, fixed, now)
	var members []Member
	for _, name := range live {
		nodes, addresses := l.c.table.placedAt(name, now)
		members = append(members, Member{Name: name, Nodes: nodes, Addresses: addresses})
	}
	moves := l.c.measure.Plan(members, switches, l.c.limits, l.going)
	l.nextLook = now.Add(l.c.settle(moves, switches))
	return moves
}

// settle returns how long it takes until reports reflect moves: two reports; and if southbound
// traffic dominates the cost, until traffic from before has left its window.
func (c *Centre) settle(moves []Move, switches []Switch) time.Duration {
	moved := lists.Set(moves, func(m Move) uint64 { return m.DPID })
	t := c.measure.totals(nil, switches)
	var traffic, all float64
	for _, s := range switches {
		if moved[s.DPID] {
			x := t.share(Member{Nodes: s.Nodes, Addresses: s.Addresses, Southbound: s.Southbound})
			traffic += c.measure.Weights.Southbound * x.SF
			all += x.Busyness
		}
	}
	if traffic > all/2 {
		return controller.SouthboundWindow
	}
	return 2 * c.o.Every
}

// wish writes wishes for moves, on condition that the switches' masters have not changed, nobody
// has wished otherwise, and this member is still the centre.
func (l *leading) wish(ctx context.Context, moves []Move) error {
	conditions := []store.Condition{l.held.Is()}
	var changes []store.Change
	l.mu.Lock()
	for _, m := range moves {
		key := cluster.WantedKey(m.DPID)
		conditions = append(conditions, l.is[m.DPID], store.Condition{Key: key})
		changes = append(changes, wanted(m.DPID, m.To, byCentre))
	}
	l.mu.Unlock()
	return l.c.o.Store.Commit(ctx, conditions, changes...)
}

func wanted(dpid uint64, member, by string) store.Change {
	b, _ := json.Marshal(cluster.WantedRecord{Member: member, By: by}) // cannot fail
	return store.Put(cluster.WantedKey(dpid), b)
}
