package delayline

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

func slow(t *testing.T, m topology.Model) *topology.Model {
	t.Helper()
	m.Source = "a test"
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	return &m
}

func cost(t *testing.T, text string) topology.Cost {
	t.Helper()
	c, err := topology.ParseCost(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// arrivals are Poisson: the times of n packets at a rate that keeps a server busy for a share of
// the time.
func arrivals(n int, service time.Duration, load float64, seed uint64) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 7))
	out, at := make([]time.Duration, n), 0.0
	for i := range out {
		at += r.ExpFloat64() * float64(service) / load
		out[i] = time.Duration(at)
	}
	return out
}

// TestServerQueueing proves that packets wait for a device as for a single server that takes the
// same time for each (M/D/1): on the average for the service time × load / (2 × (1 − load)), as
// Pollaczek and Khinchine have it; and that it is busy for the share of the time that the load
// says.
func TestServerQueueing(t *testing.T) {
	const service, n = 28 * time.Microsecond, 400_000
	for _, load := range []float64{0.2, 0.5, 0.8, 0.9} {
		s := NewServer(slow(t, topology.Model{PerPacket: cost(t, "28us"), Queue: 1_000_000}))
		var waited, last time.Duration
		for _, at := range arrivals(n, service, load, 1) {
			done, ok := s.take(at, Traffic{Packets: 1, Bytes: 64})
			if !ok {
				t.Fatal("a queue that is never full dropped a packet")
			}
			waited += done - at - service
			last = at
		}
		want := float64(service) * load / (2 * (1 - load))
		if got := float64(waited) / n; math.Abs(got/want-1) > 0.05 {
			t.Errorf("load %v: packets wait for %.2f µs, want %.2f", load, got/1000, want/1000)
		}
		if got := float64(s.Stats(last).Busy) / float64(last); math.Abs(got/load-1) > 0.01 {
			t.Errorf("load %v: busy for %.3f of the time", load, got)
		}
	}
}

// TestServerShared proves that what arrives over several lines shares one processor: two streams
// that are half of what it can do each fill it, and each third of three that are all of it is a
// third of what gets through.
func TestServerShared(t *testing.T) {
	s := NewServer(slow(t, topology.Model{PerPacket: cost(t, "100us"), Queue: 10}))
	var served [3]int
	for now := time.Duration(0); now < time.Second; now += 100 * time.Microsecond {
		for line := range served {
			if _, ok := s.take(now+time.Duration(line), Traffic{Packets: 1, Bytes: 64}); ok {
				served[line]++
			}
		}
	}
	stats := s.Stats(time.Hour)
	if total := served[0] + served[1] + served[2]; total < 10_000 || total > 10_011 ||
		stats.Served.Packets != uint64(total) || stats.Overflowed.Packets != uint64(30_000-total) {
		t.Errorf("%v served of 30000 in the time of 10000; counted: %+v", served, stats)
	}
	half := NewServer(slow(t, topology.Model{PerPacket: cost(t, "100us"), Queue: 2}))
	for now := time.Duration(0); now < time.Second; now += 200 * time.Microsecond {
		for range 2 {
			if _, ok := half.take(now, Traffic{Packets: 1, Bytes: 64}); !ok {
				t.Fatalf("at %v: dropped although there is time for it", now)
			}
		}
	}
}

// TestServerFull proves that a queue holds as many packets as it says, the one that is served
// among them, drops what comes then, and takes packets again as soon as one has been served; and
// that a larger queue lets a burst through that a small one does not.
func TestServerFull(t *testing.T) {
	s := NewServer(slow(t, topology.Model{PerPacket: cost(t, "1ms"), Queue: 5}))
	one := Traffic{Packets: 1, Bytes: 64}
	take := func(at time.Duration) bool { _, ok := s.take(at, one); return ok }
	for i := range 8 {
		if ok := take(0); ok != (i < 5) {
			t.Errorf("packet %d of a burst: taken %t", i, ok)
		}
	}
	if take(999*time.Microsecond) || !take(time.Millisecond) || take(time.Millisecond) {
		t.Error("there is room once the first has been served, for one")
	}
	if got := s.Stats(time.Millisecond); got.Waiting.Packets != 5 || got.Served.Packets != 1 ||
		got.Overflowed.Packets != 5 {
		t.Errorf("counted: %+v", got)
	}
	s.Set(slow(t, topology.Model{PerPacket: cost(t, "1ms"), Queue: 8}))
	if !take(time.Millisecond) {
		t.Error("the queue is longer, and still full")
	}
}

