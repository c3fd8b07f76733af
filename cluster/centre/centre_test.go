package centre

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/etcd"
	"trivet.dev/trivet/test/servers"
	"trivet.dev/trivet/test/until"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// member is a member of a cluster, as far as the centre knows it.
type member struct {
	*Centre
	nodes atomic.Int64
	stop  func() // it lets go of all it holds
}

// live are the members that are alive.
type live struct {
	mu    sync.Mutex
	names []string
}

func (l *live) are(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = names
}

func (l *live) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.names...)
}

func begin(t *testing.T, name string, o Options) *member {
	t.Helper()
	m := &member{}
	o.Member, o.Log = name, quiet
	o.Load = func() report.Load {
		n := int(m.nodes.Load())
		return report.Load{Nodes: n, Addresses: 2 * n}
	}
	var err error
	if m.Centre, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	m.stop = func() { cancel(); <-ended }
	t.Cleanup(m.stop)
	return m
}

// owns makes a member the master of switches.
func owns(t *testing.T, s store.Store, name string, dpids ...uint64) {
	t.Helper()
	for _, dpid := range dpids {
		if err := s.Commit(t.Context(), nil, store.Put(cluster.SwitchKey(dpid), []byte(`{"master":"`+name+`"}`))); err != nil {
			t.Fatal(err)
		}
	}
}

func upTo(n uint64) (out []uint64) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}

// obey does what members do: who is wished to be a switch's master takes it, but those that are
// never taken.
func obey(ctx context.Context, s store.Store, never map[uint64]bool) {
	there, events, err := s.Watch(ctx, cluster.WantedPrefix)
	for err == nil {
		for _, e := range there {
			var w wish
			var dpid uint64
			if e.Gone() || json.Unmarshal(e.Value, &w) != nil {
				continue
			}
			if _, bad := fmt.Sscanf(e.Key, cluster.WantedPrefix+"%x", &dpid); bad != nil || never[dpid] {
				continue
			}
			_ = s.Commit(ctx, []store.Condition{e.Is()}, store.Delete(e.Key), store.Put(cluster.SwitchKey(dpid), []byte(`{"master":"`+w.Member+`"}`)))
		}
		var more bool
		if there, more = <-events; !more {
			return
		}
	}
}

// masters is how many switches each member has, as the store has it.
func masters(t *testing.T, s store.Store) map[string]int {
	t.Helper()
	all, err := s.List(t.Context(), cluster.SwitchPrefix)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, e := range all {
		var x struct{ Master string }
		if err := json.Unmarshal(e.Value, &x); err != nil {
			t.Fatal(err)
		}
		out[x.Master]++
	}
	return out
}

// Proves that one member is the centre at a time, that another is as soon as it lets go, that
// others say who it is, and that one that is not the centre any more moves nothing.
func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(nil, nil)
		members := map[string]*member{}
		var l live
		l.are("c1", "c2", "c3")
		for _, n := range l.get() {
			members[n] = begin(t, n, Options{Store: s, Live: l.get})
		}
		leader := func() (out []string) {
			for n, m := range members {
				if m.Leads() {
					out = append(out, n)
				}
			}
			return out
		}
		for len(members) > 0 {
			time.Sleep(time.Second)
			now := leader()
			if len(now) != 1 {
				t.Fatalf("centres: %v", now)
			}
			for n, m := range members {
				_, err := m.Idlest(t.Context())
				var other elsewhere
				if n == now[0] && err != nil || n != now[0] && (!errors.As(err, &other) || other.name != now[0]) {
					t.Errorf("%s says: %v; the centre is %s", n, err, now)
				}
			}
			gone := members[now[0]]
			old := gone.lead.Load()
			gone.stop()
			delete(members, now[0])
			owns(t, s, "c1", 1)
			old.take([]store.Event{{Key: cluster.SwitchPrefix + "0000000000000001", Value: []byte(`{"master":"c1"}`), Revision: 1}})
			if err := old.wish(t.Context(), []Move{{1, "c1", "c2"}}); !errors.Is(err, store.ErrChanged) {
				t.Error("who is not the centre any more moves a switch:", err)
			}
			_ = s.Commit(t.Context(), nil, store.Delete(cluster.SwitchPrefix+"0000000000000001"))
		}
		_ = s.Close()
	})
}

