package e2e

import (
	"encoding/json"
	"strconv"
	"testing"
)

// TestImpairments proves that links are as bad as the file says, by netem or by the delay line,
// over a link between hosts and one between switches: delay, loss (within five standard deviations
// of the binomial distribution) and rate.
func TestImpairments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, datapath, links, link string }{
		{"bridge", "bridge", "[s1 -- h1, s2 -- h2, s1 -- s2]", "s1-s2"},
		{"ovs", "ovs", "[s1 -- h1, s2 -- h2, s1 -- s2]", "s1-s2"},
		{"access of ovs", "ovs", "[s1 -- h1, s2 -- h2, s1 -- s2]", "s1-h1"},
		{"embedded", "embedded", "[s1 -- h1, s2 -- h2, s1 -- s2]", "s1-s2"},
		{"access of embedded", "embedded", "[s1 -- h1, s2 -- h2, s1 -- s2]", "s1-h1"},
		{"hosts", "bridge", "[h1 -- h2, s1 -- s2]", "h1-h2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			link := c.link
			m.up(m.file("i.yaml", "datapath: "+c.datapath+"\nnodes: {s1: switch, s2: switch, h1: host, h2: host}\nlinks: "+c.links+"\n"))
			m.ok("link", "set", link, "delay=20ms")
			m.ok("ping", "h1", "h2", "-c", "1", "--timeout", "30s") // addresses are known from here on
			eventually(t, "pings with 20 ms each way take as long, and not twice", func() bool {
				p := jsonOf[pings](m, "ping", "h1", "h2", "-c", "20", "-i", "10ms", "--timeout", "30s")
				if p.RTT.Min < 40*slewed {
					t.Errorf("20 ms each way: %+v", *p.RTT)
				}
				return p.RTT.Min < 80
			})
			m.ok("link", "set", link, "delay=none", "bandwidth=10mbit")
			eventually(t, "TCP fills 10 Mbit/s when the machine has time for it", func() bool {
				tcp := jsonOf[struct {
					BPS float64 `json:"bits_per_second"`
				}](m, "iperf", "h1", "h2", "-t", "4", "-O", "1")
				t.Logf("10 Mbit/s: %.2f Mbit/s", tcp.BPS/1e6)
				return tcp.BPS > 6e6 && tcp.BPS < 12e6
			})
			// 20 % each way: a reply comes with 0.64.
			m.ok("link", "set", link, "bandwidth=none", "loss=20%")
			for try := 0; m.run("ping", "h1", "h2", "-c", "1", "--timeout", "3s").code != 0; try++ { // until addresses are known
				if try == 20 {
					t.Fatal("no ping of 20 came back")
				}
			}
			const n = 500
			var lossy pings
			for _, timeout := range []string{"2s", "30s"} { // replies that come too late are counted as lost: then again, with patience
				r := m.want(3, "ping", "h1", "h2", "-c", strconv.Itoa(n), "-i", "4ms", "--timeout", timeout, "--json")
				lossy = pings{}
				must(t, json.Unmarshal([]byte(r.out), &lossy))
				if lossy.Received >= 320-54 {
					break
				}
			}
			if lossy.Sent != n || lossy.Received < 320-54 || lossy.Received > 320+54 {
				t.Errorf("of %d pings with a loss of 20 %% each way, %d of %d came back; about 320 should", n, lossy.Received, lossy.Sent)
			}
			m.ok("link", "set", link, "loss=none")
			m.pingAll(2)
		})
	}
}
