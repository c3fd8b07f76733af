package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	engine "trivet.dev/trivet/routing/balance"
	"trivet.dev/trivet/topology"
)

// field is a domain of four datapaths in a ring, 1-2-3-4, and what monitor knows of it. Each sends
// to the next one by port 1, and to the one before by port 2. Destinations are at datapath 3, and
// 1 sends there over 2. "x/0" and "x/1" are the parts of x.
type field struct {
	mu       sync.Mutex
	away     map[uint64]bool                  // not connected
	unread   map[uint64]bool                  // monitor does not know their ports
	fixed    map[uint64]bool                  // they do not take other ways
	owners   []uint64                         // others that have every destination, too
	rate     map[steer.Edge]float64           // bit/s that a link carries
	carried  map[uint64]map[string]uint64     // bytes
	slow     map[uint64]bool                  // they do not say what they have sent
	asked    map[string]int                   // how often for a destination
	steered  []map[string]steer.Ways          // ever
	counting func()                           // called before a datapath says what it has sent
	looking  func()                           // called before it is said how packets get to a destination
	leading  func(ways map[string]steer.Ways) // called before ways are taken
}

const mbit = 1e6

func edge(from, to uint64) steer.Edge {
	e := steer.Edge{From: from, To: to, FromPort: 1, ToPort: 2}
	if to != from%4+1 {
		e.FromPort, e.ToPort = 2, 1
	}
	return e
}

func newField() *field {
	return &field{away: map[uint64]bool{}, unread: map[uint64]bool{}, fixed: map[uint64]bool{}, rate: map[steer.Edge]float64{},
		carried: map[uint64]map[string]uint64{}, slow: map[uint64]bool{}, asked: map[string]int{}}
}

func (f *field) Edges() (out []steer.Edge) {
	for i := range uint64(4) {
		out = append(out, edge(i+1, (i+1)%4+1), edge((i+1)%4+1, i+1))
	}
	return out
}

func (*field) Quiet() bool { return true }