// Proves that switches move when members come and go, few at a time, and that it ends; that a
// switch that nobody takes is left where it is, its wish withdrawn; and that users' wishes are left
// alone.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := store.NewMemory(nil, nil)
		var l live
		l.are("c1")
		owns(t, s, "c1", upTo(60)...)
		begin(t, "c1", Options{Store: s, Live: l.get, Limits: &Limits{AtOnce: 7, Start: 0.25, Stop: 0.05}})
		never := map[uint64]bool{1: true, 60: true}
		if err := s.Commit(ctx, nil, store.Put(cluster.WantedKey(60), []byte(`{"member":"c1"}`))); err != nil {
			t.Fatal(err)
		}
		most := 0
		obeyed := make(chan struct{})
		go func() { defer close(obeyed); obey(ctx, s, never) }()
		seen, wishes, err := s.Watch(ctx, cluster.WantedPrefix)
		if err != nil || len(seen) != 1 {
			t.Fatal(seen, err)
		}
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for together := range wishes {
				n := 0
				for _, e := range together {
					if !e.Gone() {
						n++
					}
				}
				most = max(most, n)
			}
		}()
		time.Sleep(time.Minute)
		if got := masters(t, s); got["c1"] != 60 {
			t.Errorf("alone: %v", got)
		}
		rest := func(what string, want map[string]int) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			got := masters(t, s)
			for n, k := range want {
				if d := got[n] - k; d < -1 || d > 1 {
					t.Errorf("%s: %v, want about %v", what, got, want)
				}
			}
			time.Sleep(3 * time.Minute)
			if again := masters(t, s); fmt.Sprint(again) != fmt.Sprint(got) {
				t.Errorf("%s: there is no end: %v, %v", what, got, again)
			}
		}
		l.are("c1", "c2", "c3")
		rest("two come", map[string]int{"c1": 20, "c2": 20, "c3": 20})
		l.are("c1", "c3") // its switches are nobody's, and nobody else takes them
		rest("one goes", map[string]int{"c1": 30, "c3": 30})
		open, err := s.List(ctx, cluster.WantedPrefix)
		if err != nil || len(open) != 1 || open[0].Key != cluster.WantedKey(60) {
			t.Errorf("wishes that are left: %v, %v", open, err)
		}
		cancel()
		<-obeyed
		<-watched
		if most > 7 || most == 0 {
			t.Errorf("%d moves at once", most)
		}
		_ = s.Close()
	})
}

