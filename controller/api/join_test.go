package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// served serves a member's API, and is how it is reached.
func (k *team) served(m *teamMember) *http.Transport {
	to, stop := serve(m.Controller, "")
	k.t.Cleanup(stop)
	return to
}

// jointTeam is a team that is asked together.
type jointTeam struct {
	*team
	Joint
	*Client
	missing []string        // of the last answer
	hung    map[string]bool // members that take a connection, and say nothing
	dead    map[string]bool // those that the others call dead
}

func (k *team) joint() *jointTeam {
	j := &jointTeam{team: k, hung: map[string]bool{}, dead: map[string]bool{}}
	var members []JointMember
	for _, m := range k.members {
		to := k.served(m)
		members = append(members, JointMember{Name: m.name, RoundTripper: roundTripper(func(r *http.Request) (*http.Response, error) {
			if j.hung[m.name] {
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			}
			return to.RoundTrip(r)
		}), Status: func(ctx context.Context) (s cluster.Status, err error) {
			ctx, cancel := patience.MemberAlive.Context(ctx)
			defer cancel()
			if j.hung[m.name] {
				<-ctx.Done()
				return s, ctx.Err()
			}
			for _, x := range k.members {
				s.Members = append(s.Members, cluster.MemberStatus{MemberRecord: cluster.MemberRecord{Name: x.name}, Alive: !j.dead[x.name]})
			}
			return s, nil
		}})
	}
	j.Members = func() []JointMember { return members }
	j.Switches = func() (names []string) {
		for _, n := range k.topology.Nodes {
			if n.IsDatapath() {
				names = append(names, n.Name)
			}
		}
		return names
	}
	j.Client = Over(roundTripper(func(r *http.Request) (*http.Response, error) {
		w := &answer{header: http.Header{}, status: http.StatusOK}
		if !Joins(r) {
			return nil, errors.New(r.URL.Path + " is not joined")
		}
		j.Joint.ServeHTTP(w, r)
		return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body)}, nil
	}), func(err error) error { return err })
	j.Lacks = func(missing []string) { j.missing = missing }
	return j
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is what a handler has written.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// ringOfOSPF is a ring of routers that speak OSPF.
func ringOfOSPF(t *testing.T) *topology.Topology {
	t.Helper()
	top := ringOf(t, topology.Router)
	for _, n := range top.Nodes {
		if n.Kind == topology.Router {
			n.Protocols.Set(&topology.OSPF{})
		}
	}
	for _, l := range top.Links {
		l.Protocols.Set(&topology.OSPFLink{Hello: topology.Duration(time.Second), Dead: topology.Duration(4 * time.Second)})
	}
	return top
}

// wantOnce wants each of the routers so often in a list, and no others.
func wantOnce(t *testing.T, what string, got []string, each int, routers ...string) {
	t.Helper()
	count := map[string]int{}
	for _, name := range got {
		count[name]++
	}
	for _, name := range routers {
		if count[name] != each {
			t.Errorf("%s: %d times %s, not %d", what, count[name], name, each)
		}
		delete(count, name)
	}
	if len(count) > 0 {
		t.Errorf("%s: also %v", what, count)
	}
}

