package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// trafficJSON is what the daemon says of links, and top.
type trafficJSON struct {
	Period float64
	Links  []linkJSON
	Error  string
}

type linkJSON struct {
	Link, Wire string
	Directions [2]directionJSON
}

// joins are the nodes at the ends, by name.
func (l linkJSON) joins() string {
	a, b := l.Directions[0].From.Node, l.Directions[1].From.Node
	return min(a, b) + " " + max(a, b)
}

type directionJSON struct {
	From, To struct{ Node, Interface string }
	Sent     *struct{ Packets, Bytes uint64 }
	Dropped  uint64
	Queue    *struct {
		Kind                string
		Packets, Bytes      uint64
		Delay               float64
		Limit               int
		Dropped, Full, Lost uint64
		Bandwidth           int64
	}
	Bandwidth   int64
	Rate, Share *float64
	PacketRate  *float64 `json:"packet_rate"`
}

// traffic is what the daemon says of links, without rates.
func (m *machine) traffic() (t trafficJSON) {
	m.t.Helper()
	text := m.sh("curl -sS --unix-socket /run/trivet/" + m.name + "/daemon.sock http://lab/v1/traffic")
	must(m.t, json.Unmarshal([]byte(text), &t))
	return t
}

// direction is what one node sends to another.
func (m *machine) direction(from, to string) directionJSON {
	m.t.Helper()
	for _, l := range m.traffic().Links {
		for _, d := range l.Directions {
			if d.From.Node == from && d.To.Node == to {
				return d
			}
		}
	}
	m.t.Fatalf("nobody says what %s sends to %s", from, to)
	return directionJSON{}
}

// blast makes a host send UDP packets of 1,514 bytes to an address, about 6 Mbit/s of them, until
// the test ends, whatever becomes of its device meanwhile.
func (m *machine) blast(host, address string) {
	m.t.Helper()
	m.startOutput(m.command("nsenter", "--net=/run/trivet/"+m.name+"/ns/net/"+host, "python3", "-c", fmt.Sprintf(`
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(5):
        try: s.sendto(bytes(1472), (%q, 9))
        except OSError: pass
    time.sleep(0.01)
`, address)))
}

// TestQueues proves, on each datapath and for links of the kernel's and of delay lines, that a link
// which is sent three times what it carries is shown to have about as much waiting as its queue
// holds in this direction, in packets, bytes and time, nothing in the other, and drops that grow:
// from the file, after link set, and after resume; that what was dropped before a change of the
// queue is not forgotten; that a link that nothing limits has no queue; and that Prometheus gets
// the same.
func TestQueues(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge", "kernel"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			nodes := "datapath: " + datapath + "\nnodes: {h1: host, h2: host, s1: switch, s2: switch}"
			if datapath == "kernel" {
				nodes = "nodes: {h1: host, h2: host, s1: {router: {datapath: kernel}}, s2: {router: {datapath: kernel}}}"
			}
			m.up(m.file("queues.yaml", "controller: none\n"+nodes+"\nlinks: [h1 -- s1, s1 -- s2, s1 -- h2: {bandwidth: 2mbit, queue: 50}]\n"))
			address := strings.Fields(m.exec("h2", "hostname -I"))[0]
			m.ok("ping", "h1", "h2", "-c", "1", "--timeout", "30s")
			m.blast("h1", address)
			full := func(limit uint64, when string) (last directionJSON) {
				t.Helper()
				eventually(t, fmt.Sprintf("about %d packets wait %s", limit, when), func() bool {
					last = m.direction("s1", "h2")
					return last.Queue.Packets > limit*3/4 && last.Queue.Packets <= limit+10 // what a longer queue held is sent
				})
				q := last.Queue
				if q.Bytes < q.Packets*1400 || q.Bytes > q.Packets*1600 || q.Limit != int(limit) || q.Delay < float64(q.Bytes)*8/2e6*0.999 {
					t.Errorf("%s: %+v", when, *q)
				}
				eventually(t, "more is dropped "+when, func() bool { return m.direction("s1", "h2").Queue.Dropped > q.Dropped+10 })
				if back := m.direction("h2", "s1"); back.Queue == nil || back.Queue.Packets > 1 || back.Queue.Dropped > 0 {
					t.Errorf("%s, what h2 sends: %+v", when, back)
				}
				return last
			}
			first := full(50, "from the file")
			if q := first.Queue; q.Kind != "tbf" || q.Full != q.Dropped || q.Lost != 0 || first.Sent.Packets == 0 {
				t.Errorf("a link of the kernel's: %+v, %+v", first, *q)
			}
			for _, c := range [][2]string{{"h1", "s1"}, {"s1", "s2"}} {
				d := m.direction(c[0], c[1])
				if d.Queue != nil || d.Sent == nil {
					t.Errorf("%v: %+v", c, d)
				}
			}
			contains(t, m.sh("curl -s --unix-socket /run/trivet/"+m.name+"/daemon.sock http://lab/metrics"),
				`trivet_link_backlog_packets{from="s1",`, `trivet_link_dropped_packets_total{from="s1",`, `reason="full"`)
			contains(t, m.ok("top", "--once"), "QUEUED →", "DROPPED →")

			m.ok("link", "set", "s1-h2", "queue=20")
			if now := full(20, "with a shorter queue"); now.Queue.Dropped < first.Queue.Dropped {
				t.Errorf("%d were dropped, and after a change of the queue %d", first.Queue.Dropped, now.Queue.Dropped)
			}
			m.killDaemon()
			m.ok("resume")
			full(20, "after resume")
			m.ok("link", "set", "s1-h2", "queue=50", "delay=5ms")
			if q := full(50, "with a delay").Queue; q.Kind != "line" && q.Kind != "tbf netem" {
				t.Errorf("a link with a delay has a queue of kind %s", q.Kind)
			}
			m.killDaemon()
			m.ok("resume")
			full(50, "with a delay, after resume")
			m.ok("down")
		})
	}
}
