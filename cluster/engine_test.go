package cluster

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"trivet.dev/trivet/controller/store"
)

// world is a store, members and switches in simulated time, in milliseconds. What goes wrong is
// drawn from random.
type world struct {
	t      *testing.T
	random *rand.Rand
	now    int64
	queue  events
	serial int
	faults bool

	entries  map[string]store.Entry
	revision int64
	log      [][]store.Event
	owners   map[string]*node // of key@revision: whose commit it was, or of a switch who is its master
	down     bool             // the store

	nodes    []*node
	switches []*device
	moves    int
	commits  int
	bytes    int
}

type event struct {
	at     int64
	serial int
	do     func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// device is a switch that orders its masters by generation, as OpenFlow 1.3.5 says in 6.3.5.
type device struct {
	dpid       uint64
	generation int64
	master     *node
	up         map[*node]bool
}

// node is a member, with a shell that does what its engine says.
type node struct {
	w        *world
	name     string
	life     int // of this name
	engine   *engine
	dead     bool // for ever
	stopped  bool // SIGSTOP
	cut      bool // off from the store
	cursor   int  // of the store's log
	watching bool
	beats    int64
	mine     map[uint64]int64 // by what Become and Cease have said
	waiting  []func()         // what has happened while it was stopped
	said     []uint64
}

func newWorld(t *testing.T, seed uint64, members, switches int) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), entries: map[string]store.Entry{}, owners: map[string]*node{}}
	for i := range switches {
		w.switches = append(w.switches, &device{dpid: uint64(i + 1), up: map[*node]bool{}})
	}
	for i := range members {
		w.join(fmt.Sprintf("c%d", i+1), 0)
	}
	return w
}

func (w *world) after(ms int64, do func()) {
	w.serial++
	heap.Push(&w.queue, event{w.now + ms, w.serial, do})
}

func (w *world) run(until int64) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// commit is what a store does.
func (w *world) commit(n *node, conditions []store.Condition, changes ...store.Change) bool {
	for _, c := range conditions {
		if w.entries[c.Key].Revision != c.Revision {
			return false
		}
	}
	w.revision++
	var told []store.Event
	for _, c := range changes {
		w.bytes += len(c.Key) + len(c.Value)
		before := w.entries[c.Key]
		if c.Value == nil && before.Revision == 0 {
			continue
		}
		x := store.Entry{Key: c.Key, Value: c.Value, Revision: w.revision}
		if x.Gone() {
			delete(w.entries, c.Key)
		} else {
			w.entries[c.Key] = x
			w.owners[fmt.Sprint(c.Key, w.revision)] = n
			if _, ok := DPIDOf(c.Key, SwitchPrefix); ok {
				w.moves++
				var r SwitchRecord
				if err := json.Unmarshal(c.Value, &r); err != nil {
					w.t.Fatal(err)
				}
				w.owners[fmt.Sprint(c.Key, w.revision)] = w.process(r.Instance)
			}
		}
		told = append(told, x)
	}
	w.commits++
	w.log = append(w.log, told)
	for _, x := range w.nodes {
		w.after(w.lag(5), x.hear)
	}
	return true
}

// process is a member's, by its name.
func (w *world) process(instance string) *node {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.instance() == instance })
	return w.nodes[i]
}

// lag is how long something takes: a little, or while there are faults, sometimes long.
func (w *world) lag(most int64) int64 {
	if w.faults && w.random.IntN(50) == 0 {
		return w.random.Int64N(1500)
	}
	return 1 + w.random.Int64N(most)
}

func (w *world) join(name string, life int) *node {
	n := &node{w: w, name: name, life: life, mine: map[uint64]int64{}}
	n.beats++
	w.commit(n, nil, store.Put(MemberPrefix+name, n.record()), store.Delete(drainPrefix+name))
	n.engine = newEngine(name, n.instance())
	w.nodes = append(w.nodes, n)
	w.after(1, n.watch)
	w.after(w.random.Int64N(200), n.tick)
	for _, d := range w.switches {
		w.after(w.random.Int64N(400), func() { w.connect(d, n) })
	}
	return n
}