// What members know of their own switches alone is answered for all of them: each neighbour,
// interface, route, LSA and port once, whoever its master is, and whoever becomes that.
func TestJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOfOSPF(t)).joint()
		routers := k.Switches()
		k.wait("all routers are neighbours", func() bool {
			list, err := k.OSPFNeighbors(t.Context(), "")
			k.must(err)
			full := 0
			for _, x := range list {
				if x.State == "Full" {
					full++
				}
			}
			return full == 8 && len(list) == 8
		})
		all := func(when string) {
			t.Helper()
			k.wait(when+" the databases are the same, and ports are read", func() bool {
				s, err := k.Statistics(t.Context())
				k.must(err)
				routes, err := k.OSPFRoutes(t.Context(), "")
				k.must(err)
				database, err := k.OSPFDatabase(t.Context(), "")
				k.must(err)
				interfaces, err := k.OSPFInterfaces(t.Context(), "")
				k.must(err)
				if len(database) > 4 || slices.ContainsFunc(interfaces, func(x ospf.Attachment) bool { return x.Restart != nil }) {
					return false // routers that others have taken still restart
				}
				neighbors, err := k.OSPFNeighbors(t.Context(), "")
				k.must(err)
				if len(neighbors) != 8 || slices.ContainsFunc(neighbors, func(x ospf.Neighbor) bool { return x.State != "Full" || x.Helped != nil }) {
					return false
				}
				used, err := k.Routes(t.Context(), "", "")
				k.must(err)
				return len(routes) == 4*8 && len(used.Routes) == 4*8 && !slices.ContainsFunc(s.Links, func(l Link) bool { return l.Rates[0] == nil || l.Rates[1] == nil })
			})
			interfaces, err := k.OSPFInterfaces(t.Context(), "")
			k.must(err)
			wantOnce(t, when+" interfaces", each(interfaces, func(x ospf.Attachment) string { return x.Router }), 3, routers...)
			database, err := k.OSPFDatabase(t.Context(), "")
			k.must(err)
			wantOnce(t, when+" LSAs", each(database, func(x ospf.LSA) string { return x.Router }), 1, routers...)
			for _, name := range routers {
				list, err := k.OSPFNeighbors(t.Context(), name)
				k.must(err)
				wantOnce(t, when+" neighbours", each(list, func(x ospf.Neighbor) string { return x.Router }), 2, name)
			}
			routes, err := k.Routes(t.Context(), "", "")
			k.must(err)
			wantOnce(t, when+" routes", each(routes.Routes, func(x Route) string { return x.Router }), 8, routers...)
			s, err := k.Statistics(t.Context())
			k.must(err)
			wantOnce(t, when+" ports", each(s.Ports, func(x PortStatistics) string { return x.Switch }), 3, routers...)
			if len(s.Links) != 8 || len(s.PacketsIn) == 0 {
				t.Errorf("%s: %d links, packets %v", when, len(s.Links), s.PacketsIn)
			}
			topology, err := k.Topology(t.Context())
			k.must(err)
			wantOnce(t, when+" switches", each(topology.Switches, func(x Switch) string { return x.Name }), 1, routers...)
			for _, x := range topology.Switches {
				if x.Southbound == nil || x.Ports[0].Traffic.Time == nil {
					t.Errorf("%s: of %s it is not known what its master knows: %+v", when, x.Name, x)
				}
			}
			if len(topology.Links) != 8 || len(topology.Hosts) != 4 {
				t.Errorf("%s: %d links, %d hosts", when, len(topology.Links), len(topology.Hosts))
			}
			packets, err := k.OSPFCapture(t.Context(), "")
			k.must(err)
			if r, err := pcapgo.NewReader(bytes.NewReader(packets)); err != nil {
				t.Error(err)
			} else if _, _, err := r.ReadPacketData(); err != nil {
				t.Error(err)
			}
			log, err := k.OSPFLog(t.Context(), "")
			k.must(err)
			if len(log.Runs) < 3 {
				t.Errorf("%s: %d calculations", when, len(log.Runs))
			}
			if k.missing != nil {
				t.Errorf("%s: an answer lacks %v", when, k.missing)
			}
		}
		all("first")
		for i, dpid := range k.switches() {
			k.give(dpid, k.members[(i+1)%3])
		}
		all("after others have taken them")
		if _, err := k.OSPFRoutes(t.Context(), "r9"); err == nil || !strings.Contains(err.Error(), `no router "r9"`) {
			t.Errorf("of a router that is not there: %v", err)
		}
	})
}

// A switch that gets another master again and again is in each answer once, as are those that stay.
func TestJoinedMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Router)).joint()
		dpid, stop, moved := k.switches()[0], make(chan struct{}), make(chan int)
		go func() {
			n := 0
			defer func() { moved <- n }()
			for ; ; n++ {
				select {
				case <-stop:
					return
				default:
					k.give(dpid, k.members[n%3])
				}
			}
		}()
		for range 100 {
			routes, err := k.Routes(t.Context(), "", "")
			k.must(err)
			wantOnce(t, "routes", each(routes.Routes, func(x Route) string { return x.Router }), 8, k.Switches()...)
			if t.Failed() {
				break
			}
		}
		close(stop)
		t.Log("moves:", <-moved)
		if k.missing != nil {
			t.Errorf("an answer lacks %v", k.missing)
		}
	})
}

