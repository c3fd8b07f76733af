package controller_test

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// witness is an app that notes what it is told, and the ownership of its controller.
type witness struct {
	controller.Base
	name     string
	mu       sync.Mutex
	told     []string
	packets  []byte // the last byte of each
	deposed  int
	c        *controller.Controller
	onPacket func(*controller.Switch, *controller.Packet)
}

func (w *witness) Name() string { return w.name }

func (w *witness) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, what)
}

func (w *witness) has(what ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Equal(w.told, what)
}

func (w *witness) SwitchUp(*controller.Switch)   { w.note("up") }
func (w *witness) SwitchDown(*controller.Switch) { w.note("down") }
func (w *witness) PortChanged(_ *controller.Switch, _ openflow.PortReason, p openflow.Port) {
	w.note("port " + p.Name)
}

func (w *witness) PacketIn(s *controller.Switch, p *controller.Packet) bool {
	w.mu.Lock()
	w.packets = append(w.packets, p.Data[len(p.Data)-1])
	w.mu.Unlock()
	if w.onPacket != nil {
		w.onPacket(s, p)
	}
	return true
}

func (w *witness) Connected(*controller.Switch) { w.note("connected") }
func (w *witness) Lost(*controller.Switch)      { w.note("lost") }
func (w *witness) Deposed(*controller.Switch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deposed++
}

// watcher is a witness that minds the switches of others.
type watcher struct{ *witness }

func (w watcher) SwitchSeen(*controller.Switch)   { w.note("seen") }
func (w watcher) SwitchCeased(*controller.Switch) { w.note("ceased") }

// shared is a switch with two ports and several controllers.
type shared struct {
	*agent.Agent
	mu   sync.Mutex
	proc *pipeline.Processor
	out  []byte // the last byte of what left by port 2
}

func (s *shared) took(r *pipeline.Result) {
	for _, sent := range r.Sent {
		if sent.Port.Number() == 2 {
			s.out = append(s.out, sent.Data[len(sent.Data)-1])
		}
	}
	for i := range r.PacketIns {
		s.PacketIn(&r.PacketIns[i].Message)
	}
}

// receive brings in a packet with a number.
func (s *shared) receive(n byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	frame := append(make([]byte, 12), 0x08, 0, n)
	s.took(s.proc.Receive(s.Switch().Port(1), &pipeline.Packet{Data: frame}, 0))
}

func newShared(t *testing.T) *shared {
	t.Helper()
	n := pipeline.NewNetwork()
	sw, err := n.Add(pipeline.Config{DatapathID: 0xab, Name: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(2) {
		if _, err := sw.AddPort(openflow.Port{Number: i + 1, Name: fmt.Sprint("p", i+1), HWAddr: openflow.MAC{2, 0, 0, 0, 1, byte(i)}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := &shared{proc: pipeline.NewProcessor(n)}
	start := time.Now()
	s.Agent = agent.New(sw, agent.Options{
		Now: func() time.Duration { return time.Since(start) },
		PacketOut: func(sw *pipeline.Switch, m *openflow.PacketOut) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			r, err := s.proc.PacketOut(sw, m, time.Since(start))
			if err == nil {
				s.took(r)
			}
			return err
		}})
	t.Cleanup(s.Close)
	return s
}

// member starts a controller that is one of several, and connects the switch to it.
func member(t *testing.T, s *shared, name string, memory bool) *witness {
	t.Helper()
	w, other := &witness{name: name}, &witness{name: name + "-plain"}
	c, err := controller.New(slog.New(slog.DiscardHandler), watcher{w}, other)
	if err != nil {
		t.Fatal(err)
	}
	w.c, c.Owner = c, w
	t.Cleanup(c.Close)
	if memory {
		m := c.NewMemory("s1")
		if err := m.Join(s.Agent.Join(m)); err != nil {
			t.Fatal(err)
		}
	} else {
		here, there := net.Pipe()
		go c.Meet(there)
		go func() { _ = s.Meet(here) }()
	}
	until.True(t, name+" is a standby of the switch", func() bool { return w.has("seen", "connected") })
	if c.Switch(0xab) != nil || len(c.Switches()) != 0 {
		t.Errorf("%s decides for a switch of which it is a standby", name)
	}
	return w
}

// ways runs a test over connections, and with switches in the process.
func ways(t *testing.T, f func(t *testing.T, memory bool)) {
	t.Run("connection", func(t *testing.T) { f(t, false) })
	t.Run("memory", func(t *testing.T) { f(t, true) })
}

// A standby knows the switch and its ports and cannot change it; once it is master, its apps see
// the switch up and packets come to it; another that takes over deposes it, its apps see that, and
// a late claim of an older generation changes nothing.
func TestRoles(t *testing.T) {
	ways(t, func(t *testing.T, memory bool) {
		s := newShared(t)
		a, b := member(t, s, "a", memory), member(t, s, "b", memory)
		seen := a.c.Seen(0xab)
		if len(seen.Ports()) != 2 {
			t.Errorf("ports of a standby: %v", seen.Ports())
		}
		flow := openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.Match{})
		if err := seen.Send(flow); err != controller.ErrStandby {
			t.Errorf("a standby adds an entry: %v", err)
		}
		if err := seen.Do(t.Context(), flow); err != controller.ErrStandby {
			t.Errorf("a standby adds an entry: %v", err)
		}
		if err := seen.Barrier(t.Context()); err != nil {
			t.Errorf("a standby asks: %v", err)
		}

		_ = seen.Become(5)
		until.True(t, "a is told that it is master", func() bool { return a.has("seen", "connected", "up") })
		sw := a.c.Switch(0xab)
		if err := sw.Do(t.Context(), toController()); err != nil {
			t.Fatal(err)
		}
		s.receive(1)
		until.True(t, "the packet comes to a", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return string(a.packets) == "\x01" })

		_ = b.c.Seen(0xab).Become(9)
		until.True(t, "b is told that it is master", func() bool { return b.has("seen", "connected", "up") })
		_ = sw.Cease()
		until.True(t, "a is told that it is not", func() bool { return a.has("seen", "connected", "up", "ceased") })
		s.receive(2)
		until.True(t, "the packet comes to b", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return string(b.packets) == "\x02" })

		_ = seen.Become(7)
		until.True(t, "the switch refuses an older generation", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.deposed == 1 })
		if a.c.Switch(0xab) != nil || b.c.Switch(0xab) == nil {
			t.Error("an older generation has become master")
		}
		if string(a.packets) != "\x01" {
			t.Errorf("packets at a: %v", a.packets)
		}

		s.Switch().RemovePort(2)
		until.True(t, "both know that a port has gone", func() bool {
			return a.has("seen", "connected", "up", "ceased", "port p2") && b.has("seen", "connected", "up", "port p2")
		})
		s.Close()
		until.True(t, "both know that the switch has gone", func() bool {
			return a.has("seen", "connected", "up", "ceased", "port p2", "down", "lost") &&
				b.has("seen", "connected", "up", "port p2", "down", "lost")
		})
	})
}

