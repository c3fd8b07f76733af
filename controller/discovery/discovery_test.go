package discovery

import (
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

func newApp(t *testing.T) *App {
	t.Helper()
	a := New()
	if err := a.Start(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

// Proves that a probe says where it comes from, and that neither a changed one nor one of
// another run passes for it: a host cannot make a link.
func TestProbesAreSigned(t *testing.T) {
	a, other := newApp(t), newApp(t)
	at := place{dpid: 0xabc, port: 77}
	frame := a.probe(at, 0, openflow.MAC{2}, lldpDst, etherTypeLLDP)
	if got, ok := a.read(frame); !ok || got != at {
		t.Fatalf("read %v, %v", got, ok)
	}
	if _, ok := other.read(frame); ok {
		t.Error("a probe of another run is taken")
	}
	for i := 14; i < len(frame)-2; i++ {
		forged := append([]byte(nil), frame...)
		forged[i] ^= 1
		if got, ok := a.read(forged); ok && got != at {
			t.Errorf("byte %d changed makes it a probe from %v", i, got)
		}
	}
	for n := 14; n < len(frame)-2; n++ {
		if _, ok := a.read(frame[:n]); ok && n < len(frame)-2 {
			t.Errorf("%d of %d bytes are taken for a probe", n, len(frame))
		}
	}
}

// world is a controller with the app, and switches that bring what leaves by a port to
// where its cable ends. It is made to run in a bubble of synctest.
type world struct {
	*App
	t *testing.T
	c *controller.Controller

	mu       sync.Mutex
	cables   map[place][]place
	switches map[uint64]*fake
	probes   int
	changes  []Change
}

// fake is the switch side of a connection.
type fake struct {
	conn net.Conn
	out  chan openflow.Message
	deaf bool // it does not answer barriers
}

func newWorld(t *testing.T) *world {
	w := &world{App: New(), t: t, cables: map[place][]place{}, switches: map[uint64]*fake{}}
	w.restart()
	return w
}

// restart starts the app and a controller with it.
func (w *world) restart() {
	c, err := controller.New(slog.New(slog.NewTextHandler(io.Discard, nil)), w.App)
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
	w.Watch(func(c Change) { w.changes = append(w.changes, c) })
}

func (w *world) end() {
	w.mu.Lock()
	for _, f := range w.switches {
		f.conn.Close()
	}
	w.mu.Unlock()
	w.c.Close()
	time.Sleep(time.Minute)
}

// cable joins ports, all with each other.
func (w *world) cable(ports ...place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range ports {
		w.cables[x] = nil
		for _, y := range ports {
			if x != y {
				w.cables[x] = append(w.cables[x], y)
			}
		}
	}
}

func (w *world) cut(ports ...place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range ports {
		w.cables[x] = nil
	}
}

// connect connects a switch with ports 1 to n.
func (w *world) connect(dpid uint64, n int) *fake {
	ours, theirs := net.Pipe()
	f := &fake{conn: ours, out: make(chan openflow.Message, 10_000)}
	w.mu.Lock()
	w.switches[dpid] = f
	w.mu.Unlock()
	go w.c.Meet(theirs)
	go func() {
		out := openflow.NewWriter(ours)
		for m := range f.out {
			if out.Write(m) != nil || out.Flush() != nil {
				return
			}
		}
	}()
	go func() {
		defer close(f.out)
		for r := openflow.NewReader(ours, 0); ; {
			m, err := r.Read()
			w.mu.Lock()
			if err != nil {
				if w.switches[dpid] == f {
					delete(w.switches, dpid)
				}
				w.mu.Unlock()
				return
			}
			w.handle(f, dpid, n, m)
			w.mu.Unlock()
		}
	}()
	return f
}

func (w *world) disconnect(dpid uint64) {
	w.mu.Lock()
	f := w.switches[dpid]
	w.mu.Unlock()
	f.conn.Close()
	time.Sleep(time.Second)
}

// tell has a switch send a message.
func (w *world) tell(dpid uint64, m openflow.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.switches[dpid].out <- m
}

func (w *world) handle(f *fake, dpid uint64, n int, m openflow.Message) {
	switch m := m.(type) {
	case *openflow.Hello:
		f.out <- &openflow.Hello{Versions: openflow.Versions(openflow.Version)}
	case *openflow.FeaturesRequest:
		f.out <- &openflow.FeaturesReply{Xid: m.Xid, DatapathID: dpid, Tables: 4}
	case *openflow.EchoRequest:
		f.out <- &openflow.EchoReply{Xid: m.Xid, Data: m.Data}
	case *openflow.RoleRequest:
		f.out <- &openflow.RoleReply{Xid: m.Xid, ControllerRole: m.ControllerRole}
	case *openflow.BarrierRequest:
		if !f.deaf {
			f.out <- &openflow.BarrierReply{Xid: m.Xid}
		}
	case *openflow.MultipartRequest:
		var ports openflow.PortDescList
		for i := range n {
			ports = append(ports, openflow.Port{Number: uint32(i + 1), HWAddr: openflow.MAC{2, 0, byte(dpid >> 8), byte(dpid), 0, byte(i)}})
		}
		f.out <- &openflow.MultipartReply{Xid: m.Xid, Body: map[openflow.MultipartType]openflow.MultipartBody{openflow.MultipartPortDesc: ports,
			openflow.MultipartGroupDesc: openflow.GroupDescList(nil), openflow.MultipartFlow: openflow.FlowStatsList(nil)}[m.Body.MultipartType()]}
	case *openflow.PacketOut:
		w.probes++
		to := w.cables[place{dpid, m.Actions[0].Port}]
		for _, at := range to {
			if far := w.switches[at.dpid]; far != nil && (len(to) == 1 || m.Data[0] == 0xff) {
				select {
				case far.out <- packetIn(at.port, m.Data):
				default:
				}
			}
		}
	}
}

func packetIn(port uint32, frame []byte) *openflow.PacketIn {
	return &openflow.PacketIn{Buffer: openflow.BufferNone, TotalLen: uint16(len(frame)), Match: openflow.NewMatch(openflow.InPort(port)), Data: frame}
}

// inBubble runs a test with two switches of three ports that a cable joins: port 2 of 1 and port 1
// of 2.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cable(place{1, 2}, place{2, 1})
		w.connect(1, 3)
		time.Sleep(100 * time.Millisecond)
		w.connect(2, 3)
		time.Sleep(time.Second)
		f(t, w)
		w.end()
	})
}