// Proves that a switch that is nobody's is not wished for at once: members share it out themselves.
func TestOrphansWait(t *testing.T) {
	s := store.NewMemory(nil, nil)
	defer s.Close()
	c, err := New(Options{Store: s, Member: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	l := &leading{c: c, masters: map[uint64]string{7: "gone"}}
	now := time.Now()
	if moves := l.plan([]string{"c1"}, now); len(moves) > 0 {
		t.Error("at the first look:", moves)
	}
	if moves := l.plan([]string{"c1"}, now); len(moves) != 1 || moves[0] != (Move{7, "gone", "c1"}) {
		t.Error("at the second:", moves)
	}
}

// Proves that a switch that a user has moved stays with that member for five minutes, however
// unequal that makes members; but not when the member is gone, and not where the member did not
// take it.
func TestKept(t *testing.T) {
	for _, x := range []struct {
		what   string
		master string // the user wanted c2
		live   []string
		after  time.Duration
		moves  bool
	}{
		{"soon after", "c2", []string{"c1", "c2"}, keptTime - time.Minute, false},
		{"when the time is over", "c2", []string{"c1", "c2"}, keptTime + time.Minute, true},
		{"when the member is gone", "c2", []string{"c1"}, time.Minute, true},
		{"when the member has not taken it", "c3", []string{"c1", "c3"}, time.Minute, true},
	} {
		s := store.NewMemory(nil, nil)
		c, err := New(Options{Store: s, Member: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		// One of the two is to move, and the other stays for an hour.
		l := &leading{c: c, masters: map[uint64]string{2: x.master, 3: x.master}, wishes: map[uint64]wish{},
			kept: map[uint64]kept{3: {x.master, now.Add(time.Hour)}}}
		l.take([]store.Event{{Key: cluster.WantedKey(2), Value: []byte(`{"member":"c2"}`)}})
		l.take([]store.Event{{Key: cluster.WantedKey(2)}})
		l.plan(x.live, now.Add(x.after)) // switches without a master are looked at twice
		got := slices.ContainsFunc(l.plan(x.live, now.Add(x.after)), func(m Move) bool { return m.DPID == 2 })
		if got != x.moves {
			t.Errorf("%s: it moves: %v", x.what, got)
		}
		_ = s.Close()
	}
}

// Proves that after moves of traffic the centre waits for as long as the window of traffic is, and
// after others for two reports.
func TestSettle(t *testing.T) {
	c, err := New(Options{Member: "c1", Measure: &Measure{Default.Weights, 1000}})
	if err != nil {
		t.Fatal(err)
	}
	heavy, light := Switch{DPID: 1, Nodes: 1, Southbound: 5000}, Switch{DPID: 2, Nodes: 1}
	if d := c.settle([]Move{{DPID: 1}}, []Switch{heavy, light}); d != 30*time.Second {
		t.Error(d)
	}
	if d := c.settle([]Move{{DPID: 2}}, []Switch{heavy, light}); d != 2*report.Every {
		t.Error(d)
	}
}

// ask asks a member's API and reads the answer; the text is that of a refusal.
func (m *member) ask(t *testing.T, method, path, body string, into any) (int, string) {
	t.Helper()
	mux := http.NewServeMux()
	m.Register(humago.New(mux, huma.DefaultConfig("t", "1")))
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if into != nil && w.Code == 200 {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v", w.Body, err)
		}
	}
	return w.Code, w.Body.String()
}

// Proves what the API answers: who is idlest, placements that count at once, members with all that
// busyness is made of, and what is refused and how, also while nobody has reported.
func TestAPI(t *testing.T) {
	s := store.NewMemory(nil, nil)
	defer s.Close()
	var l live
	l.are("c1", "c2")
	if err := s.Commit(t.Context(), nil, store.Put("cluster/member/c2", []byte(`{"name":"c2","openflow":"tcp:127.0.0.1:6654","api":"unix:/x"}`))); err != nil {
		t.Fatal(err)
	}
	owns(t, s, "c1", 1)
	c1 := begin(t, "c1", Options{Store: s, Live: l.get})
	until.True(t, "c1 is the centre", c1.Leads)
	c2 := begin(t, "c2", Options{Store: s, Live: l.get})
	var idlest ClusterIdlest
	if code, text := c1.ask(t, "GET", "/v1/cluster/idlest", "", &idlest); code != 200 || idlest.Member != "c2" || idlest.OpenFlow != "tcp:127.0.0.1:6654" || idlest.API != "unix:/x" {
		t.Error("by what the store has:", code, text)
	}
	now := time.Now()
	for _, m := range []*member{c1, c2} {
		m.table.take(says("c1", 1, 1, 10, 10), now)
		m.table.take(says("c2", 1, 1, 8, 8), now)
	}
	var got []string
	for range 6 { // the two differ by two nodes
		if code, text := c1.ask(t, "POST", "/v1/cluster/placements", `{"nodes":1,"addresses":1}`, &idlest); code != 200 {
			t.Fatal(code, text)
		}
		got = append(got, idlest.Member)
	}
	if strings.Join(got, " ") != "c2 c2 c1 c2 c1 c2" {
		t.Error("placed at", got)
	}
	var all ClusterMembers
	if code, text := c1.ask(t, "GET", "/v1/cluster/members", "", &all); code != 200 || all.Centre != "c1" || all.Basis != "reports" || len(all.Members) != 2 ||
		all.Members[1].PlacedNodes != 4 || all.Members[1].Nodes != 12 || !near(all.Members[1].RM, 0.5) || !near(all.Members[1].AM, 0.5) || !near(all.Members[1].Busyness, 1./3) ||
		all.Members[0].Age == nil || *all.Members[0].Switches != 1 || all.Broker == "" {
		t.Error(code, text)
	}
	var one ClusterMember
	if code, text := c2.ask(t, "GET", "/v1/cluster/members/c1", "", &one); code != 200 || one.Nodes != 10 || one.Switches != nil {
		t.Error("by a member that is not the centre:", code, text)
	}
	for _, x := range []struct {
		at                 *member
		method, path, body string
		code               int
		text               string
	}{
		{c1, "GET", "/v1/cluster/members/c9", "", 404, "there are: c1, c2"},
		{c2, "GET", "/v1/cluster/idlest", "", 409, "the scheduling centre is c1"},
		{c2, "POST", "/v1/cluster/placements", `{}`, 409, "the scheduling centre is c1"},
		{c1, "POST", "/v1/cluster/placements", `{"nodes":-1}`, 422, "nodes"},
		{c1, "POST", "/v1/cluster/placements", `{"addresses":9999999}`, 422, "addresses"},
		{c1, "POST", "/v1/cluster/placements", `{"switch":"s1"}`, 422, "switch"},
		{c1, "POST", "/v1/cluster/placements", `{"switch":"0"}`, 422, "datapath id 0"},
		{c1, "POST", "/v1/cluster/placements", `{"switch":"1"}`, 409, "has a master"},
		{c1, "POST", "/v1/cluster/placements", `{"switch":"ab"}`, 200, ""},
		{c1, "POST", "/v1/cluster/placements", `{"switch":"AB"}`, 409, "placed already"},
		{c1, "POST", "/v1/cluster/placements", `{"nodes":`, 400, ""},
	} {
		if code, text := x.at.ask(t, x.method, x.path, x.body, nil); code != x.code || !strings.Contains(text, x.text) {
			t.Errorf("%s %s %s: %d %s", x.method, x.path, x.body, code, text)
		}
	}
	if e, err := s.Get(t.Context(), cluster.WantedKey(0xab)); err != nil || !strings.Contains(string(e.Value), `"by":"placement"`) {
		t.Errorf("%s, %v", e.Value, err)
	}
	l.are()
	if code, text := c1.ask(t, "GET", "/v1/cluster/idlest", "", nil); code != 503 || !strings.Contains(text, ErrNobody.Error()) {
		t.Error("nobody lives:", code, text)
	}
}

// Proves with an etcd and a RabbitMQ that members hear each other, that the centre counts what it
// places until a report has it, that it is told apart when the broker is gone, and that when it
// dies without a word another is it, and knows what reports say.
func TestRealParts(t *testing.T) {
	db, mq := servers.StartEtcd(t, "http"), servers.StartRabbitMQ(t)
	broker := report.Broker{URL: mq.URL, User: mq.User, Password: mq.Password}
	members, stores := map[string]*member{}, map[string]store.Store{}
	for i, n := range []string{"c1", "c2", "c3"} {
		a, err := etcd.ParseAddress(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		if stores[n], err = etcd.Open(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		defer stores[n].Close()
		members[n] = begin(t, n, Options{Store: stores[n], Broker: broker, Every: 200 * time.Millisecond})
		members[n].nodes.Store(int64(10 * (i + 1)))
	}
	leader := func() (name string) {
		for n, m := range members {
			if m.Leads() {
				name = n
			}
		}
		return name
	}
	candidates := func(m *member) (out string) {
		all, reports := m.Standings()
		for _, s := range all {
			if s.Candidate && reports {
				out += fmt.Sprintf("%s %d ", s.Name, s.Nodes)
			}
		}
		return out
	}
	until.True(t, "there is a centre", func() bool { return leader() != "" })
	for _, m := range members {
		until.True(t, "each hears all", func() bool { return candidates(m) == "c1 10 c2 20 c3 30 " })
	}
	first := members[leader()]
	for range 10 {
		if s, err := first.Place(t.Context(), 1, 2, 0); err != nil || s.Name != "c1" {
			t.Fatal(s, err)
		}
	}
	if s, err := first.Place(t.Context(), 1, 2, 0xabc); err != nil || s.Name != "c1" && s.Name != "c2" {
		t.Fatal(s, err)
	}
	members["c1"].nodes.Store(20)
	until.True(t, "what was placed is in the report", func() bool {
		n, _ := first.table.placedAt("c1", time.Now())
		return n <= 1 && first.lead.Load() != nil
	})

	mq.Kill()
	until.True(t, "it is told that the broker is gone", func() bool {
		all, reports := first.Standings()
		return first.Broker() != nil && !reports && len(all) == 3
	})
	mq.Start()
	until.True(t, "the reports are back", func() bool { return first.Broker() == nil && strings.HasPrefix(candidates(first), "c1 2") })

	dead := leader()
	stores[dead].Close() // it says nothing any more, and its lease is left to end
	delete(members, dead)
	until.True(t, "another is the centre", func() bool { return leader() != "" })
	next := members[leader()]
	until.True(t, "it knows the members", func() bool {
		s, err := next.Idlest(t.Context())
		return err == nil && s.Reported
	})
}