func (f *field) Destination(to string) (d steer.Destination, is bool) {
	if f.looking != nil {
		f.looking()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[to]++
	home := map[uint64]steer.Edge{1: edge(1, 2), 2: edge(2, 3), 4: edge(4, 3)}
	d = steer.Destination{Owners: append([]uint64{3}, f.owners...), Next: maps.Clone(home), Home: home, Fixed: maps.Clone(f.fixed)}
	maps.Copy(d.Fixed, f.away)
	if len(f.steered) > 0 {
		maps.Copy(d.Next, f.steered[len(f.steered)-1][to])
	}
	return d, true
}

func (*field) Parts(to string, _ bool) []string { return []string{to + "/0", to + "/1"} }

func (*field) Whole(to string) string { whole, _, _ := strings.Cut(to, "/"); return whole }

func (f *field) Carried(_ context.Context, dpid uint64) (map[string]uint64, error) {
	if f.counting != nil {
		f.counting()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slow[dpid] {
		return nil, context.DeadlineExceeded
	}
	return maps.Clone(f.carried[dpid]), nil
}

func (f *field) Steer(ways map[string]steer.Ways, _ string) {
	if f.leading != nil {
		f.leading(ways)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steered = append(f.steered, ways)
}

func (f *field) Port(dpid uint64, number uint32) (p monitor.Port, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away[dpid] || f.unread[dpid] {
		return p, false
	}
	for e, rate := range f.rate {
		if e.From == dpid && e.FromPort == number {
			p.TxRate = rate
		}
	}
	p.Capacity = 100 * mbit
	return p, true
}

func (*field) FlowCounts() map[uint64]int { return map[uint64]int{1: 1, 2: 1, 3: 1, 4: 1} }

// last is what the domain was given last.
func (f *field) last() map[string]steer.Ways {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.steered) == 0 {
		return nil
	}
	return f.steered[len(f.steered)-1]
}

// connected is a switch's end of a connection: it counts as the field's links do, from when it
// connected.
type connected struct {
	field *field
	dpid  uint64
	peer  *controller.Memory
	since time.Time
}

func (c *connected) Handle(m openflow.Message) {
	reply := func(r openflow.Message) {
		r.SetTransaction(m.Transaction())
		c.peer.Reply(r)
	}
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		reply(&openflow.FeaturesReply{DatapathID: c.dpid, Tables: 1})
	case *openflow.MultipartRequest:
		switch m.Body.MultipartType() {
		case openflow.MultipartPortDesc:
			reply(&openflow.MultipartReply{Body: openflow.PortDescList{}})
		case openflow.MultipartGroupDesc:
			reply(&openflow.MultipartReply{Body: openflow.GroupDescList{}})
		case openflow.MultipartFlow:
			reply(&openflow.MultipartReply{Body: openflow.FlowStatsList{}})
		case openflow.MultipartPortStats:
			var list openflow.PortStatsList
			c.field.mu.Lock()
			for e, rate := range c.field.rate {
				if e.From == c.dpid {
					list = append(list, openflow.PortStats{Port: e.FromPort, TxBytes: uint64(rate / 8 * time.Since(c.since).Seconds())})
				}
			}
			c.field.mu.Unlock()
			reply(&openflow.MultipartReply{Body: list})
		}
	case *openflow.BarrierRequest:
		reply(&openflow.BarrierReply{})
	}
}

func (*connected) Close() {}

// balancer is one of a field, whose datapaths have joined a controller.
func (f *field) balancer(t *testing.T, c Config) *Balancer[string] {
	t.Helper()
	if c.Options == (engine.Options{}) {
		c.Options = engine.Defaults()
	}
	if c.Period == 0 {
		c.Period = 2 * time.Second
	}
	for i := range uint64(4) {
		if c.Names == nil {
			c.Names = map[uint64]string{}
		}
		c.Names[i+1] = fmt.Sprintf("r%d", i+1)
	}
	a := newBalancer(kindRouter, f, strings.Compare, f, c)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	core, err := controller.New(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(core.Close)
	t.Cleanup(a.end)
	for i := range uint64(4) {
		d := &connected{field: f, dpid: i + 1, peer: core.NewMemory(fmt.Sprintf("r%d", i+1)), since: time.Now()}
		if err := d.peer.Join(d); err != nil {
			t.Fatal(err)
		}
	}
	a.log = log
	a.switches = func(dpid uint64) *controller.Switch {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.away[dpid] {
			return nil
		}
		return core.Switch(dpid)
	}
	return a
}

// busy is a reading in which two destinations share the way over datapath 2, which is full.
func (f *field) busy(a *Balancer[string], big, small string) *reading[string] {
	f.rate = map[steer.Edge]float64{edge(1, 2): 100 * mbit, edge(2, 3): 100 * mbit}
	r := a.survey(a.config)
	r.complete = true
	for dpid := range uint64(2) {
		r.carried[dpid+1] = map[string]float64{big: 70 * mbit, small: 30 * mbit}
	}
	return r
}

// Proves that what goes over a busy link is led over another one; that nothing is led over a
// datapath that is not connected, or of whose links nothing is known, though they look idle; and
// that what is led over one that is not connected stays, until it is, be the way home idle or not.
func TestAwayAndUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *field)
		moves  bool
	}{
		"all are connected":    {func(*field) {}, true},
		"it is not connected":  {func(f *field) { f.away[4] = true }, false},
		"it has not been read": {func(f *field) { f.unread[4] = true }, false},
	} {
		f := newField()
		a := f.balancer(t, Config{On: true})
		c.change(f)
		a.step(a.config, a.turn, f.busy(a, "x", "y"))
		if got := f.last()["y"]; maps.Equal(got, detour) != c.moves {
			t.Errorf("%s: the ways of y are %v", name, got)
		}
	}

	f := newField()
	a := f.balancer(t, Config{On: true})
	a.step(a.config, a.turn, f.busy(a, "x", "y"))
	a.rests.Forget("y")
	f.rate = nil
	for _, away := range []bool{true, false} {
		f.away[4] = away
		if !away {
			delete(f.away, 4)
		}
		r := a.survey(a.config)
		r.complete, r.carried[1] = true, map[string]float64{"y": mbit}
		a.step(a.config, a.turn, r)
		if got := f.last()["y"]; maps.Equal(got, detour) != away {
			t.Errorf("with nothing busy, and r4 away: %v, the ways of y are %v", away, got)
		}
	}
}

