//go:build linux

package cache

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// stream sends numbered packets from host 1 to host 2, about so many per second, for that long, and
// says what became of them: "" when each arrived, once, in order. During it, disturb is called
// again and again, 20 times at least. Where the machine cannot keep up, the sender waits until all
// have arrived: a flow that never leaves the moment in which its entry could become active has
// packets dropped (drainAfter), which is not what is tested here.
func (b *fixture) stream(rate int, long time.Duration, disturb func(round int)) string {
	b.Helper()
	// Of packets that wait for an address to be resolved, a host keeps a hundred.
	b.at(1, "ip", "neigh", "replace", "10.0.0.2", "lladdr", b.macs[1].String(), "dev", "eth0")
	c, sink := b.listen(1, 0), b.listen(2, 9100)
	defer c.Close()
	b.enlarge(sink)
	stop, disturbed := make(chan struct{}), make(chan struct{})
	var rounds atomic.Int64
	go func() {
		defer close(disturbed)
		defer rounds.Store(20) // also where it fails
		for round := 0; disturb != nil; round++ {
			rounds.Store(int64(round))
			select {
			case <-stop:
				return
			default:
				disturb(round)
			}
		}
	}()
	sent := make(chan uint64, 1)
	var arrived atomic.Uint64
	go func() {
		// A sender that changes its processor may overtake itself: packets wait for the other end
		// of a veth pair at the processor that sent them.
		runtime.LockOSThread()
		_ = unix.SchedSetaffinity(0, &unix.CPUSet{1})
		room := make([]byte, 64)
		var n uint64
		began, start := time.Now(), time.Now()
		for time.Since(began) < long || n < 100 || disturb != nil && rounds.Load() < 20 {
			due := uint64(time.Since(start).Seconds() * float64(rate))
			if n+100 < due { // it has been kept waiting: what is late is not to come all at once
				due = n + 100
				start = time.Now().Add(-time.Duration(float64(due) / float64(rate) * 1e9))
			}
			if n > arrived.Load()+drainAfter/2 {
				for waited := time.Now(); n > arrived.Load() && time.Since(waited) < 10*time.Second; {
					time.Sleep(100 * time.Microsecond)
				}
			}
			for ; n < due; n++ {
				binary.BigEndian.PutUint64(room, n)
				if _, err := c.WriteToUDP(room, addrOf(2, 9100)); err != nil {
					b.Error(err)
				}
			}
			time.Sleep(20 * time.Microsecond)
		}
		sent <- n
	}()
	var next, lost, late, total uint64
	all := ^uint64(0)
	room := make([]byte, 64)
	for idle := 0; next < all && idle < 1000; {
		select {
		case all = <-sent:
			continue
		default:
		}
		sink.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := sink.Read(room); err != nil {
			if all != ^uint64(0) {
				idle++
			}
			continue
		}
		idle = 0
		switch n := binary.BigEndian.Uint64(room); {
		case n < next:
			late++
		default:
			lost += n - next
			next = n + 1
			arrived.Store(next)
		}
		total++
	}
	close(stop)
	<-disturbed
	lost += all - next
	sink.Close()
	if lost+late > 0 || total == 0 {
		return fmt.Sprintf("of %d packets %d were not there in their turn, %d came late or twice: %+v", all, lost, late, b.engine.Stats())
	}
	return ""
}

// enlarge gives a socket room for a second's packets.
func (b *fixture) enlarge(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
	}
	if err != nil {
		b.Fatal(err)
	}
}

// While a flow is set up, no packet is lost, doubled, or overtaken: 100 flows, each for a short
// time.
func TestOrderSetup(t *testing.T) {
	b := newFixture(t, 2, Options{Queue: 12_000}) // the worker may not get a processor for long
	s := b.add(1, 2)
	b.plug(s, 1, 1, Auto)
	b.plug(s, 2, 2, Auto)
	b.flow(s, "priority=1,arp,actions=flood")
	b.flow(s, "priority=1,udp,udp_src=1,actions=drop") // ports count
	b.flow(s, "priority=0,ip,actions=dec_ttl,output:2")
	for range 100 {
		if wrong := b.stream(20_000, 20*time.Millisecond, nil); wrong != "" {
			t.Fatal(wrong)
		}
	}
	if s := b.engine.Stats(); s.Installed < 90 {
		t.Errorf("flows were not set up: %+v", s)
	}
}

