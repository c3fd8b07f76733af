package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// counted are what links have carried, by who sends and who receives.
type counted map[[2]string]struct{ Packets, Bytes uint64 }

// counted returns them; all links must be counted, in both directions.
func (m *machine) counted() counted {
	m.t.Helper()
	out := counted{}
	for _, l := range m.traffic().Links {
		for _, d := range l.Directions {
			if d.Sent == nil {
				m.t.Fatalf("nobody counts what %v sends to %v", d.From, d.To)
			}
			out[[2]string{d.From.Node, d.To.Node}] = *d.Sent
		}
	}
	return out
}

// pingFrame is the length of a ping of 1,000 bytes, as Ethernet.
const pingFrame = 14 + 20 + 8 + 1000

// countsPings pings, and proves that all pings and their answers are counted on a way, in both
// directions, once, and not on another link. Of others, ARP, probes of the controller, hellos and
// what IPv6 says by itself, there are few packets meanwhile, and they are smaller.
func (m *machine) countsPings(when, from, address string, way [][2]string, off [2]string) {
	m.t.Helper()
	const pings, others, small = 200, 60, 400
	was := m.counted()
	m.exec(from, fmt.Sprintf("ping -q -c %d -i 0.002 -s 1000 %s", pings, address))
	eventually(m.t, "all that was sent is counted "+when, func() bool {
		is := m.counted()
		more := func(from, to string, n uint64) bool {
			was, is := was[[2]string{from, to}], is[[2]string{from, to}]
			packets, bytes := is.Packets-was.Packets, is.Bytes-was.Bytes
			if packets > n+others || bytes > n*pingFrame+others*small {
				m.t.Fatalf("%s: %d packets of %d bytes from %s to %s, of %d pings", when, packets, bytes, from, to, n)
			}
			return packets >= n && bytes >= n*(pingFrame-14) // a VXLAN leaves out the Ethernet header of what it sends
		}
		more(off[0], off[1], 0)
		more(off[1], off[0], 0)
		for _, w := range way {
			if !more(w[0], w[1], pings) || !more(w[1], w[0], pings) {
				return false
			}
		}
		return true
	})
}

// TestTraffic proves, of all datapaths, with Trivet's controller and without one, that what a ping
// sends and gets is counted on each link of its way, in both directions, whether devices, a delay
// line or the switches themselves count there, and on no other; after apply and after resume as
// well, without anything counted twice or lost meanwhile; that rates and shares are those of the
// counters; and that top streams them.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, lab string }{
		{"embedded", "datapath: embedded\ncontroller: none"},
		{"embedded, trivet", "datapath: embedded\ncontroller: trivet"},
		{"ovs", "datapath: ovs\ncontroller: none"},
		{"ovs, trivet", "datapath: ovs\ncontroller: trivet"},
		{"bridge", "datapath: bridge\ncontroller: none"},
		{"kernel", "controller: none\ndefaults: {router: {datapath: kernel}}"},
		{"frr", "controller: none\ndefaults: {router: {datapath: frr}}"},
		{"routing nodes", "controller: trivet\ndefaults: {router: {datapath: embedded}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			kind := "switch"
			switch c.name {
			case "frr":
				m.withDaemons()
				fallthrough
			case "kernel", "routing nodes":
				kind = "router"
			}
			lab := c.lab + fmt.Sprintf(`
nodes: {"h[1-3]": host, "s[1-3]": %s}
links: [h1 -- s1, s1 -- s2, s2 -- s3, s3 -- h2: {bandwidth: 20mbit, delay: 1ms}, s3 -- h3]
`, kind)
			m.up(m.file("traffic.yaml", lab))
			address := m.addressOf("h2", false)
			m.exec("h1", "ping -c 2 -W 30 "+address)
			way := [][2]string{{"h1", "s1"}, {"s1", "s2"}, {"s2", "s3"}, {"s3", "h2"}}

			m.countsPings("from the file", "h1", address, way, [2]string{"s3", "h3"})

			before := m.counted()
			m.ok("apply", m.file("traffic.yaml", strings.Replace(lab, "s3 -- h3", "s3 -- h3: {bandwidth: 50mbit}", 1)))
			m.killDaemon()
			m.ok("resume")
			for d, was := range before {
				if is := m.counted()[d]; d != [2]string{"s3", "h2"} && d != [2]string{"h2", "s3"} && is.Packets < was.Packets {
					t.Errorf("%v: %+v before resume, and %+v after it", d, was, is)
				}
			}
			m.countsPings("after resume", "h1", address, way, [2]string{"s3", "h3"})

			top := m.command(trivet, "top", "--json")
			out, err := top.StdoutPipe()
			must(t, err)
			must(t, m.start(top))
			m.startOutput(m.command(trivet, "exec", "h1", "--", "ping", "-q", "-i", "0.01", "-s", "1000", address))
			lines, streamed := bufio.NewScanner(out), 0
			lines.Buffer(nil, 1<<20)
			for streamed < 2 && lines.Scan() {
				var now trafficJSON
				must(t, json.Unmarshal(lines.Bytes(), &now))
				for _, l := range now.Links {
					there, back := l.Directions[0], l.Directions[1]
					if l.joins() != "h2 s3" || there.Rate == nil || min(*there.PacketRate, *back.PacketRate) < 10 {
						continue
					}
					streamed++
					if there.Bandwidth != 20e6 || math.Abs(*there.Rate-*there.Share*20e6) > 1 ||
						*there.Rate < 8*pingFrame*10*0.5 || *there.Rate > 8*pingFrame*1000 {
						t.Errorf("over %v s: %+v, rate %v, share %v", now.Period, there, *there.Rate, *there.Share)
					}
				}
			}
			if streamed < 2 {
				t.Errorf("top has ended: %v", lines.Err())
			}
			must(t, top.Process.Signal(os.Interrupt))
			wait(t, top)
			m.ok("down")
		})
	}
}