// Proves that what a reading says is not followed when something else is configured, or a user has
// installed a path, while it was taken: what was divided is not divided again, and nothing moves.
func TestChangedWhileRead(t *testing.T) {
	for _, per := range []topology.BalancePer{topology.PerPrefix, topology.PerPart} {
		for name, change := range map[string]func(a *Balancer[string]){
			"it is turned off": func(a *Balancer[string]) { a.configure(Config{Options: engine.Defaults(), Period: time.Hour}) },
			"a path is installed": func(a *Balancer[string]) {
				if err := a.Install("x", []uint64{1, 2, 3}); err != nil {
					t.Error(err)
				}
			},
		} {
			f := newField()
			a := f.balancer(t, Config{On: true, Per: per, Period: 20 * time.Millisecond})
			var mu sync.Mutex
			bytes := uint64(0)
			var once sync.Once
			readings, changed := 0, make(chan struct{})
			f.rate = map[steer.Edge]float64{edge(1, 2): 100 * mbit}
			f.counting = func() { // in the second reading, which would be followed
				mu.Lock()
				bytes += 1 << 20
				readings++
				n := readings
				mu.Unlock()
				f.mu.Lock()
				f.carried[1] = map[string]uint64{"x": bytes, "y": bytes}
				f.mu.Unlock()
				if n == 2 {
					once.Do(func() {
						change(a)
						a.mu.Lock()
						a.config.Period = time.Hour // no further reading
						a.mu.Unlock()
						close(changed)
					})
				}
			}
			a.done.Go(a.run)
			select {
			case <-changed:
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is read")
			}
			a.end()
			a.mu.Lock()
			divided, moved := len(a.divided), slices.Collect(maps.Keys(a.moved))
			a.mu.Unlock()
			if divided > 0 || len(moved) > 1 || len(moved) == 1 && moved[0] != "x" {
				t.Errorf("per %q, %s while a reading is taken: %d are divided, and these have moved: %v", per, name, divided, moved)
			}
		}
	}
}

// Proves the same of a change while it is found what is to move, which holds up nobody.
func TestChangedWhileFound(t *testing.T) {
	f := newField()
	a := f.balancer(t, Config{On: true})
	r := f.busy(a, "x", "y")
	f.looking = func() { a.configure(Config{Options: engine.Defaults()}) }
	a.step(a.config, a.turn, r)
	if len(a.moved) > 0 || len(f.steered) > 0 {
		t.Errorf("it was turned off while it was found what is to move, and these have moved: %v", a.moved)
	}
}

// Proves that of two that steer at the same time the one that takes its ways later is heard later.
func TestSteersInOrder(t *testing.T) {
	f := newField()
	a := f.balancer(t, Config{})
	first, release := make(chan struct{}), make(chan struct{})
	f.leading = func(ways map[string]steer.Ways) {
		if len(ways) == 1 { // the older ones are slow
			close(first)
			<-release
		}
	}
	var group sync.WaitGroup
	install := func(to string) {
		if err := a.Install(to, []uint64{1, 4, 3}); err != nil {
			t.Error(err)
		}
	}
	group.Go(func() { install("x") })
	<-first
	group.Go(func() { install("y") })
	time.Sleep(20 * time.Millisecond)
	close(release)
	group.Wait()
	if got := f.last(); len(got) != 2 {
		t.Errorf("the domain was given %v last, and not both", got)
	}
}

// Proves that a reading is complete when all is known of datapaths with a busy link, though others
// have begun to send, or are slow; that a slow one's counters are of use in the reading after; and
// that what has moved over a slow one stays.
func TestReadingWithoutAll(t *testing.T) {
	f := newField()
	c := Config{On: true, Period: time.Minute}
	a := f.balancer(t, c)
	c = a.config
	read := func(before *reading[string]) *reading[string] {
		time.Sleep(2 * time.Millisecond)
		return a.read(c, before)
	}
	f.rate = map[steer.Edge]float64{edge(1, 2): 100 * mbit, edge(2, 3): mbit}
	first := read(nil)
	if first.complete {
		t.Error("rates are known after one reading")
	}
	f.rate[edge(4, 3)] = mbit // it begins to send
	second := read(first)
	if !second.complete || !second.unheard[4] || second.unheard[1] || second.unheard[2] {
		t.Errorf("with one that has begun to send: complete %v, not heard: %v", second.complete, second.unheard)
	}
	f.slow[2] = true
	third := read(second)
	if !third.complete || !third.unheard[2] || third.carried[4] == nil {
		t.Errorf("with a slow one: complete %v, not heard: %v", third.complete, third.unheard)
	}
	a.moved["y"] = &Moved[string]{To: "y", ways: steer.Ways{2: edge(2, 3)}}
	if list := a.candidates(c, third, time.Now()); len(list) > 0 {
		t.Errorf("what has moved over a slow one is looked at: %v", list)
	}
	f.slow = map[uint64]bool{}
	if fourth := read(third); !fourth.complete || len(fourth.unheard) > 0 {
		t.Errorf("when it is slow no more: complete %v, not heard: %v", fourth.complete, fourth.unheard)
	}
	f.slow[1] = true
	if last := read(third); last.complete {
		t.Error("the one with a busy link is slow, and the reading is complete")
	}
}