func (w *world) want(when string, links int, kinds map[place]Kind) {
	w.t.Helper()
	if got := w.Links(); len(got) != links {
		w.t.Errorf("%s: links %v, want %d", when, got, links)
	}
	for at, k := range kinds {
		if got := w.Kind(at.dpid, at.port); got != k {
			w.t.Errorf("%s: port %v is %v, want %v", when, at, got, k)
		}
	}
}

// proved waits until there are as many links, and probes have shown all of them, and a second more,
// in which other ports turn out to be edges. The time is simulated.
func (w *world) proved(links int) {
	w.t.Helper()
	remembered := func(l Link) bool { return l.Remembered }
	for range 600 {
		if got := w.Links(); len(got) == links && !slices.ContainsFunc(got, remembered) {
			time.Sleep(time.Second)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Errorf("not proved: %+v, want %d", w.Links(), links)
}

// Proves that both directions of a link are known soon, also when the switch at one end
// connected after the first probe of the other, and that other ports are edges.
func TestLinks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.want("up", 2, map[place]Kind{{1, 1}: Edge, {1, 2}: Inner, {2, 1}: Inner, {2, 2}: Edge})
		for _, l := range w.Links() {
			if l.Indirect || l.Remembered {
				t.Errorf("a cable: %+v", l)
			}
		}
	})
}

// Proves that a port that goes down takes its link with it at once, and that the far end
// becomes open, then an edge.
func TestPortDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.App.mu.Lock()
		w.changes = nil
		w.App.mu.Unlock()
		w.cut(place{1, 2}, place{2, 1})
		w.tell(1, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: 2, State: openflow.PortStateLinkDown}})
		time.Sleep(10 * time.Millisecond)
		w.want("down", 0, map[place]Kind{{2, 1}: Open})
		w.App.mu.Lock()
		told := w.changes
		w.App.mu.Unlock()
		if last := told[len(told)-1]; !last.Gone || last.Switch != 1 || last.Port != 2 {
			t.Errorf("told %v", told)
		}
		time.Sleep(time.Second)
		w.want("later", 0, map[place]Kind{{2, 1}: Edge})
	})
}

// Proves that one who fails when he is told of a change stops nobody else: what is asked is still
// answered, and the next change is told.
func TestWatcherFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var failed atomic.Bool
		w.App.WatchLinks(func(LinkChange) {
			if failed.CompareAndSwap(false, true) {
				panic("a watcher")
			}
		})
		w.cut(place{1, 2}, place{2, 1})
		down := func(dpid uint64, port uint32) {
			w.tell(dpid, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: port, State: openflow.PortStateLinkDown}})
			time.Sleep(10 * time.Millisecond)
		}
		down(1, 2)
		if !failed.Load() {
			t.Fatal("it was not told")
		}
		down(2, 2)
		w.want("down", 0, map[place]Kind{{1, 1}: Edge, {2, 2}: Open})
	})
}

// Proves that a link that carries nothing any more, though its ports stay up, is lost.
func TestSilentLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.cut(place{1, 2}, place{2, 1})
		time.Sleep(10 * time.Second)
		w.want("at first", 2, nil)
		time.Sleep(30 * time.Second)
		w.want("then", 0, map[place]Kind{{1, 2}: Edge, {2, 1}: Edge})
	})
}

