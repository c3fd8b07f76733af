package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// flood makes each of some nodes send to an address as fast as TCP can until the test ends.
func (m *machine) flood(to, address string, from ...string) {
	m.t.Helper()
	for i, node := range from {
		port := fmt.Sprint(5300 + i)
		inside := func(node string, args ...string) {
			m.startOutput(m.command("nsenter", append([]string{"--net=/run/trivet/" + m.name + "/ns/net/" + node}, args...)...))
		}
		inside(to, "iperf3", "-s", "-p", port)
		eventually(m.t, to+" listens at port "+port, func() bool { return strings.Contains(m.exec(to, "ss -Hltn"), ":"+port) })
		inside(node, "iperf3", "-c", address, "-p", port, "-t", "1000")
	}
}

// rate is how many bit/s a host's device has received for a while; the machine's standing still
// makes it no higher.
func (m *machine) rate(host string) float64 {
	m.t.Helper()
	count := func() (n float64) {
		_, err := fmt.Sscan(m.sh("nsenter --net=/run/trivet/"+m.name+"/ns/net/"+host+" awk '/"+host+"-eth0:/ {print $2}' /proc/thread-self/net/dev"), &n)
		must(m.t, err)
		return n
	}
	start := time.Now()
	first := count()
	time.Sleep(300 * time.Millisecond)
	return (count() - first) * 8 / time.Since(start).Seconds()
}

// TestBandwidthTowardsHosts proves that three senders share the bandwidth of a link towards a host,
// where an embedded switch or a routing node is at its other end, however the link came to have it:
// from the file, set while they send, set again after it was taken away, by an edited file, under
// the daemon that has taken the lab over; and that who captures there changes nothing.
func TestBandwidthTowardsHosts(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const text = `
nodes: {s1: switch, r1: router, h1: host, h2: host, h3: host, h4: host, h5: host}
links: [h1 -- s1, h4 -- s1, h5 -- s1, s1 -- r1, {s1 -- h2: {bandwidth: 20mbit}}, {r1 -- h3: {bandwidth: 20mbit}}]
`
	file := m.file("towards.yaml", text)
	m.up(file)
	m.pingAll(20)
	address := func(host string) string { return strings.Fields(m.exec(host, "hostname -I"))[0] }
	m.flood("h2", address("h2"), "h1", "h4", "h5")
	m.flood("h3", address("h3"), "h1", "h4", "h5")
	is := func(mbit float64, when string) {
		t.Helper()
		for _, host := range []string{"h2", "h3"} {
			var rate float64
			eventually(t, host+" receives something "+when, func() bool { rate = m.rate(host); return rate > 0 })
			t.Logf("%s: %s receives %.1f of %.0f Mbit/s", when, host, rate/1e6, mbit)
			if rate > mbit*1.1e6 {
				t.Errorf("%s: %s receives %.1f Mbit/s over a link of %.0f", when, host, rate/1e6, mbit)
			}
		}
	}
	unlimited := func() {
		t.Helper()
		for _, host := range []string{"h2", "h3"} {
			eventually(t, host+" receives more than its link had allowed", func() bool { return m.rate(host) > 40e6 })
		}
	}
	set := func(what string) {
		t.Helper()
		m.ok("link", "set", "s1-h2", what)
		m.ok("link", "set", "r1-h3", what)
	}
	is(20, "as the file says")
	set("bandwidth=none")
	unlimited()
	set("bandwidth=10mbit")
	is(10, "set while they send")
	capture := m.startOutput(m.command(trivet, "capture", "s1-h2", "-w", "/dev/null"))
	capture.waitFor(t, "capturing")
	is(10, "while somebody captures")
	m.killDaemon()
	is(10, "without a daemon")
	m.ok("resume")
	is(10, "after the lab was taken over")
	m.file("towards.yaml", strings.ReplaceAll(text, "20mbit", "5mbit"))
	m.ok("apply", file)
	is(5, "as the edited file says")
	m.file("towards.yaml", strings.ReplaceAll(text, ": {bandwidth: 20mbit}", ": {}"))
	m.ok("apply", file)
	unlimited()
	m.file("towards.yaml", text)
	m.ok("apply", file)
	is(20, "as the file says again")
}
