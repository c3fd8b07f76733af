package learning_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/openflow"
)

// cluster is a network whose switches several controllers share: each is connected to all of them,
// and obeys the one that it takes for its master. Who that is, the test says. Members hear of what
// is in their store late, each at a time of its own, and what they look at is always: nothing may
// go round.
type cluster struct {
	*network
	store   store.Store
	members []*member
	owner   map[uint64]*member
	masters uint64 // the last generation
}

// member is one of the controllers.
type member struct {
	of    *cluster
	name  string
	c     *controller.Controller
	found *discovery.App
	app   *learning.App
	dead  bool
	still chan struct{} // it stands still until this is closed; nil: it does not
}

// line is a connection of a switch with a member.
type line struct {
	conn net.Conn
	out  chan openflow.Message
}

// late is a store as a member far away has it.
type late struct {
	store.Store
	of   *member
	most time.Duration
}

func (l late) wait() {
	time.Sleep(time.Duration(rand.Int64N(int64(l.most))))
	l.of.goOn()
}

// goOn waits while a member stands still.
func (m *member) goOn() {
	m.of.mu.Lock()
	still := m.still
	m.of.mu.Unlock()
	if still != nil {
		<-still
	}
}

// stands is a member's connection: while that stands still it reads and says nothing.
type stands struct {
	net.Conn
	of *member
}

func (s stands) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.of.goOn()
	return n, err
}

func (s stands) Write(b []byte) (int, error) {
	s.of.goOn()
	return s.Conn.Write(b)
}

func (l late) Commit(ctx context.Context, c []store.Condition, changes ...store.Change) error {
	l.wait()
	return l.Store.Commit(ctx, c, changes...)
}

func (l late) Watch(ctx context.Context, prefix string) ([]store.Entry, <-chan []store.Event, error) {
	there, events, err := l.Store.Watch(ctx, prefix)
	out := make(chan []store.Event, 10_000)
	go func() {
		defer close(out)
		for e := range events {
			l.wait()
			out <- e
		}
	}()
	return there, out, err
}

// inCluster runs a test with a network that so many members share.
func inCluster(t *testing.T, seed uint64, members int, slow time.Duration, f func(k *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{t: t, rng: rand.New(rand.NewPCG(seed, 2)), cables: map[end][]end{}, arrival: map[end]time.Time{}, keep: map[pair]bool{}, slow: 20 * time.Millisecond}
		k := &cluster{network: n, store: store.NewMemory(nil, nil), owner: map[uint64]*member{}}
		for i := range members {
			k.members = append(k.members, &member{of: k, name: fmt.Sprint("m", i+1)})
			k.members[i].start(slow)
		}
		n.app = k.members[0].app
		f(k)
		for _, m := range k.members {
			if !m.dead {
				m.c.Close()
			}
		}
		k.store.Close()
		n.mu.Lock()
		for _, s := range n.switches {
			s.off = true
		}
		n.mu.Unlock()
		time.Sleep(time.Minute)
	})
}

func (m *member) start(slow time.Duration) {
	s := late{Store: m.of.store, of: m, most: slow}
	found := discovery.New()
	found.Share(s)
	app := learning.New(found, nil)
	if m.of.reactive {
		app = learning.NewReactive(found, nil)
	}
	app.Share(m.name, s)
	c, err := controller.New(slog.New(slog.DiscardHandler), found, app)
	if err != nil {
		m.of.t.Fatal(err)
	}
	c.Owner = m
	m.of.mu.Lock()
	m.found, m.app, m.c, m.dead = found, app, c, false // switches that were connected to it try again
	m.of.mu.Unlock()
	_ = m.of.store.Commit(m.of.t.Context(), nil, store.Put("cluster/member/"+m.name, nil))
}

// Connected makes the member master, if it is to be.
func (m *member) Connected(s *controller.Switch) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.of.owner[s.DPID()] == m {
		m.of.masters++
		_ = s.Become(m.of.masters)
	}
}

func (m *member) Lost(*controller.Switch)    {}
func (m *member) Deposed(*controller.Switch) {}

// give makes a member the master of a switch.
func (k *cluster) give(dpid uint64, to *member) {
	k.mu.Lock()
	from := k.owner[dpid]
	k.owner[dpid] = to
	k.masters++
	generation := k.masters
	k.note("%s takes switch %d", to.name, dpid)
	k.mu.Unlock()
	if s := to.c.Seen(dpid); s != nil {
		_ = s.Become(generation)
	}
	if from != nil && from != to && !from.dead && from.still == nil {
		if s := from.c.Seen(dpid); s != nil {
			_ = s.Cease()
		}
	}
}

// stop makes a member stand still; the function that it returns wakes it up.
func (k *cluster) stop(m *member) (wake func()) {
	still := make(chan struct{})
	k.mu.Lock()
	m.still = still
	k.note("%s stands still", m.name)
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		m.still = nil
		k.note("%s wakes up", m.name)
		k.mu.Unlock()
		close(still)
	}
}

