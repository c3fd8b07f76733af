package bench

import (
	"errors"
	"fmt"
	"math/rand"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/openflow"
)

// barriers is how many are timed in each turn, batch how many FLOW_MODs are sent at once.
const (
	barriers = 200
	batch    = 10_000
)

// TestBarrier measures what a controller waits for: FLOW_MOD and BARRIER_REQUEST, while the kernel
// has entries of flows under way that follow from the table that is changed, or from that of
// another switch; then 10,000 FLOW_MODs at once, embedded and with Open vSwitch, and how long
// another flow gets no packet meanwhile.
func TestBarrier(t *testing.T) {
	load(t)
	var b strings.Builder
	b.WriteString("| entries in the kernel | changed | p50, µs | p99, µs |\n| --- | --- | --- | --- |\n")
	for _, entries := range []int{0, 1000, 100_000} {
		t.Run(fmt.Sprint(entries), func(t *testing.T) { barrierAmong(t, entries, &b) })
	}
	t.Logf("\n%s", b.String())
	b.Reset()
	b.WriteString("| | embedded | Open vSwitch (" + ovsDatapath() + ") | embedded ÷ Open vSwitch |\n| --- | --- | --- | --- |\n")
	var took, gaps [2][]float64
	var beds [2]*setupBed
	for i, datapath := range []string{"embedded", "ovs"} {
		beds[i] = newSetupBed(t, datapath, nil)
	}
	for range *pairs {
		for _, i := range rand.Perm(2) {
			seconds, gap := beds[i].flood(t)
			took[i], gaps[i] = append(took[i], seconds), append(gaps[i], gap)
		}
	}
	for _, r := range []struct {
		name string
		of   [2][]float64
	}{{"10,000 FLOW_MODs and a barrier, s", took}, {"longest gap of another flow of 5,000 packets/s meanwhile, ms", gaps}} {
		fmt.Fprintf(&b, "| %s | %.4g | %.4g | %s |\n", r.name, stats.Quantile(r.of[0], 0.5), stats.Quantile(r.of[1], 0.5), interval(ratios(r.of[0], r.of[1])))
	}
	t.Logf("\n%s", b.String())
}

// barrierAmong times barriers of switches in this process: labs have room for fewer entries.
func barrierAmong(t *testing.T, entries int, out *strings.Builder) {
	fabric, near := namespace(t), namespace(t)
	sh(t, "ip", "-n", filepath.Base(fabric), "link", "add", "p1", "type", "veth", "peer", "name", "eth0", "netns", filepath.Base(near))
	sh(t, "ip", "-n", filepath.Base(fabric), "link", "set", "p1", "up")
	engine, sessions := twoSwitches(t, fabric)
	fillCache(t, engine, hostOf(t, near, 1, 0), sessions[0], entries)
	for i, which := range []string{"their table", "another switch"} {
		var times []float64
		for n := range barriers * *pairs {
			if i == 0 && entries > 10_000 && n > barriers/10 {
				break // each takes long
			}
			start := time.Now()
			if err := errors.Join(sessions[i].send(flow("priority=9,udp,tp_dst=%d,actions=drop", 2+n%8)), sessions[i].barrier()); err != nil {
				t.Fatal(err)
			}
			times = append(times, float64(time.Since(start).Nanoseconds())/1000)
		}
		fmt.Fprintf(out, "| %d | %s | %.0f | %.0f |\n", entries, which, stats.Quantile(times, 0.5), stats.Quantile(times, 0.99))
	}
}