// Proves that what has come to an end is dropped though a reading is not complete: ways that are
// not there any more, and that a destination is divided to which little goes.
func TestEndsWithoutAll(t *testing.T) {
	f := newField()
	a := f.balancer(t, Config{On: true, Per: topology.PerPart})
	r := a.survey(a.config)
	a.moved["y"] = &Moved[string]{To: "y", ways: steer.Ways{1: edge(1, 4)}} // the domain does not have it
	a.divided["x"] = &division[string]{parts: []string{"x/0"}, last: time.Now().Add(-time.Hour)}
	a.step(a.config, a.turn, r)
	if len(a.moved)+len(a.divided) > 0 || len(f.last()) > 0 || len(f.steered) != 1 {
		t.Errorf("moved %v, divided %v; steered %v", a.moved, a.divided, f.steered)
	}
}

// Proves that in a network with many destinations only those are looked at that may pass a busy
// link, each once, and not more than a few; and that the one that is to move does.
func TestLooksAtFew(t *testing.T) {
	for _, per := range []topology.BalancePer{topology.PerPrefix, topology.PerPart} {
		f := newField()
		a := f.balancer(t, Config{On: true, Per: per})
		f.steered = append(f.steered, map[string]steer.Ways{"z": {1: edge(1, 4), 4: edge(4, 3)}})
		a.moved["z"] = &Moved[string]{To: "z", ways: maps.Clone(f.steered[0]["z"])}
		r := f.busy(a, "x", "y")
		for i := range 1000 { // from where nothing is busy
			if r.carried[4] == nil {
				r.carried[4] = map[string]float64{}
			}
			r.carried[4][fmt.Sprint(i)] = mbit / 1000
		}
		if per == topology.PerPart { // both are divided already
			for _, k := range []string{"x", "y"} {
				a.divided[k] = &division[string]{last: time.Now()}
			}
			for dpid := range uint64(2) {
				r.carried[dpid+1] = map[string]float64{"x/0": 70 * mbit, "y/0": 30 * mbit}
			}
		}
		a.step(a.config, a.turn, r)
		want := map[topology.BalancePer]string{topology.PerPrefix: "y", topology.PerPart: "y/0"}[per]
		if len(f.last()[want]) == 0 {
			t.Errorf("per %q: %s has not moved, %v has", per, want, f.last())
		}
		if len(f.asked) > 5 { // x, y, their parts and z
			t.Errorf("per %q: %d destinations are looked at", per, len(f.asked))
		}
		for k, n := range f.asked {
			if n > 1 {
				t.Errorf("per %q: %s was looked at %d times", per, k, n)
			}
		}

		f = newField()
		a = f.balancer(t, Config{On: true, Per: per})
		r = f.busy(a, "x", "y")
		for i := range 1000 { // all over the busy link
			r.carried[1][fmt.Sprint(i)] = mbit / 1000
		}
		if a.step(a.config, a.turn, r); len(f.asked) > maxCandidates+2 {
			t.Errorf("per %q: of 1,000 small ones and two, %d are looked at", per, len(f.asked))
		}
	}
}

// Proves that paths are listed that can be installed, and no others: none over a datapath whose way
// cannot be replaced, or on from one that has the destination; from one whose own way cannot be
// replaced it is said why; and one caller waits for another, as long as it wants.
func TestPathsThatCanBeInstalled(t *testing.T) {
	f := newField()
	a := f.balancer(t, Config{})
	list := func() (out []string) {
		options, err := a.Paths(t.Context(), 1, "x", 5)
		if err != nil {
			t.Error(err)
		}
		for _, o := range options {
			routers := routersOf(o.Edges)
			out = append(out, fmt.Sprint(routers))
			if err := a.Install("x", routers); err != nil {
				t.Errorf("%v is listed: %v", routers, err)
			}
		}
		slices.Sort(out)
		return out
	}
	want := func(what string, paths ...string) {
		t.Helper()
		if got := list(); !slices.Equal(got, paths) {
			t.Errorf("%s: %v, want %v", what, got, paths)
		}
	}
	want("at first", "[1 2 3]", "[1 4 3]")
	f.fixed[2] = true
	want("with a static route at r2", "[1 4 3]")
	f.fixed[2], f.owners = false, []uint64{4}
	want("with two that have it", "[1 2 3]", "[1 4]")
	f.fixed[1] = true
	if _, err := a.Paths(t.Context(), 1, "x", 5); err == nil || !strings.Contains(err.Error(), "r1 has a route to x that takes precedence") {
		t.Errorf("from one with a static route: %v", err)
	}
	f.fixed[1], f.away[1] = false, true
	if _, err := a.Paths(t.Context(), 1, "x", 5); err == nil || !strings.Contains(err.Error(), "r1 is not connected") {
		t.Errorf("from one that is not connected: %v", err)
	}
	a.finding <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := a.Paths(ctx, 2, "x", 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another one looks: %v", err)
	}
}
