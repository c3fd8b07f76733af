package centre

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/etcd"
	"trivet.dev/trivet/test/servers"
	"trivet.dev/trivet/test/until"
)

// wire is between a client and a server, and counts what passes, either way.
func wire(t *testing.T, to string, passed *atomic.Int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(a, b net.Conn) {
		defer a.Close()
		defer b.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := a.Read(buf)
			passed.Add(int64(n))
			if err != nil {
				return
			}
			if _, err := b.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			go pass(a, b)
			go pass(b, a)
		}
	}()
	return l.Addr().String()
}

// each is what one of many takes.
func each(n int, f func(i int)) time.Duration {
	begun := time.Now()
	for i := range n {
		f(i)
	}
	return time.Since(begun) / time.Duration(n)
}

// largest is the load of a member that has so many switches, of which as many as a report names are
// heavy.
func largest(switches int) report.Load {
	l := report.Load{Nodes: switches, Addresses: 4 * switches, Southbound: 1 << 31}
	for i := range report.MostSwitches {
		l.Heaviest = append(l.Heaviest, report.Switch{DPID: 1<<63 + uint64(i), Addresses: 40, Southbound: 1 << 24})
	}
	return l
}

// What reports, answers and moves would cost a cluster of ten members with 100,000 switches: its
// traffic is computed from costs that are measured here, with a real broker and store, and moves
// are made on a model of it. What is proven is only that all of it was measured, and that moves
// end.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures")
	}
	const members, switches = 10, 100_000
	mq, db := servers.StartRabbitMQ(t), servers.StartEtcd(t, "http")

	// A report: to sign, to read, its bytes, its way, and what passes of AMQP for it.
	key := report.Key("0123456789abcdef0123456789abcdef")
	r := report.Report{Member: "member-1", Incarnation: 1, Sequence: 1, When: time.Now().UTC(), Load: largest(switches / members)}
	text, err := key.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	sign := each(2000, func(int) { _, _ = key.Encode(r) })
	read := each(2000, func(int) { _, _ = key.Decode(text) })
	way, published, heard := throughBroker(t, mq, key, r.Load)

	const perSecond = float64(members) / 2 // report.Every
	t.Logf("measured: a report of %d bytes is signed in %v and read in %v; its way through the broker takes %v (median); %d bytes pass to the broker for it, and %d to each listener",
		len(text), sign, read, way.Round(time.Microsecond), published, heard)
	t.Logf("simulated, %d members: %.0f reports/s published, %.0f/s heard; %.0f kB/s to the broker, %.0f kB/s from it; %.3f %% of a processor at each member",
		members, perSecond, perSecond*members, perSecond*float64(published)/1000, perSecond*members*float64(heard)/1000,
		100*(sign.Seconds()/2+perSecond*read.Seconds()))

	// An answer.
	c, err := New(Options{Store: store.NewMemory(nil, nil), Member: "m0"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var names []string
	for i := range members {
		names = append(names, fmt.Sprintf("m%d", i))
		x := r
		x.Member = names[i]
		c.table.take(x, now)
	}
	answer := each(2000, func(int) {
		if _, err := c.idlest(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("measured: which of %d members is idlest is answered in %v, by one processor", members, answer)

	// Moves, when a member comes.
	random := rand.New(rand.NewPCG(1, 2))
	owner := map[uint64]string{}
	f := &field{m: Default}
	f.live(append(names, "new")...)
	for i := range switches {
		s := Switch{DPID: uint64(i + 1), Master: names[i%members], Nodes: 1, Addresses: 4, Southbound: random.Uint64N(2000)}
		f.switches, owner[s.DPID] = append(f.switches, s), s.Master
	}
	costs := each(5, func(int) { c.table.switches(owner, func(uint64) bool { return false }, now) })
	plan := each(5, func(int) { f.m.Plan(f.members, f.switches, DefaultLimits, false) })
	change := commits(t, db)
	rounds, moves := 0, 0
	for l := (Limits{AtOnce: 1000, Start: DefaultLimits.Start, Stop: DefaultLimits.Stop}); ; rounds++ {
		made := f.round(l) // many at a time only so that this test is short: each look plans anew
		if len(made) == 0 {
			break
		}
		moves += len(made)
	}
	if moves == 0 || f.unequal() > DefaultLimits.Stop+0.01 {
		t.Errorf("%d moves, unequal by %v", moves, f.unequal())
	}
	looks := (moves + DefaultLimits.AtOnce - 1) / DefaultLimits.AtOnce
	t.Logf("measured: of %d switches the costs are known in %v, and %d moves are planned in %v and written to the store in %v",
		switches, costs.Round(time.Millisecond), DefaultLimits.AtOnce, plan.Round(time.Millisecond), change.Round(time.Microsecond))
	t.Logf("simulated, an eleventh member comes: %d moves, in %d rounds of %d: %v at one each %v, for %.1f %% of a processor at the centre",
		moves, looks, DefaultLimits.AtOnce, time.Duration(looks)*2*report.Every, 2*report.Every, 100*(costs+plan+change).Seconds()/(2*report.Every).Seconds())
}

// throughBroker measures how long reports take through a broker, and what passes for one: to the
// broker, and from it to a listener.
func throughBroker(t *testing.T, mq *servers.RabbitMQ, key report.Key, load report.Load) (median time.Duration, published, heard int) {
	const reports = 200
	var to, from atomic.Int64
	through := func(passed *atomic.Int64) report.Broker {
		u, err := url.Parse(mq.URL)
		if err != nil {
			t.Fatal(err)
		}
		return report.Broker{URL: "amqp://" + wire(t, u.Host, passed), User: mq.User, Password: mq.Password}
	}
	withKey := func(context.Context) (report.Key, error) { return key, nil }
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	var mu sync.Mutex
	var sent time.Time
	var took []time.Duration
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(took)
	}
	l, err := report.NewListener(through(&from), withKey, func(report.Report) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(sent))
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	group.Go(func() { l.Run(ctx) })
	until.True(t, "it listens", func() bool { return l.Problem() == nil })
	one := func(context.Context) (int64, error) { return 1, nil }
	m, err := report.NewReporter(through(&to), withKey, "member-1", one, 20*time.Millisecond, func() report.Load {
		mu.Lock()
		defer mu.Unlock()
		sent = time.Now()
		return load
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	group.Go(func() { m.Run(ctx) })
	until.True(t, "reports come", func() bool { return count() >= 10 })
	begun, before := count(), [2]int64{to.Load(), from.Load()}
	until.True(t, "many reports come", func() bool { return count() >= begun+reports })
	n := int64(count() - begun)
	published, heard = int((to.Load()-before[0])/n), int((from.Load()-before[1])/n)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(took)
	return took[len(took)/2], published, heard
}

// commits measures how long the store takes to write as many wishes as go into one change.
func commits(t *testing.T, db *servers.Etcd) time.Duration {
	a, err := etcd.ParseAddress(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := etcd.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return each(20, func(round int) {
		var conditions []store.Condition
		var changes []store.Change
		for i := range uint64(inOneCommit) {
			dpid := uint64(round)<<32 + i
			conditions = append(conditions, store.Condition{Key: cluster.WantedKey(dpid)}, store.Condition{Key: cluster.SwitchPrefix + fmt.Sprint(dpid)})
			changes = append(changes, wanted(dpid, "c1", byCentre))
		}
		if err := s.Commit(t.Context(), conditions, changes...); err != nil {
			t.Fatal(err)
		}
	})
}
