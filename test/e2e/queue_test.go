package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// loaded has TCP fill the way between two hosts for some seconds (Reno, which does so until
// something is lost; CUBIC stops before), and says how fast that was, in bit/s, and what a ping
// takes meanwhile, in ms: the median of the later half.
func (m *machine) loaded(from, to string) (rate, rtt float64) {
	m.t.Helper()
	type answer struct {
		BPS float64 `json:"bits_per_second"`
	}
	done := make(chan result, 1)
	go func() {
		done <- m.run("iperf", from, to, "-t", "5", "-O", "1", "--congestion-control", "reno", "--json")
	}()
	var waits []float64
	for {
		select {
		case r := <-done:
			var a answer
			if err := json.Unmarshal([]byte(r.out), &a); r.code != 0 || err != nil {
				m.t.Fatalf("iperf %s %s: %s %s", from, to, r.out, r.err)
			}
			if len(waits) < 2 { // each the median of three, which take 4 s behind a long queue
				m.t.Fatalf("%d pings while TCP was sending", len(waits))
			}
			later := waits[len(waits)/2:]
			slices.Sort(later)
			return a.BPS, later[len(later)/2]
		default:
			r := m.run("ping", from, to, "-c", "3", "-i", "100ms", "--timeout", "10s", "--json")
			var p pings
			if json.Unmarshal([]byte(r.out), &p) == nil && p.RTT != nil {
				waits = append(waits, p.RTT.Median)
			}
		}
	}
}

// leaving is what the lab says of packets that left an end of a link.
func (m *machine) leaving(link string, end int) (line struct{ In, Out, Dropped, Marked, Duplicated, Corrupted, Reordered struct{ Packets int } }) {
	m.t.Helper()
	for _, w := range jsonOf[struct {
		Wires []struct {
			Link string
			Ends []struct{ Line json.RawMessage }
		}
	}](m, "inspect").Wires {
		if w.Link == link && w.Ends[end].Line != nil {
			must(m.t, json.Unmarshal(w.Ends[end].Line, &line))
			return line
		}
	}
	m.t.Fatalf("there is no delay line %s", link)
	return line
}

// netem says whether the kernel impairs the lab's links, in place of delay lines.
func (m *machine) netem() bool { return strings.Contains(m.ok("inspect"), "impairments by netem") }

// TestQueueManagement proves, with each datapath, that a queue which FQ-CoDel manages keeps a ping
// short beside TCP that fills the link, where a long queue does not, and takes no rate for that;
// that hosts that understand marks get them in place of drops, in both directions; and that all
// this holds however it is set: by the file, link set, apply, and after resume.
func TestQueueManagement(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := func(queue string) string {
				return m.file("q.yaml", "datapath: "+datapath+"\nnodes: {s1: switch, h1: host, h2: host}\nlinks: [h1 -- s1, {s1 -- h2: {bandwidth: 10mbit, delay: 1ms, queue: "+queue+"}}]\n")
			}
			long := func(when, from, to string) {
				t.Helper()
				eventually(t, "packets wait "+when, func() bool {
					rate, rtt := m.loaded(from, to)
					t.Logf("%s: %.1f Mbit/s, %.1f ms", when, rate/1e6, rtt)
					return rtt > 200
				})
			}
			short := func(when, from, to string) {
				t.Helper()
				eventually(t, "packets do not wait, and the link is full, "+when, func() bool {
					rate, rtt := m.loaded(from, to)
					t.Logf("%s: %.1f Mbit/s, %.1f ms", when, rate/1e6, rtt)
					return rtt < 50 && rate > 7e6
				})
			}
			m.up(file("fq_codel"))
			short("by the file", "h1", "h2")
			short("back", "h2", "h1")
			m.ok("link", "set", "s1-h2", "queue=1000")
			contains(t, m.ok("inspect"), "1000")
			if !m.netem() { // else TCP sees how much of its own waits in the kernel, and sends no more
				long("with 1000 packets", "h1", "h2")
			}
			m.ok("apply", file("{codel: {target: 5ms, ecn: true}}"))
			contains(t, m.ok("inspect"), "codel,ecn")
			for _, h := range []string{"h1", "h2"} {
				m.exec(h, "sysctl -qw net.ipv4.tcp_ecn=1")
			}
			marked := func(when string, end int, from, to string) {
				t.Helper()
				before := m.leaving("s1-h2", end)
				m.ok("iperf", from, to, "-t", "4")
				after := m.leaving("s1-h2", end)
				if after.Marked.Packets <= before.Marked.Packets {
					t.Errorf("%s: %+v, before %+v: no packet was marked", when, after, before)
				}
			}
			if !m.netem() {
				marked("apply", 0, "h1", "h2")
				marked("apply, back", 1, "h2", "h1")
			}
			m.killDaemon()
			m.ok("resume")
			if !m.netem() {
				marked("resumed", 0, "h1", "h2")
			} else {
				contains(t, m.exec("h2", "tc qdisc show dev h2-eth0"), "qdisc netem", "qdisc tbf", "qdisc codel", "ecn")
			}
			m.ok("link", "set", "s1-h2", "queue=none", "bandwidth=none")
			m.pingAll(2)
		})
	}
}