// A master that knows nothing of its successor learns of it from the switch, by what that refuses.
func TestDeposed(t *testing.T) {
	ways(t, func(t *testing.T, memory bool) {
		s := newShared(t)
		a, b := member(t, s, "a", memory), member(t, s, "b", memory)
		_ = a.c.Seen(0xab).Become(1)
		until.True(t, "a is master", func() bool { return a.c.Switch(0xab) != nil })
		sw := a.c.Switch(0xab)
		_ = b.c.Seen(0xab).Become(2)
		until.True(t, "b is master", func() bool { return b.c.Switch(0xab) != nil })
		if err := sw.Do(t.Context(), toController()); err == nil {
			t.Error("a has changed b's switch")
		}
		until.True(t, "a is told by the switch", func() bool { return a.has("seen", "connected", "up", "ceased") })
	})
}

// A master that claims the switch anew, and has not noticed that another had it in between, begins
// anew with what it knows of it; where nobody can have had it, by the same generation, it does not.
func TestClaimedAnew(t *testing.T) {
	ways(t, func(t *testing.T, memory bool) {
		s := newShared(t)
		a, b := member(t, s, "a", memory), member(t, s, "b", memory)
		seen := a.c.Seen(0xab)
		_ = seen.Become(1)
		until.True(t, "a is master", func() bool { return a.has("seen", "connected", "up") })
		_ = b.c.Seen(0xab).Become(2)
		until.True(t, "b is master", func() bool { return b.c.Switch(0xab) != nil })
		if generation, firm := seen.Reign(); generation != 1 || !firm {
			t.Errorf("a, which knows nothing: %d, %v", generation, firm)
		}
		_ = seen.Become(3)
		until.True(t, "a begins anew", func() bool { return a.has("seen", "connected", "up", "ceased", "up") })
		until.True(t, "by its new role", func() bool { generation, firm := seen.Reign(); return generation == 3 && firm })
		_ = seen.Become(3)
		if err := a.c.Switch(0xab).Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !a.has("seen", "connected", "up", "ceased", "up") {
			t.Errorf("claimed by the same generation: %v", a.told)
		}
	})
}

// While the switch goes from one master to another and back under traffic, every packet comes to
// one of them, and leaves the switch: also those that come between the switch's word and the apps'.
func TestHandover(t *testing.T) {
	ways(t, func(t *testing.T, memory bool) {
		s := newShared(t)
		a, b := member(t, s, "a", memory), member(t, s, "b", memory)
		_ = a.c.Seen(0xab).Become(1)
		until.True(t, "a is master", func() bool { return a.c.Switch(0xab) != nil })
		if err := a.c.Switch(0xab).Do(t.Context(), toController()); err != nil {
			t.Fatal(err)
		}
		from, to := a, b
		for n := range byte(100) {
			s.receive(n)
			if n%10 == 5 {
				_ = to.c.Seen(0xab).Become(uint64(n))
				_ = from.c.Seen(0xab).Cease()
				s.receive(n + 100)
				until.True(t, "the new master acts, the old one does not", func() bool {
					return to.c.Switch(0xab) != nil && from.c.Switch(0xab) == nil
				})
				from, to = to, from
			}
		}
		until.True(t, "all packets have come to one of the two", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			b.mu.Lock()
			defer b.mu.Unlock()
			all := append(slices.Clone(a.packets), b.packets...)
			slices.Sort(all)
			return len(all) == 110 && len(slices.Compact(all)) == 110
		})
	})
}

// toController is an entry by which all packets go to the master.
func toController() *openflow.FlowMod {
	return openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.Match{}, openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
}
