package delayline

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"golang.org/x/sys/unix"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// BenchmarkRTT reports by how much the median round trip of an idle line exceeds twice its
// delay. The kernel at the far end answers, and this end waits in the kernel, so what is
// measured besides the line is one wake-up of the waiting thread.
func BenchmarkRTT(b *testing.B) {
	for _, ms := range []int{0, 1, 5, 20, 100} {
		b.Run(fmt.Sprintf("%dms", ms), func(b *testing.B) {
			delay := time.Duration(ms) * time.Millisecond
			w := newWire(b, topology.Impairment{Delay: topology.Duration(delay)}, Options{})
			var excess []time.Duration
			w.a.within(func() {
				for i := range 1 + max(25, min(500, 4000/(2*ms+3))) {
					rtt, err := icmpEcho(w.b.ip4, uint16(i))
					if err != nil {
						b.Error(err)
						return
					}
					if i > 0 { // the first one resolves the address
						excess = append(excess, rtt-2*delay)
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
			slices.Sort(excess)
			us := func(q float64) float64 { return float64(excess[int(q*float64(len(excess)-1))].Nanoseconds()) / 1000 }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(us(0), "min-µs")
			b.ReportMetric(us(0.5), "median-µs")
			b.ReportMetric(us(0.95), "p95-µs")
			b.ReportMetric(us(1), "max-µs")
		})
	}
}

// icmpEcho sends one echo request (RFC 792) and returns the time until its reply.
func icmpEcho(to netip.Addr, sequence uint16) (time.Duration, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return 0, err
	}
	request := []byte{8, 0, 0, 0, 0x7e, 0x57, byte(sequence >> 8), byte(sequence)}
	binary.BigEndian.PutUint16(request[2:], ^uint16((0x0800+0x7e57+int(sequence))%0xffff))
	reply := make([]byte, 128)
	start := time.Now()
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil {
		return 0, err
	}
	for {
		n, _, err := unix.Recvfrom(fd, reply, 0)
		rtt := time.Since(start)
		if err != nil {
			return 0, err
		}
		if n == 28 && reply[20] == 0 && bytes.Equal(reply[24:28], request[4:8]) {
			return rtt, nil
		}
	}
}

// BenchmarkGoodput reports the goodput of one TCP connection (iperf3), in Mbit/s and relative to
// what the bandwidth allows: 1448 of every 1514 bytes.
func BenchmarkGoodput(b *testing.B) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		b.Skip("needs iperf3")
	}
	const offloadOff = topology.Fraction(1e-12) // a loss that never happens, but rules out super-packets
	for _, mbit := range []int{1, 10, 100, 1000} {
		for _, delay := range []int{0, 20} {
			for _, loss := range []topology.Fraction{0, offloadOff} {
				if loss > 0 && mbit < 100 {
					continue // the same as without the loss
				}
				b.Run(fmt.Sprintf("%dmbit/%dms/offload=%t", mbit, delay, loss == 0 && mbit >= 100), func(b *testing.B) {
					benchmarkGoodput(b, topology.Impairment{Bandwidth: topology.Rate(mbit) * 1e6,
						Delay: topology.Duration(delay) * 1e6, Loss: loss})
				})
			}
		}
	}
}

func benchmarkGoodput(b *testing.B, i topology.Impairment) {
	w := newWire(b, i, Options{})
	for _, s := range []*site{w.a, w.b} {
		s.mustRun("ip", "link", "set", testDevice, "mtu", "1500")
		// 1 Gbit/s × 40 ms is more than a socket may have in flight by default.
		s.mustRun("sysctl", "-q", "net.ipv4.tcp_wmem=4096 65536 67108864", "net.ipv4.tcp_rmem=4096 131072 67108864")
	}
	var server *exec.Cmd
	w.b.within(func() {
		server = exec.Command("iperf3", "-s", "-1", "-B", w.b.ip4.String())
		if err := server.Start(); err != nil {
			b.Fatal(err)
		}
	})
	time.Sleep(200 * time.Millisecond)
	// The first seconds, in which the connection speeds up, are left out.
	out := w.a.mustRun("iperf3", "-c", w.b.ip4.String(), "-J", "-t", strconv.Itoa(3), "-O", "2")
	_ = server.Wait()
	var result struct {
		End struct {
			Sent     struct{ Retransmits int } `json:"sum_sent"`
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		b.Fatal(err)
	}
	s := w.line.Stats()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(result.End.Received.Rate/1e6, "Mbit/s")
	b.ReportMetric(result.End.Received.Rate/float64(i.Bandwidth)*1514/1448, "relative")
	b.ReportMetric(float64(result.End.Sent.Retransmits), "retransmits")
	b.ReportMetric(float64(s[0].Overrun), "overrun")
	b.ReportMetric(float64(s[0].Overflowed.Packets), "overflowed")
	b.ReportMetric(float64(s[0].Late), "late")
}
