package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// line is how a member is reached.
type line struct {
	still chan bool // has something: the member stands still
	mu    sync.Mutex
	cut   bool
	end   context.CancelCauseFunc
	over  context.Context
}

var errCut = errors.New("the member is dead")

func (l *line) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.end(errCut)
}

func (l *line) revive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	l.over, l.end = context.WithCancelCause(context.Background())
}

// wrap wraps what reaches the member.
func (l *line) wrap(to http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.mu.Lock()
		over, cut := l.over, l.cut
		l.mu.Unlock()
		if cut {
			return nil, errCut
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		context.AfterFunc(over, func() { cancel(errCut) })
		resp, err := to.RoundTrip(r.WithContext(ctx))
		if err == nil {
			resp.Body = &stillBody{resp.Body, l}
		}
		return resp, err
	})
}

type stillBody struct {
	io.ReadCloser
	l *line
}

func (b *stillBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.l.still <- true // not a lock: who waits for one is not known to wait (testing/synctest)
	<-b.l.still
	return n, err
}

// listener reads the events of all members.
type listener struct {
	*jointTeam
	lines map[string]*line
	mu    sync.Mutex
	list  []toldEvent
	err   error // the stream has ended
}

// toldEvent is an event, and what it says.
type toldEvent struct {
	name, what string
	time       time.Time
	data       []byte
}

// listen follows the events, while some members are dead.
func (k *jointTeam) listen(q EventQuery, dead ...string) *listener {
	k.t.Helper()
	x := &listener{jointTeam: k, lines: map[string]*line{}}
	members := slices.Clone(k.Members())
	for i, m := range members {
		l := &line{still: make(chan bool, 1)}
		l.revive()
		if slices.Contains(dead, m.Name) {
			l.kill()
		}
		x.lines[m.Name], members[i].RoundTripper = l, l.wrap(m.RoundTripper)
	}
	all := &Joint{Members: func() []JointMember { return members }, Switches: k.Joint.Switches}
	at := listen()
	server := &http.Server{Handler: all}
	go func() { _ = server.Serve(at) }()
	k.t.Cleanup(func() { server.Close() })
	c := Over(&http.Transport{DialContext: at.dial}, func(err error) error { return err })
	done := make(chan bool)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		err := c.Events(ctx, q, func(name string, data []byte) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.list = append(x.list, told(name, data))
			return nil
		})
		x.mu.Lock()
		defer x.mu.Unlock()
		x.err = errors.Join(errors.New("the stream has ended"), err)
	}()
	k.t.Cleanup(func() { cancel(); <-done })
	k.wait("the stream has begun", func() bool { return x.count("ready ") == 1 || x.ended() != nil })
	return x
}

func (x *listener) ended() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// told says what an event says, in a line.
func told(name string, data []byte) toldEvent {
	var e struct {
		Time                             time.Time
		Up, Gone                         bool
		From, To                         json.RawMessage
		Host, Switch, Member, What, Into string
		Router, Prefix                   string
	}
	_ = json.Unmarshal(data, &e)
	var from, to End
	_, _ = json.Unmarshal(e.From, &from), json.Unmarshal(e.To, &to)
	what := name + " "
	switch name {
	case "link":
		what += fmt.Sprint(from.Node, " ", to.Node, " ", e.Up)
	case "host":
		what += fmt.Sprint(e.Host, " ", e.Gone)
	case "switch":
		what += fmt.Sprint(e.Switch, " ", e.Up, " ", e.Member)
	case "cluster":
		what += e.What + " " + e.Member
	case "route":
		what += fmt.Sprint(e.Router, " ", e.Prefix, " ", e.Gone)
	case "end", "ospf_restart", "ospf_run":
		what += string(data)
	}
	return toldEvent{name, what, e.Time, slices.Clone(data)}
}

// count is how many events begin with a text.
func (x *listener) count(what string) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if strings.HasPrefix(e.what, what) {
			n++
		}
	}
	return n
}

// want wants each of some events so often.
func (x *listener) want(n int, when string, events ...string) {
	x.t.Helper()
	for _, what := range events {
		if got := x.count(what); got != n {
			x.t.Errorf("%s: %q was told %d times, not %d; all: %v", when, what, got, n, x.all())
		}
	}
}

func (x *listener) all() (out []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		out = append(out, e.what)
	}
	return out
}

// comes waits for an event to have been told so often.
func (x *listener) comes(n int, what string) {
	x.t.Helper()
	x.wait(fmt.Sprintf("%q is told %d times", what, n), func() bool {
		if err := x.ended(); err != nil {
			x.t.Fatalf("%v; all: %v", err, x.all())
		}
		return x.count(what) >= n
	})
}