// takeFrom gives a member's switches to others.
func (k *cluster) takeFrom(m *member) {
	for _, s := range k.switches {
		k.mu.Lock()
		mine := k.owner[s.dpid] == m
		k.mu.Unlock()
		if mine {
			k.give(s.dpid, k.living())
		}
	}
}

// die ends a member; the others take its switches a while later.
func (k *cluster) die(m *member) {
	k.mu.Lock()
	m.dead = true
	k.note("%s dies", m.name)
	k.mu.Unlock()
	m.c.Close()
	k.pause(time.Second)
	_ = k.store.Commit(k.t.Context(), nil, store.Delete("cluster/member/"+m.name))
	k.takeFrom(m)
}

// living is a member that is there.
func (k *cluster) living() *member {
	for {
		if m := k.members[k.below(len(k.members))]; !m.dead && m.still == nil {
			return m
		}
	}
}

// come starts a member that was dead.
func (k *cluster) come(m *member, slow time.Duration) {
	m.start(slow)
	for _, s := range k.switches {
		s.join(m)
	}
}

// joinAll shares the switches out and connects them to all members.
func (k *cluster) joinAll(most time.Duration) {
	for _, s := range k.switches {
		s.lines = map[*member]*line{}
		k.owner[s.dpid] = k.living()
	}
	for _, s := range k.switches {
		for _, m := range k.members {
			time.AfterFunc(time.Duration(k.below(int(most))), func() { s.join(m) })
		}
	}
	time.Sleep(most)
}

// settled waits until nothing changes any more.
func (k *cluster) settled() {
	k.t.Helper()
	time.Sleep(8 * time.Second) // new ports are edges
	for range 600 {
		all := true
		for _, m := range k.members {
			all = all && (m.dead || m.app.Settled())
		}
		if all {
			time.Sleep(time.Second)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	k.t.Error("members do not settle")
	k.dump()
}

// join connects a switch to a member.
func (s *node) join(m *member) {
	ours, theirs := net.Pipe()
	l := &line{ours, make(chan openflow.Message, 100_000)}
	s.net.mu.Lock()
	if m.dead || s.off || s.lines[m] != nil {
		s.net.mu.Unlock()
		return
	}
	s.lines[m] = l
	c := m.c
	s.net.mu.Unlock()
	go c.Meet(stands{theirs, m})
	inbox := speak(ours, l.out, func() {
		s.net.mu.Lock()
		if s.lines[m] == l {
			delete(s.lines, m)
			close(l.out)
			if s.master == l {
				s.master, s.out = nil, nil
			}
		}
		s.net.mu.Unlock()
		ours.Close()
		time.AfterFunc(time.Duration(s.net.below(int(2*time.Second))), func() { s.join(m) })
	})
	go func() {
		for x := range inbox {
			s.net.pause(s.net.slow)
			s.net.mu.Lock()
			if s.lines[m] == l {
				s.handleFrom(l, x)
			}
			s.net.mu.Unlock()
		}
	}()
}

// handleFrom does what a member says, as far as it may say it.
func (s *node) handleFrom(l *line, m openflow.Message) {
	was := s.out
	s.out = l.out
	defer func() {
		if s.out = was; s.master == l {
			s.out = l.out
		}
	}()
	if r, ok := m.(*openflow.RoleRequest); ok {
		s.role(l, r)
		return
	}
	if _, config := m.(*openflow.SetConfig); s.master != l && openflow.Changes(m) && !config {
		s.send(&openflow.Error{Xid: openflow.Xid(m.Transaction()), Code: openflow.BadRequestIsSlave})
		return
	}
	s.handle(m)
}

// role is section 6.3.6 of OpenFlow 1.3.5.
func (s *node) role(l *line, r *openflow.RoleRequest) {
	reply := &openflow.RoleReply{Xid: r.Xid}
	switch r.Role {
	case openflow.RoleMaster, openflow.RoleSlave:
		if s.elected && int64(r.GenerationID-s.generation) < 0 {
			s.send(&openflow.Error{Xid: r.Xid, Code: openflow.RoleRequestFailedStale})
			return
		}
		s.generation, s.elected = r.GenerationID, true
		if r.Role == openflow.RoleMaster {
			s.master = l
		} else if s.master == l {
			s.master = nil
		}
	}
	reply.GenerationID = s.generation
	if !s.elected {
		reply.GenerationID = ^uint64(0)
	}
	if reply.Role = openflow.RoleSlave; s.master == l {
		reply.Role = openflow.RoleMaster
	}
	s.send(reply)
}

const slowest = 100 * time.Millisecond // until a member hears of a change

func eachCluster(t *testing.T, f func(k *cluster)) {
	for seed := range uint64(networks) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inCluster(t, seed, 2+int(seed%3), slowest, func(k *cluster) {
				k.random(2+k.below(6), k.below(6))
				f(k)
			})
		})
	}
}