func (n *node) instance() string { return fmt.Sprint(n.name, "/", n.life) }
func (n *node) record() []byte {
	return encode(MemberRecord{Name: n.name, Instance: n.instance(), Beat: n.beats})
}

// wake does something now, or when the member goes on.
func (n *node) wake(do func()) {
	switch {
	case n.dead:
	case n.stopped:
		n.waiting = append(n.waiting, do)
	default:
		do()
		n.act()
	}
}

// watch reads all anew.
func (n *node) watch() {
	n.wake(func() {
		if n.cut || n.w.down {
			n.w.after(300, n.watch)
			return
		}
		var all []store.Entry
		for _, e := range n.w.entries {
			all = append(all, e)
		}
		slices.SortFunc(all, func(a, b store.Entry) int { return int(a.Revision - b.Revision) })
		n.cursor, n.watching = len(n.w.log), true
		n.engine.snapshot(all)
	})
}

// hear takes what the store tells; sometimes it has told too much, and the watch is closed.
func (n *node) hear() {
	n.wake(func() {
		if n.cut || !n.watching {
			return
		}
		if n.w.faults && n.w.random.IntN(400) == 0 {
			n.watching = false
			n.w.after(n.w.lag(300), n.watch)
			return
		}
		for n.cursor < len(n.w.log) {
			n.cursor++
			n.engine.events(n.w.log[n.cursor-1])
			n.act()
		}
	})
}

// tick is a beat.
func (n *node) tick() {
	n.wake(func() {
		n.w.after(200, n.tick)
		if n.cut || n.w.down {
			return
		}
		n.w.after(n.w.lag(5), func() {
			if x := n.w.entries[MemberPrefix+n.name]; n.dead || !n.isMine(x) {
				return
			}
			n.beats++
			changes := []store.Change{store.Put(MemberPrefix+n.name, n.record())}
			if here := n.engine.here(); !slices.Equal(here, n.said) {
				n.said = here
				changes = append(changes, store.Put(connectedPrefix+n.name, encodeConnected(slices.Clone(here))))
			}
			n.w.commit(n, nil, changes...)
		})
	})
}

func (n *node) isMine(x store.Entry) bool {
	return x.Revision == 0 || n.w.owners[fmt.Sprint(x.Key, x.Revision)] == n
}

// act does what the engine says.
func (n *node) act() {
	for _, a := range n.engine.take() {
		switch {
		case a.commit != nil:
			n.send(a.commit)
		case a.say != "":
		case a.ask:
			if !n.w.faults || n.w.random.IntN(3) > 0 {
				n.w.after(n.w.lag(5), func() { n.wake(func() { n.engine.ready(a.dpid, a.turn) }) })
			}
		case a.become != 0:
			n.become(a)
		default:
			if n.mine[a.dpid] == 0 {
				n.w.t.Fatalf("%s ceases to be what it was not", n.name)
			}
			delete(n.mine, a.dpid)
		}
	}
}

// send makes a commit: late, never, or without an answer; what is made after it was given up is
// the worst.
func (n *node) send(c *commit) {
	answer := func() { n.wake(n.engine.committed) }
	if len(c.changes) > 128 || len(c.conditions) > 128 || c.switches > 100 {
		n.w.t.Fatal("too much in one commit")
	}
	lost := n.w.faults && n.w.random.IntN(10) == 0
	if n.cut || n.w.down || lost {
		n.w.after(1000, answer)
		if lost && n.w.random.IntN(2) == 0 {
			n.w.after(n.w.random.Int64N(2500), func() { n.w.commit(n, c.conditions, c.changes...) })
		}
		return
	}
	n.w.after(n.w.lag(10), func() {
		n.w.commit(n, c.conditions, c.changes...)
		n.w.after(n.w.lag(5), answer)
	})
}