// link sets the link between the first two switches, and waits until all members know.
func (x *listener) link(up bool) {
	x.t.Helper()
	state, links := openflow.PortStateLive, 2*x.inner()
	if !up {
		state, links = openflow.PortStateLinkDown, links-2
	}
	for _, l := range x.topology.Links {
		names := x.Switches()
		if a, b := l.Ends[0].Node, l.Ends[1].Node; a == names[0] && b == names[1] || a == names[1] && b == names[0] {
			for _, e := range l.Ends {
				x.agents[e.Node].Switch().SetPortState(x.topology.Node(e.Node).OpenFlowPort(e), state)
			}
		}
	}
	x.wait("all members know of the link", func() bool {
		return !slices.ContainsFunc(x.members, func(m *teamMember) bool { return len(m.Discovery.Links()) != links })
	})
}

// turn has each member tell something of its own, after all that it has told before: the reader has
// that, too, then.
func (x *listener) turn() {
	x.t.Helper()
	before := map[string]int{}
	for i, dpid := range x.switches() {
		name := x.Switches()[i]
		next := x.members[(slices.Index(x.members, x.owner[dpid])+1)%3]
		what := fmt.Sprint("switch ", name, " true ", next.name)
		before[what] = x.count(what)
		x.give(dpid, next)
	}
	for what, n := range before {
		x.comes(n+1, what)
	}
}

// A reader of events is told of what happens at the switches of all members: what all members know
// once, what one knows with its name, in order of time. It is told of what all know while the
// member that has told it is dead, or stands still, and once when it is back; also of what has
// happened while nobody was there.
func TestJoinedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Switch)).joint()
		x := k.listen(EventQuery{})
		const down, up = "link s1 s2 false", "link s1 s2 true"
		back := func(what string) string { return strings.Replace(what, "s1 s2", "s2 s1", 1) }
		k.hello("h1")
		k.wait("all members know the host", func() bool {
			return !slices.ContainsFunc(k.members, func(m *teamMember) bool { return len(m.Discovery.Hosts()) != 1 })
		})
		x.link(false)
		x.turn()
		x.want(1, "all are there", "host h1 false", down, back(down), "host ")
		x.mu.Lock()
		for i, e := range x.list {
			if i > 1 && e.time.Before(x.list[i-1].time) && e.name != "alive" {
				t.Errorf("%q is told before %q, which was earlier", x.list[i-1].what, e.what)
			}
		}
		x.mu.Unlock()

		x.lines["m1"].kill()
		x.comes(1, "cluster silent m1")
		x.link(true)
		x.lines["m2"].kill()
		x.comes(1, "cluster silent m2")
		x.comes(1, back(up))
		x.lines["m1"].revive()
		x.lines["m2"].revive()
		x.comes(1, "cluster heard m1")
		x.comes(1, "cluster heard m2")
		x.turn()
		x.want(1, "two were dead", up, back(up), down, "host ")

		for _, m := range k.members {
			x.lines[m.name].kill()
		}
		x.comes(2, "cluster silent m1")
		x.comes(2, "cluster silent m2")
		x.comes(1, "cluster silent m3")
		x.link(false)
		x.want(1, "nobody is there", down)
		for _, m := range k.members {
			x.lines[m.name].revive()
		}
		x.comes(2, back(down))
		x.comes(1, "cluster heard m3")
		x.turn()
		x.want(2, "all were dead", down, back(down))
		x.want(1, "all were dead", up, back(up), "host ")

		defer patience.MemberAlive.Be(time.Second)()
		for _, m := range k.members[:2] {
			x.lines[m.name].still <- true
		}
		x.link(true)
		x.comes(2, up)
		x.comes(2, back(up))
		for _, m := range k.members[:2] {
			<-x.lines[m.name].still
		}
		x.turn()
		x.want(2, "two stood still", up, back(up), down, back(down))
		x.want(1, "two stood still", "host ", "ready ")
	})
}