// A member that takes a connection and says nothing holds an answer up for a bounded time; the
// answer says what it lacks, in a form that nobody takes for a whole one. It is not waited for at
// all when the others call it dead, and lacks nothing when they have its switches.
func TestJoinedHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Router)).joint()
		k.hung["m2"] = true
		restore := patience.MemberAlive.Be(50 * time.Millisecond)
		routes, err := k.Routes(t.Context(), "", "")
		restore()
		k.must(err)
		var others []string
		for i, name := range k.Switches() {
			if i%3 != 1 {
				others = append(others, name)
			}
		}
		wantOnce(t, "routes", each(routes.Routes, func(x Route) string { return x.Router }), 8, others...)
		if text := strings.Join(k.missing, "\n"); !strings.Contains(text, "only the master of "+k.Switches()[1]+" knows") || !strings.Contains(text, "member m2: ") {
			t.Errorf("the answer lacks %q", text)
		}
		k.Lacks = nil
		restore = patience.MemberAlive.Be(50 * time.Millisecond)
		if _, err := k.Routes(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "incomplete") {
			t.Errorf("a client without Lacks gets an incomplete answer: %v", err)
		}
		restore()

		k.dead["m2"], k.missing = true, nil
		k.Lacks = func(missing []string) { k.missing = missing }
		k.give(k.switches()[1], k.members[2])
		defer patience.MemberAlive.Be(time.Hour)()
		routes, err = k.Routes(t.Context(), "", "")
		k.must(err)
		wantOnce(t, "routes without the dead one", each(routes.Routes, func(x Route) string { return x.Router }), 8, k.Switches()...)
		if k.missing != nil {
			t.Errorf("an answer lacks %v", k.missing)
		}
		if _, err := k.Statistics(t.Context()); err != nil || len(k.missing) != 1 || !strings.Contains(k.missing[0], "member m2: ") {
			t.Errorf("what the dead one has counted is not missing: %v, %v", k.missing, err)
		}
	})
}

// What an answer lacks is a field of it, or beside what is no object.
func TestWithMissing(t *testing.T) {
	for _, c := range [][2]string{
		{`[1,2]`, `{"items":[1,2],"missing":["a","b"]}`},
		{`{"x":1}`, `{"x":1,"missing":["a","b"]}`},
		{"{ }\n", `{"missing":["a","b"]}`},
		{`null`, `{"items":null,"missing":["a","b"]}`},
	} {
		got, err := WithMissing([]byte(c[0]), []string{"a", "b"})
		var back any
		if err != nil || json.Unmarshal(got, &back) != nil || strings.ReplaceAll(string(got), " ", "") != c[1] {
			t.Errorf("%s became %s, %v", c[0], got, err)
		}
		if same, err := WithMissing([]byte(c[0]), nil); err != nil || string(same) != c[0] {
			t.Errorf("%s became %s, %v", c[0], same, err)
		}
	}
}

// Whose part an answer is survives any name.
func TestPartText(t *testing.T) {
	for _, names := range [][]string{nil, {"s1"}, {"s1", "r 2", "ü,%", "x"}} {
		got, err := parsePart(partText(names))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(names) {
			t.Errorf("%q became %q, %v", names, got, err)
		}
	}
}

