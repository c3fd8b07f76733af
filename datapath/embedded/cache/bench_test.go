//go:build linux

package cache

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// chain joins switches in a line between hosts 1 and 2, with 1,000 entries in each table.
func (b *fixture) chain(switches int, route bool) (list []*pipeline.Switch) {
	b.Helper()
	for i := range switches {
		s := b.add(uint64(i+1), 2)
		for n := range 1000 {
			if route {
				b.flow(s, fmt.Sprintf("priority=100,ip,nw_dst=10.1.%d.%d,idle_timeout=600,actions=dec_ttl,output:2", n/256, n%256))
			} else {
				b.flow(s, fmt.Sprintf("priority=100,dl_dst=02:00:00:01:%02x:%02x,idle_timeout=600,actions=output:2", n/256, n%256))
			}
		}
		for host := 1; host <= 2; host++ {
			if route {
				b.flow(s, fmt.Sprintf("priority=100,ip,nw_dst=10.0.0.%d,idle_timeout=600,actions=set_field:02:00:00:00:01:%02x->eth_src,set_field:%v->eth_dst,dec_ttl,output:%d",
					host, i, b.macs[host-1], host))
			} else {
				b.flow(s, fmt.Sprintf("priority=100,dl_dst=%v,idle_timeout=600,actions=output:%d", b.macs[host-1], host))
			}
		}
		b.flow(s, "priority=1,arp,actions=flood")
		if i > 0 {
			if err := b.Network().Join(list[i-1], 2, s, 1); err != nil {
				b.Fatal(err)
			}
		}
		list = append(list, s)
	}
	b.plug(list[0], 1, 1, Auto)
	b.plug(list[len(list)-1], 2, 2, Auto)
	return list
}

// wireFixture is two hosts at the ends of one veth pair.
func wireFixture(t testing.TB) *fixture {
	b := makeHosts(t, 2)
	b.run("ip", "-n", b.hosts[0], "link", "del", "eth0")
	b.run("ip", "-n", b.hosts[1], "link", "del", "eth0")
	b.run("ip", "-n", b.hosts[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.hosts[1])
	for i, ns := range b.hosts {
		b.run("ip", "-n", ns, "addr", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
		b.run("ip", "-n", ns, "link", "set", "eth0", "up")
	}
	return b
}

// nullFixture is two hosts whose devices a program joins that does nothing else.
func nullFixture(t testing.TB) *fixture {
	b := newFixture(t, 2, Options{})
	for i := range 2 {
		if err := b.engine.objs.Devices.Put(uint32(b.index[i]), uint32(b.index[1-i])); err != nil {
			t.Fatal(err)
		}
		if err := b.engine.dev.attach(b.index[i], b.engine.objs.Null.FD(), "null"); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

type way struct {
	name string
	*fixture
}

func ways(b testing.TB) (list []way) {
	list = append(list, way{"veth", wireFixture(b)}, way{"null", nullFixture(b)})
	for _, n := range []int{1, 2, 10, 50} {
		fixture := newFixture(b, 2, Options{})
		fixture.chain(n, false)
		list = append(list, way{fmt.Sprintf("L2-%d", n), fixture})
	}
	for _, n := range []int{10, 50} {
		fixture := newFixture(b, 2, Options{})
		fixture.chain(n, true)
		list = append(list, way{fmt.Sprintf("L3-%d", n), fixture})
	}
	return list
}

// serve starts iperf3 at host 2.
func (b *fixture) serve() {
	cmd := exec.Command("ip", "netns", "exec", b.hosts[1], "iperf3", "-s")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

func (b *fixture) throughput(seconds string) float64 {
	var report struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	out := b.at(1, "iperf3", "-c", "10.0.0.2", "-t", seconds, "-J")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		b.Fatal(err)
	}
	return report.End.Received.BitsPerSecond / 1e9
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2]
}

// TCP from host to host over a veth pair, a bare program, and chains of switches, in turn. An
// iteration is a second of each. Reported are medians, of the ratio to the bare program of the same
// turn, too.
func BenchmarkThroughput(b *testing.B) {
	list := ways(b)
	for _, w := range list {
		w.serve()
	}
	time.Sleep(300 * time.Millisecond)
	rates := make([][]float64, len(list))
	ratios := make([][]float64, len(list))
	for b.Loop() {
		for i, w := range list {
			rates[i] = append(rates[i], w.throughput("1"))
		}
		for i := range list {
			n := len(rates[i]) - 1
			ratios[i] = append(ratios[i], rates[i][n]/rates[1][n])
		}
	}
	for i, w := range list {
		b.ReportMetric(median(rates[i]), w.name+"-Gbit/s")
		b.ReportMetric(median(ratios[i]), w.name+"/null")
	}
}

// Round trips of UDP from host to host over the same ways, a thousand of each in turn.
func BenchmarkRoundTrip(b *testing.B) {
	list := ways(b)
	times := make([][]float64, len(list))
	var ends [][2]*net.UDPConn
	for _, w := range list {
		ends = append(ends, [2]*net.UDPConn{w.listen(1, 7000), w.listen(2, 7000)})
		go echo(ends[len(ends)-1][1])
	}
	for b.Loop() {
		for i := range list {
			times[i] = append(times[i], roundTrips(b, ends[i][0], 1000)...)
		}
	}
	for i, w := range list {
		b.ReportMetric(median(times[i]), w.name+"-µs")
	}
}

func echo(c *net.UDPConn) {
	room := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(room)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(room[:n], from)
	}
}

func roundTrips(b testing.TB, c *net.UDPConn, count int) (list []float64) {
	room := make([]byte, 64)
	for range count {
		start := time.Now()
		if _, err := c.WriteToUDP(room, addrOf(2, 7000)); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(room); err != nil {
			b.Fatal(err)
		}
		list = append(list, float64(time.Since(start).Nanoseconds())/1000)
	}
	return list
}