// TestServerCosts proves what a packet takes: whatever its size where a byte costs nothing, with
// its bytes where they do, as at a rate; that cycles are those of the clock; that segments of a
// super-packet cost as much as packets; and that fractions of a nanosecond are not lost.
func TestServerCosts(t *testing.T) {
	for _, c := range []struct {
		name  string
		model topology.Model
		size  Traffic
		want  time.Duration // of a thousand
	}{
		{"small", topology.Model{PerPacket: cost(t, "28us")}, Traffic{Packets: 1, Bytes: 64}, 28 * time.Millisecond},
		{"large", topology.Model{PerPacket: cost(t, "28us")}, Traffic{Packets: 1, Bytes: 1400}, 28 * time.Millisecond},
		{"bytes", topology.Model{PerPacket: cost(t, "28us"), PerByte: cost(t, "10ns")}, Traffic{Packets: 1,
			Bytes: 1400}, 42 * time.Millisecond},
		{"rate", topology.Model{Rate: 8_000_000}, Traffic{Packets: 1, Bytes: 1000}, time.Second},
		{"cycles", topology.Model{Clock: 580_000_000, PerPacket: cost(t, "15000 cycles"), PerByte: cost(t,
			"2 cycles")}, Traffic{Packets: 1, Bytes: 1400},
			30_689_655},
		{"segments", topology.Model{PerPacket: cost(t, "28us")}, Traffic{Packets: 10, Bytes: 14000},
			280 * time.Millisecond},
		{"fraction", topology.Model{PerByte: cost(t, "0.25ns")}, Traffic{Packets: 1, Bytes: 1}, 250},
	} {
		c.model.Queue = 1_000_000
		s := NewServer(slow(t, c.model))
		var done time.Duration
		for range 1000 {
			done, _ = s.take(0, c.size)
		}
		if off := done - c.want; off < -1 || off > 1 {
			t.Errorf("%s: a thousand take %v, want %v", c.name, done, c.want)
		}
	}
}

// staged is an end of a line without its line, in simulated time.
func staged(t *testing.T, i topology.Impairment, before, after *Server) *end {
	t.Helper()
	budget := new(atomic.Int64)
	budget.Store(1 << 30)
	pool := NewPool(budget)
	n := &end{queue: NewQueue(i, pool, 1), index: -1}
	n.before, n.after = n.before.serve(before, pool), n.after.serve(after, pool)
	return n
}

// drain takes out all that an end delivers, each when it is due, and returns when the last was.
func (n *end) drain(each func(bytes []byte, at time.Duration)) (now time.Duration) {
	for {
		next, ok := n.nextDue()
		if !ok {
			return now
		}
		now = max(now, next)
		if bytes, _, at, ok := n.pop(now); ok && bytes != nil {
			each(bytes, at)
		}
	}
}

// TestStages proves that a frame passes the sender's device, the link and the receiver's device one
// after another, in order and whole, and that nothing is lost from the counters: neither what a
// device drops nor what waits for it.
func TestStages(t *testing.T) {
	before := NewServer(slow(t, topology.Model{PerPacket: cost(t, "100us"), Queue: 40}))
	after := NewServer(slow(t, topology.Model{PerPacket: cost(t, "300us"), Queue: 10}))
	n := staged(t, topology.Impairment{Bandwidth: 8_000_000, Delay: ms(5)}, before, after)
	for i := range 50 {
		n.push(0, udp(200, 1, i, 0), Traffic{Packets: 1, Bytes: 200}) // 200 µs each on the link
	}
	check := func(d Direction) {
		t.Helper()
		sum := d.Out.Packets + d.Unserved.Packets + d.Waiting.Packets + d.Flying.Packets + d.Held.Packets
		if d.In.Packets != 50 || sum != 50 {
			t.Errorf("does not add up: %+v", d)
		}
	}
	check(n.direction(0))
	var got []int
	n.drain(func(b []byte, at time.Duration) {
		got = append(got, numberOf(b))
		// 100 µs, then one after another at the slowest: 200 µs on the link, 5 ms, then 300 µs
		// each.
		if want := 5600*time.Microsecond + time.Duration(len(got)-1)*300*time.Microsecond; at < want || at > want+3 {
			t.Errorf("frame %d arrives at %v, want %v", len(got), at, want)
		}
		check(n.direction(at))
	})
	last := -1
	for _, i := range got {
		if i <= last {
			t.Fatalf("out of order: %v", got)
		}
		last = i
	}
	d := n.direction(time.Hour)
	if check(d); d.Out.Packets != uint64(len(got)) ||
		d.Unserved.Packets != before.Stats(time.Hour).Overflowed.Packets+after.Stats(time.Hour).Overflowed.Packets || d.Unserved.Packets < 10 {
		t.Errorf("%d arrived; %+v", len(got), d)
	}
}

