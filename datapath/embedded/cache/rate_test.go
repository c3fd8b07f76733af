//go:build linux

package cache

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
)

// Packets of 64 bytes that are received, per second, when host 1 sends as fast as it can for a
// second, over the same ways as the other benchmarks, in turn; and processor time per packet.
func BenchmarkPackets(b *testing.B) {
	list := ways(b)
	rates, costs := make([][]float64, len(list)), make([][]float64, len(list))
	for b.Loop() {
		for i, w := range list {
			rate, cost := w.packets(300 * time.Millisecond)
			rates[i], costs[i] = append(rates[i], rate), append(costs[i], cost)
		}
	}
	for i, w := range list {
		b.ReportMetric(median(rates[i])/1000, w.name+"-kpps")
		b.ReportMetric(median(costs[i]), w.name+"-ns")
	}
}

// packets returns how many a sink that only counts has received per second, and the processor's ns
// for each.
func (b *fixture) packets(long time.Duration) (rate, cost float64) {
	c, sink := b.listen(1, 0), b.listen(2, 9300)
	defer c.Close()
	defer sink.Close()
	room := make([]byte, 22)
	for range 3000 { // let the entry become active
		_, _ = c.WriteToUDP(room, addrOf(2, 9300))
	}
	time.Sleep(20 * time.Millisecond)
	before, busy := b.received(2), cpuTime()
	start := time.Now()
	blast(b, c, long)
	gone := time.Since(start)
	n := float64(b.received(2) - before)
	return n / gone.Seconds(), float64(cpuTime()-busy) / n
}

func blast(b testing.TB, c *net.UDPConn, long time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	to := &unix.SockaddrInet4{Port: 9300, Addr: [4]byte{10, 0, 0, 2}}
	room := make([]byte, 22)
	_ = raw.Control(func(fd uintptr) {
		for start := time.Now(); time.Since(start) < long; {
			for range 100 {
				_ = unix.Sendto(int(fd), room, 0, to)
			}
		}
	})
}

// received returns how many packets the device of a host has received.
func (b *fixture) received(i int) (n uint64) {
	b.inside(b.hosts[i-1], func() error {
		data, err := os.ReadFile("/proc/thread-self/net/dev")
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 3 && f[0] == "eth0:" {
				n, err = strconv.ParseUint(f[2], 10, 64)
			}
		}
		return err
	})
	return n
}

// cpuTime returns the time that processors have been busy, in ns.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A new flow: packets of ever new source ports to ten switches, each waited for.
func BenchmarkSetup(b *testing.B) {
	fixture := newFixture(b, 2, Options{})
	list := fixture.chain(10, false)
	fixture.flow(list[0], "priority=200,udp,udp_src=1,actions=drop") // ports count
	sink := fixture.listen(2, 9400)
	ends := make([]*net.UDPConn, 500)
	for i := range ends {
		ends[i] = fixture.listen(1, 20000+i)
	}
	room := make([]byte, 64)
	n := 0
	for b.Loop() {
		if n++; n%len(ends) == 0 {
			b.StopTimer()
			fixture.engine.mu.Lock()
			for _, p := range fixture.engine.attached {
				for _, x := range p.flows {
					fixture.engine.remove(x)
				}
			}
			fixture.engine.mu.Unlock()
			fixture.engine.Barrier(nil)
			b.StartTimer()
		}
		if _, err := ends[n%len(ends)].WriteToUDP(room, addrOf(2, 9400)); err != nil {
			b.Fatal(err)
		}
		if _, err := sink.Read(room); err != nil {
			b.Fatal(err)
		}
	}
}

