//go:build linux

package cache

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Packets of 64 bytes that are received, per second, when host 1 sends as fast as it can for a second, over the
// same ways as the other benchmarks, in turn; and processor time per packet.
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

// packets returns how many a sink that only counts has received per second, and the processor's ns for each.
func (b *bed) packets(long time.Duration) (rate, cost float64) {
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
func (b *bed) received(i int) (n uint64) {
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
	bed := newBed(b, 2, Options{})
	list := bed.chain(10, false)
	bed.flow(list[0], "priority=200,udp,udp_src=1,actions=drop") // ports count
	sink := bed.listen(2, 9400)
	ends := make([]*net.UDPConn, 500)
	for i := range ends {
		ends[i] = bed.listen(1, 20000+i)
	}
	room := make([]byte, 64)
	n := 0
	for b.Loop() {
		if n++; n%len(ends) == 0 {
			b.StopTimer()
			bed.engine.mu.Lock()
			for _, p := range bed.engine.attached {
				for _, x := range p.flows {
					bed.engine.remove(x)
				}
			}
			bed.engine.mu.Unlock()
			bed.engine.Barrier(nil)
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

// A barrier after a change of one entry, while there are entries in the kernel that do not follow from it or
// that all do.
func BenchmarkBarrier(b *testing.B) {
	for _, entries := range []int{0, 1000, 10000} {
		for _, same := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/same=%v", entries, same), func(b *testing.B) {
				bed := newBed(b, 2, Options{PerPort: 20000, Idle: time.Hour, MissRate: 1e6})
				s, other := bed.add(1, 2), bed.add(2, 2)
				bed.plug(s, 1, 1, Auto)
				bed.plug(s, 2, 2, Auto)
				bed.flow(s, "priority=1,arp,actions=flood")
				bed.flow(s, "priority=1,udp,udp_dst=1,actions=drop")
				bed.flow(s, "priority=0,actions=output:2")
				c := bed.listen(1, 0)
				bed.at(1, "ip", "neigh", "replace", "10.0.0.2", "lladdr", bed.macs[1].String(), "dev", "eth0")
				for i := range entries {
					_, _ = c.WriteToUDP([]byte("x"), addrOf(2, 10000+i))
					if i%100 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				bed.eventually(func() string {
					if n := bed.engine.Stats().Entries; n < entries {
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
					bed.flow(changed, fmt.Sprintf("priority=9,udp,udp_dst=%d,actions=drop", 2+i%8))
					start := time.Now()
					bed.engine.Barrier(changed)
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