// TestStageChanges proves that frames stay in order when a device is no longer modelled, or another
// model is put in its place, while they wait for it; and that a line that goes down drops them.
func TestStageChanges(t *testing.T) {
	n := staged(t, topology.Impairment{}, nil, NewServer(slow(t, topology.Model{PerPacket: cost(t, "1ms")})))
	push := func(i int) {
		n.push(0, udp(200, 1, i, 0), Traffic{Packets: 1, Bytes: 200})
		for {
			if _, _, _, ok := n.pop(0); !ok {
				return
			}
		}
	}
	push(0)
	push(1)
	n.after = n.after.serve(nil, nil)
	push(2)
	n.after = n.after.serve(NewServer(slow(t, topology.Model{PerPacket: cost(t, "1us")})), nil)
	push(3)
	var got []int
	if end := n.drain(func(b []byte, _ time.Duration) { got = append(got, numberOf(b)) }); len(got) != 4 ||
		got[0] != 0 || got[3] != 3 || end != 2*time.Millisecond {
		t.Errorf("%v arrive, the last at %v", got, end)
	}
	push(4)
	n.up(0, false)
	if d := n.direction(0); d.Cleared.Packets != 1 || d.Held.Packets != 0 {
		t.Errorf("after it went down: %+v", d)
	}
	n.after = n.after.serve(nil, nil)
	n.up(0, true)
	if n.push(0, udp(200, 1, 5, 0), Traffic{Packets: 1, Bytes: 200}); n.drain(func([]byte, time.Duration) {}) != 0 {
		t.Error("a frame waits for those that were dropped before it")
	}
}

// TestStageBound proves that what a stage holds stays bounded where no server's queue does that:
// behind frames that the device took before its model was removed, or was replaced by a faster one
// of a longer queue. It also proves that frames which are dropped, there or by a full queue, take
// no memory, and that a frame for which there is none is not served.
func TestStageBound(t *testing.T) {
	for name, next := range map[string]*Server{"none": nil,
		"faster": NewServer(slow(t, topology.Model{PerPacket: cost(t, "1ns"), Queue: 1_000_000}))} {
		first := NewServer(slow(t, topology.Model{PerPacket: cost(t, "1s"), Queue: 2}))
		n := staged(t, topology.Impairment{}, first, nil)
		left := n.before.store.pool.budget
		one := Traffic{Packets: 1, Bytes: 1000}
		for i := range 5000 {
			n.push(0, udp(1000, 1, i, 0), one)
		}
		if spent := 1<<30 - left.Load(); n.before.inside.Packets != 2 || spent > chunkSize {
			t.Errorf("%d wait of 2, in %d bytes", n.before.inside.Packets, spent)
		}
		n.before = n.before.serve(next, nil)
		for i := range 5000 {
			n.push(time.Duration(i), udp(1000, 1, i, 0), one)
		}
		d := n.direction(5000)
		if d.Held.Packets != topology.DefaultModelQueue || d.Unserved.Packets != 10_000-d.Held.Packets ||
			1<<30-left.Load() > 8*chunkSize {
			t.Errorf("%s: %+v, in %d bytes", name, d, 1<<30-left.Load())
		}
	}
	served := NewServer(slow(t, topology.Model{PerPacket: cost(t, "1ms")}))
	n := staged(t, topology.Impairment{}, served, nil)
	n.before.store.pool.budget.Store(0)
	n.push(0, udp(200, 1, 0, 0), Traffic{Packets: 1, Bytes: 200})
	if s := served.Stats(time.Hour); s.Served.Packets != 0 || s.Busy != 0 || n.direction(0).NoMemory.Packets != 1 {
		t.Errorf("without memory: %+v", s)
	}
}

// TestServerOnTheWire proves that lines whose ends stand for the same device share its time, that
// no super-packet passes while one does, that what comes is slow from when the model is put in
// place until it is taken away, in one direction or, for a device that takes both, in both, and
// that all packets are accounted for.
func TestServerOnTheWire(t *testing.T) {
	w := newWire(t, topology.Impairment{}, Options{})
	c := w.echo(t, w.b.ip4)
	if fast := fastest(t, c, 64); fast > 15*time.Millisecond {
		t.Skipf("the machine is too busy: %v without any delay", fast)
	}
	if s := w.line.Stats(); !s[0].Offload || !s[1].Offload {
		t.Fatalf("no super-packets before: %+v", s)
	}
	server := NewServer(slow(t, topology.Model{PerPacket: cost(t, "20ms")}))
	for _, both := range []bool{false, true} {
		if err := w.line.Serve([2]Device{{}, {Server: server, Both: both}}); err != nil {
			t.Fatal(err)
		}
		want := 20 * time.Millisecond // what end a sends waits at end b's device
		if both {
			want *= 2
		}
		if got := fastest(t, c, 64); got < want {
			t.Errorf("both %t: %v there and back, want %v", both, got, want)
		}
		if s := w.line.Stats(); s[0].Offload || s[1].Offload {
			t.Errorf("super-packets pass a device: %+v", s)
		}
		balanced(t, w.line.Stats())
	}
	busy := server.Stats(0).Busy
	if err := w.line.Serve([2]Device{}); err != nil {
		t.Fatal(err)
	}
	fastest(t, c, 64)
	if s := w.line.Stats(); !s[0].Offload || server.Stats(0).Busy != busy {
		t.Errorf("the device still has packets: %+v", s)
	}
	balanced(t, w.line.Stats())
}