// twoSwitches makes switches in this process, the device p1 of a namespace at port 1 of the first,
// and a controller's end of a connection with each.
func twoSwitches(t *testing.T, fabric string) (*cache.Engine, []*session) {
	t.Helper()
	var engine atomic.Pointer[cache.Engine]
	dp := embedded.New(embedded.Options{
		Output:  func(o *pipeline.Sent, in *pipeline.Packet) { engine.Load().Send(o, in) },
		Barrier: func(s *pipeline.Switch) { engine.Load().Barrier(s) },
	})
	t.Cleanup(dp.Close)
	e, err := cache.New(dp, cache.Options{Namespace: fabric, Entries: 1 << 18, PerPort: 1 << 18, Idle: time.Hour, MissRate: 1e6, Queue: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	if why := e.UserSpace(); why != "" {
		t.Skip("packets do not go through the kernel: " + why)
	}
	engine.Store(e)
	t.Cleanup(func() { _ = e.Close(false) })
	var sessions []*session
	for dpid := range uint64(2) {
		a, err := dp.Add(pipeline.Config{DatapathID: dpid + 1, Name: fmt.Sprint("s", dpid+1)}, agent.Options{})
		for p := uint32(1); p <= 2 && err == nil; p++ {
			_, err = a.Switch().AddPort(openflow.Port{Number: p}, dp.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
		if sessions = append(sessions, connected(t, a)); dpid > 0 {
			continue
		}
		index := 0
		if err := inside.Namespace(fabric, func() error {
			link, err := netlink.LinkByName("p1")
			if err == nil {
				index = link.Attrs().Index
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := e.Attach(a.Switch().Port(1), index, cache.Auto); err != nil {
			t.Fatal(err)
		}
	}
	return e, sessions
}

// connected joins an agent and a session by a connection on loopback.
func connected(t *testing.T, a *agent.Agent) *session {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = a.Meet(theirs) }()
	s, err := meet(ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return s
}

// fillCache sends packets of that many flows, until each has an entry in the kernel: what is lost
// on the way is sent again, with the others.
func fillCache(t *testing.T, e *cache.Engine, h *host, s *session, entries int) {
	t.Helper()
	if err := s.replace([]openflow.Message{flow("priority=1,udp,tp_src=1,tp_dst=1,actions=drop"), flow("priority=0,actions=output:2")}); err != nil {
		t.Fatal(err)
	}
	var dev *wire.Device
	h.inside(t, func() (err error) {
		dev, err = wire.Open("eth0")
		return err
	})
	defer dev.Close()
	b := &setupBed{way: &way{}}
	b.left[0], b.right[0] = h, h
	atLeast := func(n int, patience time.Duration) {
		for end := time.Now().Add(patience); e.Stats().Entries < n && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	for end := time.Now().Add(5 * time.Minute); e.Stats().Entries < entries; atLeast(entries, 10*time.Second) {
		if time.Now().After(end) {
			t.Fatalf("%d entries of %d in the kernel: %+v", e.Stats().Entries, entries, e.Stats())
		}
		for n := range entries {
			frame := b.frame(uint32(n))
			if err := dev.Send(&pipeline.Sent{Data: frame}, &pipeline.Packet{Data: frame}); err != nil {
				t.Fatal(err)
			}
			if n%500 == 499 {
				atLeast(n+1-500, time.Second) // do not run ahead of user space
			}
		}
	}
}

// flood sends 10,000 FLOW_MODs to the first switch of the path while packets of a flow go by, and
// returns how long it took until the barrier behind them was answered, and the longest gap between
// two packets that arrived, in ms.
func (b *setupBed) flood(t *testing.T) (seconds, gap float64) {
	t.Helper()
	n := b.first
	b.first++
	for i, s := range b.switches {
		if err := s.replace([]openflow.Message{b.entry(n, i)}); err != nil {
			t.Fatal(err)
		}
	}
	stop, frame := make(chan struct{}), b.frame(n)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = b.near.Send(&pipeline.Sent{Data: frame}, &pipeline.Packet{Data: frame})
			}
		}
	})
	<-b.arrived
	var longest time.Duration
	ended := make(chan struct{})
	group.Go(func() {
		defer close(ended)
		for last := time.Now(); ; {
			select {
			case <-b.arrived:
				longest = max(longest, time.Since(last))
				last = time.Now()
			case <-time.After(5 * time.Second):
				longest = max(longest, time.Since(last))
				return
			case <-stop:
				longest = max(longest, time.Since(last))
				return
			}
		}
	})
	time.Sleep(300 * time.Millisecond) // the flow is under way
	var list []openflow.Message
	for i := range batch {
		list = append(list, flow("priority=50,ip,nw_dst=10.%d.%d.%d,idle_timeout=600,actions=output:2", 1+i>>16, i>>8&255, i&255))
	}
	start := time.Now()
	if err := b.switches[0].send(list...); err != nil {
		t.Fatal(err)
	}
	if err := b.switches[0].barrier(); err != nil {
		t.Fatal(err)
	}
	seconds = time.Since(start).Seconds()
	close(stop)
	group.Wait()
	<-ended
	for len(b.arrived) > 0 {
		<-b.arrived
	}
	return seconds, longest.Seconds() * 1000
}
