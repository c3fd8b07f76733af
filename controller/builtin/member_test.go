package builtin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/user"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// seat is a controller that is a member of a cluster, and listens.
type seat struct {
	*builtin.Controller
	listener net.Listener
	die      context.CancelFunc

	mu    sync.Mutex
	conns []net.Conn
}

// sit starts a member.
func sit(t *testing.T, st store.Store, name string) *seat {
	t.Helper()
	c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler), Apps: []string{"learning"}, Store: st, Member: name})
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{Controller: c}
	ctx, die := context.WithCancel(t.Context())
	s.die = die
	if err := c.Join(ctx, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Serve(s.listener) }()
	t.Cleanup(func() { s.listener.Close(); die(); c.Close(); c.Member.Wait() })
	return s
}

// connect connects an embedded switch to a member over TCP.
func (s *seat) connect(t *testing.T, a *agent.Agent) {
	t.Helper()
	conn, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	go func() { _ = a.Meet(conn) }()
}

// Proves, with embedded switches over TCP: three members share switches out; an entry that a user
// adds at one is known to all; when that one dies its switches have another master, which has the
// entry and can take it back; and a late master is refused by the switch.
func TestMembers(t *testing.T) {
	st := store.NewMemory(nil, nil)
	defer st.Close()
	seats := []*seat{sit(t, st, "a"), sit(t, st, "b"), sit(t, st, "c")}
	const n = 9
	network := pipeline.NewNetwork()
	start := time.Now()
	for d := uint64(1); d <= n; d++ {
		sw, err := network.Add(pipeline.Config{DatapathID: d, Name: fmt.Sprint("s", d)})
		if err != nil {
			t.Fatal(err)
		}
		a := agent.New(sw, agent.Options{Now: func() time.Duration { return time.Since(start) }})
		t.Cleanup(a.Close)
		for _, s := range seats {
			s.connect(t, a)
		}
	}
	masters := func(seats ...*seat) (of map[uint64]*seat, twice bool) {
		of = map[uint64]*seat{}
		for _, s := range seats {
			for _, sw := range s.Switches() {
				twice = twice || of[sw.DPID()] != nil
				of[sw.DPID()] = s
			}
		}
		return of, twice
	}
	until.True(t, "each switch has one master", func() bool {
		of, twice := masters(seats...)
		return len(of) == n && !twice
	})
	of, _ := masters(seats...)
	dead := of[1]
	m, err := user.Parse("priority=9,udp,actions=drop")
	if err != nil {
		t.Fatal(err)
	}
	f, err := dead.User.Add(t.Context(), 1, m)
	if err != nil {
		t.Fatal(err)
	}
	var live []*seat
	for _, s := range seats {
		until.True(t, "all members know the entry", func() bool { return len(s.User.Flows()) == 1 })
		if s != dead {
			live = append(live, s)
		}
	}
	if _, err := live[0].User.Add(t.Context(), 1, m); err == nil {
		t.Error("a standby adds an entry")
	}
	generation := uint64(0)
	for _, x := range dead.Member.Status().Switches {
		if x.Switch == fmt.Sprintf("%016x", 1) {
			generation = uint64(x.Generation)
		}
	}
	late := dead.Seen(1)
	dead.die() // it gives no more signs of life; its connections are still there
	until.True(t, "its switches have other masters", func() bool {
		of, twice := masters(live...)
		return len(of) == n && !twice
	})
	if err := late.Become(generation); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the switch refuses a late master", func() bool { return !late.Acts() })
	of, _ = masters(live...)
	other := live[0]
	if of[1] == other {
		other = live[1]
	}
	if _, err := other.User.Delete(t.Context(), f.ID); err != nil { // at a standby: the master follows
		t.Fatal(err)
	}
	until.True(t, "the entry is deleted in the switch", func() bool {
		s := of[1].Switch(1)
		if s == nil {
			return false
		}
		flows, err := controller.Ask[openflow.FlowStatsList](t.Context(), s, openflow.AllFlows())
		if err != nil {
			return false
		}
		for _, x := range flows {
			if x.Cookie>>32 == user.Cookie>>32 {
				return false
			}
		}
		return true
	})
}