// Who follows the routes of a router is told all that it uses and what changes, each once, whoever
// is its master: nothing when others take the router over, as it restarts gracefully then, or when
// the connection to a member is lost; and all that has changed.
func TestJoinedRouteEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOfOSPF(t)).joint()
		settled := func() {
			t.Helper()
			k.wait("all routers have restarted", func() bool {
				list, err := k.OSPFInterfaces(t.Context(), "")
				k.must(err)
				neighbors, err := k.OSPFNeighbors(t.Context(), "")
				k.must(err)
				routes, err := k.Routes(t.Context(), "r1", "")
				k.must(err)
				ways := 0
				for _, r := range routes.Routes {
					ways += len(r.Hops)
				}
				return len(neighbors) == 8 && len(routes.Routes) == 8 && ways == 9 &&
					!slices.ContainsFunc(neighbors, func(x ospf.Neighbor) bool { return x.State != "Full" || x.Helped != nil }) &&
					!slices.ContainsFunc(list, func(x ospf.Attachment) bool { return x.Restart != nil })
			})
		}
		settled()
		x := k.listen(EventQuery{Routes: []string{"r1"}})
		same := func(when string) {
			t.Helper()
			k.wait(when+": what was told is what the router uses", func() bool {
				routes, err := k.Routes(t.Context(), "r1", "")
				k.must(err)
				used := map[string]string{}
				x.mu.Lock()
				for _, e := range x.list {
					if e.name != "route" {
						continue
					}
					var r RouteEvent
					k.must(json.Unmarshal(e.data, &r))
					text, err := json.Marshal(r.Route)
					k.must(err)
					if used[r.Prefix.String()] = string(text); r.Gone {
						delete(used, r.Prefix.String())
					}
				}
				x.mu.Unlock()
				for _, r := range routes.Routes {
					text, err := json.Marshal(r)
					k.must(err)
					if used[r.Prefix.String()] != string(text) {
						return false
					}
				}
				return len(used) == len(routes.Routes)
			})
		}
		same("first")
		x.want(8, "first", "route ")
		static := netip.MustParsePrefix("10.99.0.0/16")
		for i := range 3 { // the last one has it when it is told of the route, and so has told what is different
			k.give(k.switches()[0], k.members[(i+1)%3])
			x.lines[k.members[i].name].kill()
			x.comes(1, "cluster silent "+k.members[i].name)
			settled()
			x.lines[k.members[i].name].revive()
			x.comes(1, "cluster heard "+k.members[i].name)
		}
		k.must(k.members[1].AddRoute(t.Context(), builtin.UserRoute{Router: "r1", Prefix: static}))
		x.comes(1, fmt.Sprint("route r1 ", static, " false"))
		x.want(9, "others have taken the router", "route ")
		k.must(k.members[2].DeleteRoute(t.Context(), "r1", static))
		x.comes(1, fmt.Sprint("route r1 ", static, " true"))
		x.want(10, "others have taken the router", "route ")
		x.link(false)
		same("without a link")
		k.give(k.switches()[0], k.members[1])
		x.link(true)
		settled()
		same("with it, and another master")
		x.want(0, "at the end", "route r2", "route r3", "route r4", "end ")
	})
}

// Who follows what is not there is told so, and that no member answers.
func TestJoinedEventsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Router)).joint()
		x := k.listen(EventQuery{Routes: []string{"r9"}})
		if all := x.all(); len(all) != 1 || !strings.Contains(all[0], "r9 is no routing node") {
			t.Errorf("of no router: %v", all)
		}
		x = k.listen(EventQuery{}, "m1", "m2", "m3")
		if all := x.all(); len(all) != 1 || !strings.Contains(all[0], "no member of the cluster answers: member m1: ") {
			t.Errorf("with nobody there: %v", all)
		}
	})
}

// The authority for what all members know is never one that cannot use the store while another can,
// and then the one that has been there for longest; what it does not know that was told is gone.
func TestSpeaker(t *testing.T) {
	w := httptest.NewRecorder()
	c := &merger{w: w, told: facts{}, of: map[string][]*memberStream{}}
	now := time.Now()
	for i := range 3 {
		c.streams = append(c.streams, &memberStream{name: fmt.Sprint("m", i), open: true, last: patience.MemberAlive.Begin(), began: now.Add(time.Duration(-i) * time.Second),
			ready: json.RawMessage("{}"), facts: facts{}})
	}
	event := func(v int, name string, e any) {
		t.Helper()
		data, err := json.Marshal(e)
		if err == nil {
			err = c.handle(c.streams[v], received{stream: c.streams[v], name: name, data: data, came: now})
		}
		if err == nil {
			err = c.follow()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	who := func(want int) {
		t.Helper()
		if c.authority != c.streams[want] {
			t.Errorf("%s is the authority, not m%d", c.authority.name, want)
		}
	}
	link := LinkEvent{From: End{Node: "a"}, To: End{Node: "b"}, Up: true}
	for i := range 3 {
		if data, err := json.Marshal(link); err != nil || c.handle(c.streams[i], received{name: "link", data: data}) != nil {
			t.Fatal(err)
		}
	}
	event(0, "part", PartEvent{})
	who(2)
	event(2, "part", PartEvent{CutOff: true})
	who(1)
	event(1, "part", PartEvent{CutOff: true})
	who(0)
	event(0, "part", PartEvent{CutOff: true})
	who(0)
	event(2, "part", PartEvent{})
	who(2)
	event(1, "link", LinkEvent{From: link.From, To: link.To})
	event(1, "cluster", ClusterEvent{What: cluster.ChangeDead, Member: "m2"})
	if text := w.Body.String(); strings.Count(text, "event:") != 1 {
		t.Errorf("what another member says is told: %s", text)
	}
	c.streams[2].open = false
	event(1, "part", PartEvent{})
	who(1)
	if text := w.Body.String(); strings.Contains(text, "dead") {
		t.Errorf("the new authority has not caught up: %s", text)
	}
	c.streams[1].told = time.Now().Add(catchUp)
	event(1, "part", PartEvent{})
	for _, want := range []string{`"up":false`, `"what":"dead","member":"m2"`, `"what":"silent","member":"m2"`} {
		if text := w.Body.String(); strings.Count(text, want) != 1 {
			t.Errorf("%s is not told once: %s", want, text)
		}
	}
}