// Proves that a link is not lost when probes come late or not at all because a switch has no
// time: one that does not even answer a barrier.
func TestBusySwitchLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.switches[2].deaf = true
		w.cables = map[place][]place{}
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		w.want("busy", 2, nil)
		w.cable(place{1, 2}, place{2, 1})
		w.mu.Lock()
		w.switches[2].deaf = false
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.want("again", 2, nil)
	})
}

// Proves that the links of a switch without a connection are remembered as long as the port
// at the other end is up, and that probes decide when it is back.
func TestSwitchAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.disconnect(2)
		w.want("away", 2, map[place]Kind{{1, 2}: Inner, {2, 1}: Inner})
		for _, l := range w.Links() {
			if !l.Remembered {
				t.Errorf("not only remembered: %+v", l)
			}
		}
		time.Sleep(10 * time.Minute)
		w.want("long", 2, map[place]Kind{{1, 2}: Inner})
		w.connect(2, 3)
		w.proved(2)
		w.want("back", 2, map[place]Kind{{1, 2}: Inner, {2, 1}: Inner, {2, 2}: Edge})

		w.disconnect(2)
		w.cut(place{1, 2}, place{2, 1}) // moved meanwhile
		w.cable(place{1, 2}, place{2, 3})
		w.connect(2, 3)
		w.proved(2)
		w.want("moved", 2, map[place]Kind{{1, 2}: Inner, {2, 3}: Inner, {2, 1}: Edge})

		w.disconnect(2)
		w.tell(1, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: 2, State: openflow.PortStateLinkDown}})
		time.Sleep(time.Second)
		w.want("down", 0, nil)
	})
}

// Proves that links of an earlier run are believed for a minute, and kept when probes show them.
func TestRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Remember([]Link{{From: 1, FromPort: 2, To: 2, ToPort: 1}, {From: 2, FromPort: 1, To: 1, ToPort: 2},
			{From: 1, FromPort: 3, To: 3, ToPort: 1}, {From: 3, FromPort: 1, To: 1, ToPort: 3}})
		w.cable(place{1, 2}, place{2, 1})
		w.connect(1, 3)
		time.Sleep(10 * time.Second)
		w.want("one is back", 4, map[place]Kind{{1, 1}: Edge, {1, 2}: Inner, {1, 3}: Inner})
		w.connect(2, 3)
		time.Sleep(10 * time.Second)
		w.want("two are back", 4, map[place]Kind{{1, 2}: Inner, {2, 1}: Inner, {2, 2}: Edge})
		time.Sleep(time.Minute)
		w.want("later", 2, map[place]Kind{{1, 2}: Inner, {1, 3}: Edge})
		w.end()
	})
}

// Proves that ports joined by a foreign switch are links of each other, and said to be indirect.
func TestSeveralFarEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.connect(3, 3)
		w.cable(place{1, 3}, place{2, 3}, place{3, 3})
		time.Sleep(20 * time.Second)
		indirect := 0
		for _, l := range w.Links() {
			if l.Indirect {
				indirect++
			}
		}
		if w.want("joined", 2+6, nil); indirect != 6 {
			t.Errorf("%d indirect: %+v", indirect, w.Links())
		}
	})
}

// Proves that the links of a long line of switches that all connect at once are all known
// soon, that none is lost then, and that probes keep within their budget.
func TestLine(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := uint64(1); i < n; i++ {
			w.cable(place{i, 2}, place{i + 1, 1})
		}
		for i := uint64(1); i <= n; i++ {
			w.connect(i, 2)
		}
		time.Sleep(2 * time.Second)
		w.want("up", 2*(n-1), nil)
		var lost atomic.Int32
		w.WatchLinks(func(c LinkChange) {
			if c.Gone {
				lost.Add(1)
			}
		})
		w.mu.Lock()
		before := w.probes
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		w.mu.Lock()
		sent := w.probes - before
		w.mu.Unlock()
		if w.want("later", 2*(n-1), nil); lost.Load() > 0 || sent > 300*Budget || sent < 300*n/5 {
			t.Errorf("%d links lost, %d probes in 300 s", lost.Load(), sent)
		}
		w.end()
	})
}

// TestCalm proves that ticks are rare where every port only waits for its turn, and that a port
// that may be an edge, one that is due or a link in doubt makes them frequent at once.
func TestCalm(t *testing.T) {
	a := New()
	if next := a.step(time.Now()); next != calm {
		t.Errorf("nothing waits: the next tick after %v", next)
	}
	waits := map[string]func(){
		"a port that is due": func() { a.schedule.soon(&port{node: &node{}}) },
		"a link in doubt":    func() { a.schedule.suspect(&way{}, time.Now().Add(time.Hour)) },
	}
	for what, begin := range waits {
		begin()
		select {
		case <-a.schedule.wake:
		default:
			t.Errorf("%s ends no calm tick", what)
		}
	}
	if next := a.step(time.Now()); next != tick {
		t.Errorf("a link is in doubt: the next tick after %v", next)
	}
}