// The path of a packet through the switches of three members, and why it takes that, is what one
// controller says of the same network, whichever member follows it: by OSPF's routes of routers
// that have no entry for it yet, over several ways of equal cost, with what all links carry, and
// with what a way costs that another member's router would take. What is wrong is said as by one
// controller, and what the dead one knows is missing.
func TestJoinedPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := func(list []ospf.Route, err error) bool {
			if err != nil {
				t.Fatal(err)
			}
			two := 0
			for _, r := range list {
				if len(r.Hops) == 2 {
					two++
				}
			}
			return len(list) == 4*8 && two == 4
		}
		b := newFixtureOf(t, ringOfOSPF(t), "")
		k := newTeam(t, ringOfOSPF(t)).joint()
		b.wait("one controller's routers have the shortest routes", func() bool { return whole(b.OSPFRoutes(t.Context(), "")) && b.c.Routing.Quiet() })
		k.wait("all members' routers have the shortest routes", func() bool { return whole(k.OSPFRoutes(t.Context(), "")) })
		k.quiet()
		k.wait("ports are read", func() bool {
			s, err := k.Statistics(t.Context())
			k.must(err)
			return !slices.ContainsFunc(s.Links, func(l Link) bool { return l.Rates[0] == nil || l.Rates[1] == nil })
		})
		measured := false // whether a rate is known is compared with what must be
		text := func(p Path, err error) string {
			if err != nil {
				return err.Error()
			}
			for _, w := range p.Ways {
				for i := range w.Hops {
					h := &w.Hops[i]
					if measured && h.Out != "" && h.Rate == nil {
						t.Errorf("of %s to %s it is not known what %s sends", p.From, p.To, h.Out)
					}
					h.Rate, h.Utilisation = nil, nil
				}
			}
			out, err := json.Marshal(p)
			k.must(err)
			return string(out)
		}
		compare := func(when string) {
			t.Helper()
			for _, from := range []string{"h1", "h2", "r1", "r2", "r3"} {
				for _, to := range []string{"h1", "h3", "r4", "192.0.2.1", "nobody"} {
					q := PathQuery{From: from, To: to, TCP: 80}
					measured = false
					want := text(b.Path(t.Context(), q))
					measured = true
					if got := text(k.Path(t.Context(), q)); got != want {
						t.Errorf("%s, from %s to %s: %s; one controller says %s", when, from, to, got, want)
					}
				}
			}
			if k.missing != nil {
				t.Errorf("%s: a path lacks %v", when, k.missing)
			}
		}
		compare("all are there")
		members := slices.Clone(k.Members())
		for range members {
			members = append(members[1:], members[0])
			k.Joint.Members = func() []JointMember { return members }
			compare("asked is " + members[0].Name)
		}
		k.hung["m3"], k.dead["m3"] = true, true
		restore := patience.MemberAlive.Be(50 * time.Millisecond)
		p, err := k.Path(t.Context(), PathQuery{From: "h1", To: "h3"})
		restore()
		if err != nil || len(p.Ways) == 0 || !strings.Contains(strings.Join(k.missing, ""), "only the master of r3 knows") {
			t.Errorf("without m3: %+v, %v; it lacks %v", p, err, k.missing)
		}
	})
}

// A path is installed at the master of its routers: others refuse, so that it is asked, and a path
// over routers of several is refused with the one that another has. It is taken back wherever it
// is.
func TestJoinedInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Router)).joint()
		of := func(m *teamMember) *Client { return Over(k.served(m), func(err error) error { return err }) }
		way := PathRequest{To: "h3", Routers: []string{"r1", "r4", "r3"}}
		refused := func(m int, want string) {
			t.Helper()
			c := of(k.members[m])
			_, err := c.InstallPath(t.Context(), way)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("m%d says of a path: %v, not %q", m+1, err, want)
			}
		}
		k.give(k.switches()[3], k.members[1])
		refused(1, "r1: another controller is master")
		refused(0, "r4 has another master than r1")
		if _, err := of(k.members[1]).PossiblePaths(t.Context(), "r1", "h3", 3); err == nil || !strings.Contains(err.Error(), "another controller is master") {
			t.Errorf("who is not r1's master lists paths from it: %v", err)
		}
		k.give(k.switches()[3], k.members[0])
		k.quiet()
		_, err := of(k.members[0]).InstallPath(t.Context(), way)
		k.must(err)
		moved := func() []MovedPath {
			b, err := k.Balance(t.Context())
			k.must(err)
			return b.Moved
		}
		if m := moved(); len(m) != 1 || !slices.Equal(m[0].Routers, way.Routers) {
			t.Errorf("these have moved: %+v", m)
		}
		k.must(k.TakePathBack(t.Context(), "h3"))
		if m := moved(); len(m) != 0 {
			t.Errorf("these have still moved: %+v", m)
		}
		if err := k.TakePathBack(t.Context(), "h3"); err == nil || !strings.Contains(err.Error(), "no path to h3 was installed") {
			t.Errorf("what is not installed is taken back: %v", err)
		}
		k.hung["m2"] = true
		defer patience.MemberAlive.Be(50 * time.Millisecond)()
		if err := k.TakePathBack(t.Context(), "h3"); err == nil || !strings.Contains(err.Error(), "member m2: ") {
			t.Errorf("m2 does not answer, and has taken back what it has: %v", err)
		}
	})
}