// A barrier after a change of one entry, while there are entries in the kernel that do not follow
// from it or that all do.
func BenchmarkBarrier(b *testing.B) {
	for _, entries := range []int{0, 1000, 10000} {
		for _, same := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/same=%v", entries, same), func(b *testing.B) {
				fixture := newFixture(b, 2, Options{PerPort: 20000, Idle: time.Hour, MissRate: 1e6})
				s, other := fixture.add(1, 2), fixture.add(2, 2)
				fixture.plug(s, 1, 1, Auto)
				fixture.plug(s, 2, 2, Auto)
				fixture.flow(s, "priority=1,arp,actions=flood")
				fixture.flow(s, "priority=1,udp,udp_dst=1,actions=drop")
				fixture.flow(s, "priority=0,actions=output:2")
				c := fixture.listen(1, 0)
				fixture.at(1, "ip", "neigh", "replace", "10.0.0.2", "lladdr", fixture.macs[1].String(), "dev", "eth0")
				for i := range entries {
					_, _ = c.WriteToUDP([]byte("x"), addrOf(2, 10000+i))
					if i%100 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				fixture.eventually(func() string {
					if n := fixture.engine.Stats().Entries; n < entries {
						return fmt.Sprintf("%d entries of %d", n, entries)
					}
					return ""
				})
				changed := other
				if same {
					changed = s
				}
				var times []float64
				for i := 0; b.Loop(); i++ {
					fixture.flow(changed, fmt.Sprintf("priority=9,udp,udp_dst=%d,actions=drop", 2+i%8))
					start := time.Now()
					fixture.engine.Barrier(changed)
					times = append(times, float64(time.Since(start).Microseconds()))
				}
				b.ReportMetric(median(times), "p50-µs")
			})
		}
	}
}

// What a grace period takes.
func BenchmarkGrace(b *testing.B) {
	for b.Loop() {
		grace()
	}
}

// TCP from host 1 to host 2 while host 3 sends 100,000 packets per second: of one flow, or each of
// another one, which then makes an entry of its own until the port's budget is used up, and user
// space's share after that.
func BenchmarkSweep(b *testing.B) {
	fixture := newFixture(b, 4, Options{})
	s := fixture.add(1, 4)
	for i := 1; i <= 4; i++ {
		fixture.plug(s, uint32(i), i, Auto)
	}
	fixture.flow(s, "priority=9,arp,actions=flood")
	fixture.flow(s, "priority=9,udp,udp_src=1,actions=drop")
	for i := 1; i <= 4; i++ {
		fixture.flow(s, fmt.Sprintf("priority=1,ip,nw_dst=10.0.0.%d,actions=output:%d", i, i))
	}
	fixture.serve()
	dev, _ := fixture.open(2)
	time.Sleep(200 * time.Millisecond)
	names := []string{"alone", "one-flow", "sweep"}
	rates := make([][]float64, len(names))
	for b.Loop() {
		for i := range names {
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				if i > 0 {
					sweep(b, fixture, dev, i == 2, stop)
				}
			}()
			rates[i] = append(rates[i], fixture.throughput("1"))
			close(stop)
			<-done
		}
	}
	for i, name := range names {
		b.ReportMetric(median(rates[i]), name+"-Gbit/s")
	}
	b.Logf("%+v", fixture.engine.Stats())
}

// sweep sends UDP packets from host 3 to host 4.
func sweep(b testing.TB, fixture *fixture, dev *wire.Device, random bool, stop chan struct{}) {
	frame := make([]byte, 60)
	copy(frame, fixture.macs[3][:])
	copy(frame[6:], fixture.macs[2][:])
	copy(frame[12:], []byte{8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 3, 10, 0, 0, 4, 0, 9, 0, 9, 0, 26})
	n := 0
	for start := time.Now(); ; {
		select {
		case <-stop:
			return
		default:
		}
		for due := int(time.Since(start).Seconds() * 100_000); n < due; n++ {
			if random {
				binary.BigEndian.PutUint32(frame[26:], rand.Uint32())
				binary.BigEndian.PutUint16(frame[34:], uint16(n)|2)
			}
			if err := dev.Send(&pipeline.Sent{Data: frame}, &pipeline.Packet{Data: frame}); err != nil {
				b.Error(err)
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// A device that becomes that of a port, and is none any more.
func BenchmarkAttach(b *testing.B) {
	fixture := newFixture(b, 1, Options{})
	s := fixture.add(1, 1)
	for b.Loop() {
		fixture.plug(s, 1, 1, Auto)
		if err := fixture.engine.Detach(s.Port(1)); err != nil {
			b.Fatal(err)
		}
	}
}