// The same while entries are taken away again and again, by time and by changes of the tables,
// which leave a packet's fate as it is or change its TTL; where packets pass by the device of the
// way out and where they leave by it.
func TestOrderChanges(t *testing.T) {
	for name, disturb := range map[string]func(b *fixture, s *pipeline.Switch) func(int){
		"expiry": func(b *fixture, s *pipeline.Switch) func(int) {
			return func(int) {
				time.Sleep(3 * time.Millisecond)
				b.engine.mu.Lock()
				for _, p := range b.engine.attached {
					for _, x := range p.flows {
						b.engine.remove(x)
					}
				}
				b.engine.mu.Unlock()
			}
		},
		"same": func(b *fixture, s *pipeline.Switch) func(int) {
			return func(i int) {
				time.Sleep(time.Millisecond)
				b.flow(s, fmt.Sprintf("priority=9,udp,udp_src=%d,actions=drop", i%8))
				b.engine.Barrier(s)
			}
		},
		"other": func(b *fixture, s *pipeline.Switch) func(int) {
			return func(i int) {
				time.Sleep(time.Millisecond)
				b.flow(s, "priority=1,udp,actions="+strings.Repeat("dec_ttl,", i%3)+"output:2")
				b.engine.Barrier(s)
			}
		},
	} {
		for _, way := range []Mode{Auto, Egress} {
			t.Run(fmt.Sprint(name, " ", way), func(t *testing.T) {
				b := newFixture(t, 2, Options{Queue: 12_000})
				s := b.add(1, 2)
				b.plug(s, 1, 1, way)
				b.plug(s, 2, 2, way)
				b.flow(s, "priority=1,arp,actions=flood")
				b.flow(s, "priority=1,udp,actions=output:2")
				if wrong := b.stream(20_000, time.Second, disturb(b, s)); wrong != "" {
					t.Error(wrong)
				}
			})
		}
	}
}

// Packets of ever new flows use up the budget of their port and no more; they still arrive, and
// another port's do not wait behind them.
func TestBudget(t *testing.T) {
	b := newFixture(t, 4, Options{PerPort: 50, MissRate: 500}) // less than the slowest machine can send
	s := b.add(1, 4)
	for i := 1; i <= 4; i++ {
		b.plug(s, uint32(i), i, Auto)
	}
	b.flow(s, "priority=1,arp,actions=flood")
	b.flow(s, "priority=1,udp,udp_src=1,actions=drop") // ports count
	b.flow(s, "priority=1,ip,in_port=1,actions=output:2")
	b.flow(s, "priority=1,ip,in_port=2,actions=output:1")
	b.flow(s, "priority=1,ip,in_port=3,actions=output:4")
	b.flow(s, "priority=1,ip,in_port=4,actions=output:3")
	sink := b.listen(2, 9200)
	sources := make([]*net.UDPConn, 200)
	for i := range sources {
		sources[i] = b.listen(1, 0)
	}
	got := 0
	for range 3 {
		for _, c := range sources {
			if _, err := c.WriteToUDP([]byte("x"), addrOf(2, 9200)); err != nil {
				t.Fatal(err)
			}
		}
		for range sources {
			sink.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := sink.Read(make([]byte, 10)); err != nil {
				t.Fatalf("%d packets of %d arrived: %v", got, len(sources), err)
			}
			got++
		}
	}
	st := b.engine.Stats()
	if st.Entries > 60 || st.Slow["the budget of the port is used up"] == 0 {
		t.Errorf("the budget of 50 entries does not hold: %+v", st)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // as fast as it can
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_, _ = sources[i%len(sources)].WriteToUDP([]byte("x"), addrOf(2, 9200))
			}
		}
	}()
	for n := 0; n < 20 || n < 1000 && b.engine.Stats().Dropped == 0; n++ { // another port's packets do not suffer: it fails where one is lost
		b.at(3, "ping", "-c", "1", "-W", "30", "10.0.0.4")
	}
	close(stop)
	<-done
	if b.engine.Stats().Dropped == 0 {
		t.Error("no packet was dropped, and counted, though the port had more than its share")
	}
}