// become claims the role of master at a switch.
func (n *node) become(a action) {
	w, d := n.w, n.w.switches[a.dpid-1]
	if n.mine[a.dpid] != 0 {
		w.t.Fatalf("%s becomes master of %d twice", n.name, a.dpid)
	}
	if owner := w.owners[fmt.Sprint(SwitchKey(a.dpid), a.become)]; owner != n {
		w.t.Fatalf("%s claims switch %d by generation %d, which is not its own", n.instance(), a.dpid, a.become)
	}
	n.mine[a.dpid] = a.become
	w.after(w.lag(5), func() {
		if !d.up[n] {
			return
		}
		if a.become < d.generation || w.faults && w.random.IntN(100) == 0 {
			n.wake(func() { n.engine.failed(a.dpid, a.turn, errors.New("refused")) })
			return
		}
		if a.become == d.generation && d.master != n && d.master != nil {
			w.t.Fatalf("generation %d of switch %d is %s's and %s's", a.become, a.dpid, d.master.instance(), n.instance())
		}
		d.generation, d.master = a.become, n
	})
}

func (w *world) connect(d *device, n *node) {
	n.wake(func() {
		if !d.up[n] {
			d.up[n] = true
			n.engine.connected(d.dpid)
		}
	})
}

func (w *world) disconnect(d *device, n *node) {
	if d.master == n {
		d.master = nil
	}
	n.wake(func() {
		if d.up[n] {
			d.up[n] = false
			delete(n.mine, d.dpid)
			n.engine.lost(d.dpid)
		}
	})
}

// trouble makes something go wrong, and says what makes it good again.
func (w *world) trouble() (good func()) {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	d := w.switches[w.random.IntN(len(w.switches))]
	switch w.random.IntN(9) {
	case 0:
		n.dead = true
		for _, d := range w.switches {
			d.up[n] = false
			if d.master == n {
				d.master = nil
			}
		}
		return func() {
			if live := slices.ContainsFunc(w.nodes, func(o *node) bool { return o.name == n.name && !o.dead }); !live {
				w.join(n.name, n.life+w.random.IntN(1000)+1)
			}
		}
	case 1, 2:
		n.stopped = true
		return func() {
			n.stopped = false
			waiting := n.waiting
			n.waiting = nil
			for _, do := range waiting {
				n.wake(do)
			}
		}
	case 3:
		n.cut = true
		return func() { n.cut = false; w.after(w.lag(5), n.hear) }
	case 4:
		w.down = true
		return func() { w.down = false }
	case 5:
		w.commit(n, nil, store.Put(WantedKey(d.dpid), encode(WantedRecord{Member: n.name})))
	case 6: // the member's lease ends
		if !n.dead {
			w.commit(n, nil, store.Delete(MemberPrefix+n.name), store.Delete(connectedPrefix+n.name))
			n.said = nil
		}
	case 7, 8:
		if !n.dead {
			w.disconnect(d, n)
			return func() { w.connect(d, n) }
		}
	}
	return func() {}
}

// complaint says what is not as it is to be when nothing goes wrong any more.
func (w *world) complaint() string {
	for _, d := range w.switches {
		x := w.entries[SwitchKey(d.dpid)]
		owner := w.owners[fmt.Sprint(x.Key, x.Revision)]
		reached := slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.dead && d.up[n] })
		switch {
		case !reached:
		case x.Revision == 0 || owner.dead || !d.up[owner]:
			return fmt.Sprintf("switch %d has no live master", d.dpid)
		case d.master != owner || d.generation != x.Revision:
			return fmt.Sprintf("switch %d obeys generation %d, not %d", d.dpid, d.generation, x.Revision)
		}
		for _, n := range w.nodes {
			if mine := n.mine[d.dpid]; !n.dead && (mine == x.Revision) != (n == owner) {
				return fmt.Sprintf("%s takes itself for master of switch %d by generation %d; it is %d", n.name, d.dpid, mine, x.Revision)
			}
		}
	}
	return ""
}

