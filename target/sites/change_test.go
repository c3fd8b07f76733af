package sites

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/yamux"

	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/site/sitetest"
	"trivet.dev/trivet/topology"
)

// headOf returns the head of a lab at sites, none of which has been reached, that is a topology.
func headOf(t *testing.T, top *topology.Topology, list *site.List) *Lab {
	t.Helper()
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	s := lab.State{Name: "test", Target: Target, Owner: os.Getuid(), Sites: list, Topology: top}
	if err := os.Mkdir(lab.Dir(s.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := begin(s, lab.Hooks{OnEnd: func(string) {}, OnLoop: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.end)
	l.set(top)
	return l
}

// answers makes a part's daemon one that answers GET requests with values.
func (p *part) answers(t *testing.T, values map[string]any) {
	t.Helper()
	p.served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(values[r.URL.Path])
	})
}

// served makes a part's daemon one that answers so.
func (p *part) served(t *testing.T, answer http.HandlerFunc) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: answer}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	p.client = lab.NewClientOver(p.lab, func(context.Context) (net.Conn, error) { return net.Dial("unix", socket) })
}

// TestEnds proves that the ends of links are known at the sites that answer, though another does
// not, which is named with the reason; and so is one whose links are others than the lab's.
func TestEnds(t *testing.T) {
	top := &topology.Topology{Nodes: []*topology.Node{{Name: "a", Kind: topology.Host, On: "m1"}, {Name: "b", Kind: topology.Host, On: "m2"}}}
	link := &topology.Link{}
	link.Ends[0], link.Ends[1] = topology.Endpoint{Node: "a", Interface: "a-eth0"}, topology.Endpoint{Node: "b", Interface: "b-eth0"}
	top.Links = []*topology.Link{link}
	l := headOf(t, top, machines("m1", "m2"))
	up := lab.End{Interface: "a-eth0", State: lab.EndUp, MTU: 1500}
	l.parts["m1"].answers(t, map[string]any{"/v1/links": []lab.WireInfo{{Ends: []lab.End{up, {}}}}})
	check := func(why string) {
		t.Helper()
		ends, err := l.Ends()
		if err != nil || len(ends) != 1 || ends[0][0] != up {
			t.Fatalf("%+v, %v", ends, err)
		}
		if e := ends[0][1]; e.Interface != "b-eth0" || e.State != lab.EndUnknown || e.Problem != why {
			t.Errorf("%+v, not %q", e, why)
		}
	}
	check("site m2: not connected")
	l.parts["m2"].answers(t, map[string]any{"/v1/links": []lab.WireInfo{}})
	check("site m2: its links are not those of the lab")
	l.parts["m2"].answers(t, map[string]any{"/v1/links": []lab.WireInfo{{}}})
	check("site m2: it does not say what its links are")
}

// fakePart is a part that is what it has been told to be last.
type fakePart struct {
	mu    sync.Mutex
	is    []string // its nodes
	how   func(*fakePart) way
	asked int
}

// way is how a change goes.
type way int

const (
	well    way = iota
	refused     // it changes nothing, and says why
	cut         // it changes, and the connection is lost before it says so
	away        // it is not reached
)

func (f *fakePart) take(t *topology.Topology) {
	f.is = nil
	for _, n := range t.Nodes {
		f.is = append(f.is, n.Name)
	}
}