// Proves that switches of different members make one network without a loop at any time, in
// whatever order they connect and members hear of each other, and that all hosts reach each other.
func TestMembersComeUp(t *testing.T) {
	eachCluster(t, func(k *cluster) {
		k.joinAll(3 * time.Second)
		k.settled()
		k.wantWhole("up")
		if lost := k.talk(); lost > 0 {
			k.t.Errorf("%d packets lost", lost)
		}
		time.Sleep(time.Second)
		k.wantWhole("learned")
	})
}

// Proves that a switch that another member takes, because it is told to or as its master has died,
// goes on as it was: no packet is lost at any time, and entries are not made anew.
func TestMembersTakeOver(t *testing.T) {
	eachCluster(t, func(k *cluster) {
		k.joinAll(time.Second)
		k.settled()
		k.talk()
		time.Sleep(5 * time.Second)
		k.wantWhole("learned")
		k.watch(true)
		changes := k.count(func() {
			for range 5 {
				k.give(k.switches[k.below(len(k.switches))].dpid, k.living())
				k.pause(time.Second)
			}
			k.die(k.members[0])
			k.settled()
		})
		if changes > 0 {
			k.t.Errorf("%d changes of entries for switches that do as they shall", changes)
		}
		time.Sleep(3 * time.Minute)
		k.wantWhole("long after")
	})
}

// trouble is something that happens: a wire goes down or comes up, a switch changes its master, a
// member dies or comes back.
func (k *cluster) trouble() {
	switch k.below(6) {
	case 0, 1, 2:
		k.turnWire(k.wires[k.below(len(k.wires))])
	case 3, 4:
		k.give(k.switches[k.below(len(k.switches))].dpid, k.living())
	case 5:
		if m := k.members[k.below(len(k.members))]; m.dead {
			k.come(m, slowest)
		} else if other := k.living(); other != m {
			k.die(m)
		}
	}
}

// Proves that nothing goes round whatever happens: wires go down and come up, switches change
// masters, members die and come back, all at once; and that all is whole when it is quiet.
func TestMembersTrouble(t *testing.T) {
	eachCluster(t, func(k *cluster) {
		k.joinAll(time.Second)
		for round := range 5 {
			for range 1 + k.below(8) {
				k.trouble()
				k.pause(2 * time.Second)
			}
			time.Sleep(30 * time.Second)
			k.settled()
			k.wantWhole(fmt.Sprint("round ", round))
			k.talk()
			time.Sleep(time.Second)
			k.wantWhole(fmt.Sprint("round ", round, ", learned"))
			if k.failed {
				return
			}
		}
	})
}

// Proves that links that fail while a member stands still are gone round as soon as others have its
// switches, although nobody has withdrawn what it said; that nothing goes round then, nor when it
// wakes up and goes on with what it knew; and that all is whole when it is back.
func TestMembersStandStill(t *testing.T) {
	eachCluster(t, func(k *cluster) {
		k.joinAll(time.Second)
		k.settled()
		for round := range 3 {
			m := k.living()
			if k.below(2) == 0 { // in the middle of something
				k.turnWire(k.wires[k.below(len(k.wires))])
				k.pause(200 * time.Millisecond)
			}
			wake := k.stop(m)
			k.pause(500 * time.Millisecond)
			for range 1 + k.below(3) {
				k.failWire(k.wires[k.below(len(k.wires))])
			}
			k.pause(time.Second)
			k.takeFrom(m)
			const soon = 4 * time.Second
			time.Sleep(soon)
			k.wantWhole(fmt.Sprint("round ", round, ", without ", m.name))
			for _, other := range k.members {
				if other != m && !other.app.Settled() {
					k.t.Errorf("round %d: %s has not settled %v after others have the switches of %s", round, other.name, soon, m.name)
				}
			}
			wake()
			for _, s := range k.switches { // as the store tells it
				if c := m.c.Seen(s.dpid); c != nil && k.owner[s.dpid] != m {
					_ = c.Cease()
				}
			}
			k.settled()
			k.wantWhole(fmt.Sprint("round ", round, ", with ", m.name))
			for _, w := range k.wires {
				if k.isDown(w) && k.below(2) == 0 {
					k.turnWire(w)
				}
			}
			time.Sleep(30 * time.Second)
			k.settled()
			for _, s := range k.switches {
				k.give(s.dpid, k.living())
			}
			k.settled()
			if k.failed {
				return
			}
		}
	})
}

func (k *cluster) isDown(wire []end) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.cables[wire[0]]) == 0
}

// failWire takes a wire down.
func (k *cluster) failWire(wire []end) {
	if !k.isDown(wire) {
		k.setWire(wire, false)
	}
}