// history is a random one of these.
func history(t *testing.T, seed uint64) {
	w := newWorld(t, seed, 2+int(seed%4), 1+int(seed/4%12))
	w.run(5000)
	if what := w.complaint(); what != "" {
		t.Fatalf("at first: %s", what)
	}
	w.faults = true
	for end := w.now + 20_000; w.now < end; {
		good := w.trouble()
		w.after(w.random.Int64N(4000), good)
		w.run(w.now + w.random.Int64N(1500))
	}
	w.run(w.now + 4000)
	w.faults = false
	w.run(w.now + 3000) // what is under way still comes
	for _, n := range w.nodes {
		if !n.dead && !n.watching {
			t.Fatalf("%s does not hear the store", n.name)
		}
	}
	w.run(w.now + (deadAfter+takeAfter+settleTime+holdTime+wishTime+10)*200)
	if what := w.complaint(); what != "" {
		t.Fatalf("long after the last fault: %s", what)
	}
	moves := w.moves
	if w.run(w.now + 20_000); w.moves != moves {
		t.Fatalf("%d switches moved though nothing had happened", w.moves-moves)
	}
}

// Proves, in random histories (TRIVET_HISTORIES=3000: in so many) in which members die and come
// back, stand still, are cut off from the store, lose switches and their leases, and in which the
// store stands still, takes commits late or after they have been given up, and closes watches: that
// no member claims a switch by a generation that is not its own, nor two by the same, that Become
// and Cease alternate; and that when nothing goes wrong any more, each switch that is connected to
// somebody has one master, who knows it, whom the switch obeys, and nothing moves any more.
func TestHistories(t *testing.T) {
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("TRIVET_HISTORIES"), "300"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range n {
		if t.Run("", func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log("seed", seed)
				}
			}()
			history(t, seed)
		}); t.Failed() {
			break
		}
	}
}

// Proves what a cluster of 10 members and 10,000 switches asks of the store: a member that dies
// costs a commit for each 100 switches it had, or a few more where two try the same; each takes a
// fair part, also while not all know yet who is connected to what; and while nothing happens there
// are beats and nothing else.
func TestScale(t *testing.T) {
	const members, switches = 10, 10_000
	w := newWorld(t, 7, members, switches)
	w.run(8000)
	if what := w.complaint(); what != "" {
		t.Fatal(what)
	}
	count := map[string]int{}
	for _, d := range w.switches {
		count[d.master.name]++
	}
	for name, n := range count {
		if n < switches/members/4 || n > switches/members*2 {
			t.Errorf("%s has %d of %d switches", name, n, switches)
		}
	}
	t.Logf("coming up: %d commits, %d bytes", w.commits, w.bytes)
	commits, bytes, moves := w.commits, w.bytes, w.moves
	if w.run(w.now + 5000); w.moves != moves || w.commits-commits > 26*members {
		t.Errorf("at rest: %d moves, %d commits", w.moves-moves, w.commits-commits)
	}
	t.Logf("5 s at rest: %d commits, %d bytes", w.commits-commits, w.bytes-bytes)
	w.nodes[0].dead = true
	for _, d := range w.switches {
		d.up[w.nodes[0]] = false
	}
	commits, bytes, moves = w.commits, w.bytes, w.moves
	w.run(w.now + 3000)
	if what := w.complaint(); what != "" {
		t.Error(what)
	}
	if taken := w.commits - commits - 16*(members-1); w.moves-moves != count["c1"] || taken > 2*count["c1"]/100+2*members {
		t.Errorf("%d moves in %d commits for the %d switches of who died", w.moves-moves, taken, count["c1"])
	}
	t.Logf("a member dies: %d commits, beats among them, %d bytes in 3 s", w.commits-commits, w.bytes-bytes)
}