func (f *fakePart) answer(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var asked lab.ApplyRequest
	var is topology.Topology
	if r.URL.Path != "/v1/apply" || json.NewDecoder(r.Body).Decode(&asked) != nil || json.Unmarshal(asked.Topology, &is) != nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	f.asked++
	how := f.how(f)
	if how == well || how == cut {
		f.take(&is)
	}
	switch how {
	case cut, away:
		panic(http.ErrAbortHandler)
	case refused:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"detail": "no room"}`)
	default:
		_ = json.NewEncoder(w).Encode(lab.ApplyResult{Changes: []string{}})
	}
}

func (f *fakePart) nodes() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.is, " ")
}

// at is a topology of hosts, each at a site: "a@m1 b@m2".
func at(words string) *topology.Topology {
	t := &topology.Topology{}
	for _, w := range strings.Fields(words) {
		name, on, _ := strings.Cut(w, "@")
		t.Nodes = append(t.Nodes, &topology.Node{Name: name, Kind: topology.Host, On: on})
	}
	return t
}

// always is the same way each time; first, another one at first.
func always(how way) func(*fakePart) way { return func(*fakePart) way { return how } }
func first(n int, how, then way) func(*fakePart) way {
	return func(f *fakePart) way {
		if f.asked <= n {
			return how
		}
		return then
	}
}

// TestApplyCut proves that a part to which the connection was lost while it was changing, in a
// change that failed at another, is changed back: at once if it is reached, else when it answers
// again, or with the next change, of whatever; and that one that refuses to change back makes the
// lab half of each.
func TestApplyCut(t *testing.T) {
	const old, changed = "a@m1 b@m2", "a@m1 c@m1 b@m2 d@m2"
	for _, c := range []struct {
		name   string
		how    func(*fakePart) way // of m1
		half   bool
		unsure bool
		then   func(l *Lab) error
		is     string // m1, afterwards
	}{
		{"changed back", always(well), false, false, nil, "a"},
		{"refuses to", first(1, well, refused), true, false, nil, "a c"},
		{"cut, and reached at once", first(1, cut, well), false, false, nil, "a"},
		{"cut, and reached later", func(f *fakePart) way { return []way{cut, away, well}[min(f.asked, 3)-1] }, false, true,
			func(l *Lab) error { l.settle(l.ctx, l.parts["m1"]); return nil }, "a"},
		{"cut, and changed later", func(f *fakePart) way { return []way{cut, away, well}[min(f.asked, 3)-1] }, false, true,
			func(l *Lab) error { return l.Apply(l.ctx, at("a@m1 b@m2 e@m2"), func(string, int, int) {}) }, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := headOf(t, at(old), machines("m1", "m2"))
			fakes := map[string]*fakePart{"m1": {is: []string{"a"}, how: c.how}, "m2": {is: []string{"b"}, how: first(1, refused, well)}}
			for name, f := range fakes {
				l.parts[name].served(t, f.answer)
			}
			err := l.Apply(l.ctx, at(changed), func(string, int, int) {})
			if err == nil || !strings.Contains(err.Error(), "site m2: no room") || errors.Is(err, lab.ErrHalf) != c.half {
				t.Fatal(err)
			}
			if is := l.parts["m1"].unsure.Load(); is != c.unsure {
				t.Errorf("it is not known what m1 is: %v", is)
			}
			if dead := l.Dead(); !slices.ContainsFunc(dead, func(s string) bool { return strings.HasSuffix(s, "m1") }) && c.unsure {
				t.Errorf("of m1 nothing is said: %q", dead)
			}
			if c.then != nil {
				if err := c.then(l); err != nil {
					t.Fatal(err)
				}
			}
			if is := fakes["m1"].nodes(); is != c.is || l.parts["m1"].unsure.Load() {
				t.Errorf("m1 has the nodes %s; not known: %v", is, l.parts["m1"].unsure.Load())
			}
		})
	}
}

// headReaching is headOf where the first site has been reached, which answers requests so.
func headReaching(t *testing.T, top *topology.Topology, list *site.List, answer http.HandlerFunc) (*Lab, *part) {
	t.Helper()
	m := list.Machines[0]
	m.Host, m.Port = "127.0.0.1", sitetest.Serve(t, func(command string, in io.Reader, out, _ io.Writer) int {
		if !strings.Contains(command, site.Command) {
			return 1
		}
		_, _ = io.WriteString(out, "trivet "+version.Version+"\n")
		session, err := yamux.Server(struct {
			io.Reader
			io.Writer
			io.Closer
		}{in, out, io.NopCloser(nil)}, nil)
		if err != nil {
			return 1
		}
		_ = (&http.Server{Handler: answer}).Serve(session)
		return 0
	})
	l := headOf(t, top, list)
	p := l.parts[m.Name]
	if _, err := p.connect(t.Context(), l.user); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return l, p
}

// TestApplyRemade proves that a part that was gone, and is made again by a change that fails at
// another, becomes what it was before that change.
func TestApplyRemade(t *testing.T) {
	made := &fakePart{how: always(well)}
	l, gone := headReaching(t, at("a@m1 b@m2"), machines("m1", "m2"), func(w http.ResponseWriter, r *http.Request) {
		var s lab.State
		if r.Method != "POST" || r.URL.Path != "/v1/labs" || json.NewDecoder(r.Body).Decode(&s) != nil {
			http.Error(w, "what?", http.StatusBadRequest)
			return
		}
		made.mu.Lock()
		defer made.mu.Unlock()
		made.take(s.Topology)
		_, _ = io.WriteString(w, `{"end": true}`)
	})
	gone.gone.Store(true)
	gone.served(t, made.answer)
	l.parts["m2"].served(t, (&fakePart{how: always(refused)}).answer)
	err := l.Apply(l.ctx, at("a@m1 c@m1 b@m2 d@m2"), func(string, int, int) {})
	if err == nil || !strings.Contains(err.Error(), "site m2: no room") || errors.Is(err, lab.ErrHalf) {
		t.Error(err)
	}
	if is := made.nodes(); is != "a" || gone.gone.Load() {
		t.Errorf("m1 has the nodes %q; gone: %v", is, gone.gone.Load())
	}
}

// TestSettleUnseen proves that a head that has been resumed changes a part back that has carried
// out a change which was undone elsewhere, though the head that knew of it has died, and leaves one
// alone that is what it is to be.
func TestSettleUnseen(t *testing.T) {
	for _, c := range []struct {
		name  string
		is    string
		asked int
	}{{"changed", "a@m1 c@m1 b@m2", 1}, {"as it was", "a@m1 b@m2", 0}} {
		t.Run(c.name, func(t *testing.T) {
			fake, is := &fakePart{how: always(well)}, topology.Part(at(c.is), "m1", nil)
			fake.take(is)
			l, p := headReaching(t, at("a@m1 b@m2"), machines("m1", "m2"), func(w http.ResponseWriter, r *http.Request) {
				if r.Method != "GET" || r.URL.Path != "/v1/labs/test.m1" {
					http.Error(w, "what?", http.StatusBadRequest)
					return
				}
				answer(w, lab.State{Status: lab.Up, Topology: is})
			})
			p.served(t, fake.answer)
			p.unseen.Store(true)
			l.settle(l.ctx, p)
			if is := fake.nodes(); is != "a" || fake.asked != c.asked {
				t.Errorf("it has the nodes %q and was asked to change %d times", is, fake.asked)
			}
			if p.unsure.Load() || p.unseen.Load() {
				t.Errorf("not known: %v; not seen: %v", p.unsure.Load(), p.unseen.Load())
			}
		})
	}
}

// TestApplyAway proves that a site that cannot be reached is a reason to refuse changes of its part
// and no others, also when such a change has just failed; that start commands that it has run are
// not asked for; and that a machine that takes hosts can be left though it is away.
func TestApplyAway(t *testing.T) {
	list, nothing := machines("m1", "m2"), func(string, int, int) {}
	l := headOf(t, at("a@m1 b@m2"), list)
	l.Topology().Node("a").Start = "true"
	m1, m2 := l.parts["m1"], &fakePart{how: always(well)} // m1 has never been reached
	l.parts["m2"].served(t, m2.answer)
	apply := func(words string) error {
		is := at(words)
		is.Node("a").Start = "true"
		return l.Apply(l.ctx, is, nothing)
	}
	if err := apply("a@m1 c@m1 b@m2"); err == nil || err.Error() != "site m1: not connected" || m1.unsure.Load() {
		t.Errorf("%v; not known: %v", err, m1.unsure.Load())
	}
	for _, unsure := range []bool{false, true} {
		m1.unsure.Store(unsure)
		m1.gone.Store(!unsure)
		if err := errors.Join(apply("a@m1 b@m2 d@m2"), l.RunStarts(l.ctx), apply("a@m1 b@m2"), l.RunStarts(l.ctx)); err != nil || m2.nodes() != "b" {
			t.Errorf("m2 has the nodes %s: %v", m2.nodes(), err)
		}
		if m1.unsure.Load() != unsure {
			t.Errorf("whether it is known what m1 is has changed from %v", unsure)
		}
		m1.gone.Store(false)
	}
	m1.fresh.Store(true)
	if err := l.RunStarts(l.ctx); err == nil {
		t.Error("a start command that has not run is not missed")
	}
	list.Machines[0].Hosts = 2
	if err := l.apply(l.ctx, at("a@m2 b@m2"), nil, nothing); err != nil || m2.nodes() != "a b" {
		t.Errorf("a moves: %v; m2 has the nodes %s", err, m2.nodes())
	}
	if err := l.leave([]*part{m1}); err == nil || !m1.idle.Load() {
		t.Errorf("m1 is left: %v; %v", m1.idle.Load(), err)
	}
}