// TestRareImpairments proves that packets come twice, are damaged and overtake each other as a
// file says and as link set says, that verify finds nothing wrong with such a link, and that what
// does not go together is refused and changes nothing.
func TestRareImpairments(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("r.yaml", "nodes: {s1: switch, h1: host, h2: host}\nlinks: [h1 -- s1, {s1 -- h2: {delay: 20ms, reorder: 30%, from: {duplicate: 40%}}}]\n"))
	m.ok("ping", "h1", "h2", "-c", "1", "--timeout", "30s")
	h2 := m.addressOf("h2", false)
	contains(t, m.exec("h1", "ping -c 100 -i 0.01 -w 60 "+h2), "duplicates")
	p := jsonOf[pings](m, "ping", "h1", "h2", "-c", "100", "-i", "10ms", "--timeout", "30s")
	if p.RTT.Min > 30 || p.RTT.Max < 40*slewed {
		t.Errorf("with 30 %% of packets ahead of a delay of 20 ms: %+v", *p.RTT)
	}
	m.ok("link", "set", "s1-h2", "duplicate=none", "reorder=none", "corrupt=30%", "corrupt_correlation=10%")
	contains(t, m.ok("inspect"), "corrupt 30%, corrupt correlation 10%")
	damaged := m.exec("h1", "ping -c 100 -i 0.01 -W 1 "+h2+" || true") // to and fro about half of them
	if strings.Contains(damaged, " 0% packet loss") {
		t.Errorf("30 %% are damaged each way: %s", damaged)
	}
	if !m.netem() {
		if there, back := m.leaving("s1-h2", 0), m.leaving("s1-h2", 1); there.Duplicated.Packets == 0 || there.Reordered.Packets == 0 || there.Corrupted.Packets == 0 ||
			back.Duplicated.Packets > 0 || back.Reordered.Packets == 0 || back.Corrupted.Packets == 0 {
			t.Errorf("there %+v, back %+v", there, back)
		}
	}
	m.ok("link", "set", "s1-h2", "corrupt=1%", "duplicate=2%", "corrupt_correlation=none")
	if r := m.run("verify", "--quick"); strings.Contains(r.out, "were lost, which is not") || strings.Contains(r.out, "the delay varies") {
		t.Errorf("verify: %s", r.out)
	}
	contains(t, m.want(1, "link", "set", "s1-h2", "reorder=10%", "delay=none").err, "there is no delay")
	contains(t, m.want(1, "link", "set", "s1-h2", "queue=codel,flows=9").err, `no parameter "flows"`)
	contains(t, m.ok("inspect"), "20ms")
}
