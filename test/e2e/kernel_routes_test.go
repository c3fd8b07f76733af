package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestKernelRoutes proves, of Linux routers with and without a controller beside them, that path
// follows a packet through the routes that their kernels have at that moment, through switches on
// the way as the controller knows them, and fails only where the packet is lost, not where nobody
// knows more; and that routes and top say what the kernels have and the devices carry.
func TestKernelRoutes(t *testing.T) {
	for _, controller := range []string{"trivet", "none"} {
		t.Run(controller, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up(m.file("lab.yaml", fmt.Sprintf(`
ipv6: assigned
controller: %s
defaults: {router: {datapath: kernel}}
nodes: {"h[1-3]": host, s1: switch, s2: {switch: {datapath: bridge, controller: none}}, "r[1-3]": router}
links: [h1 -- s1 -- r1 -- r2 -- r3, h2 -- s2 -- r3, h3 -- r2: {bandwidth: 10mbit}]
`, controller)))
			m.pingAll(6) // switches have learned
			path := func(code int, arrives, want string, args ...string) {
				t.Helper()
				contains(t, m.want(code, append([]string{"path"}, args...)...).out, want)
				got := m.run(append([]string{"--json", "path"}, args...)...).out
				if !strings.Contains(got, fmt.Sprintf(`"arrives": %q`, arrives)) {
					t.Errorf("path %v does not say that it arrives: %s:\n%s", args, arrives, got)
				}
			}
			path(0, "yes", "r1 → r2 → h3   2 hops", "r1", "h3")
			path(0, "yes", "r1 → r2 → h3   2 hops", "r1", "h3", "-6")
			path(0, "unknown", "h3 → r2 → r3 → s2 → h2 ? 3 hops   if s2 forward it", "h3", "h2")
			across := "yes"
			if controller == "none" {
				across = "unknown"
			}
			path(0, across, "h1 → s1 → r1 → r2 → h3", "h1", "h3")
			path(0, across, "h3 → r2 → r1 → s1 → h1", "h3", "h1", "--tcp", "80")
			contains(t, m.ok("path", "r1", "h3"), "10.0.3.0/24 via 172.16.0.2 dev r1-eth1 proto static",
				"10.0.3.0/24 dev r2-eth2 proto kernel")
			path(3, "no", "r1 has no route to 192.0.2.7", "r1", "192.0.2.7")

			m.exec("r2", "ip route replace 10.0.1.0/24 via 172.16.0.6")
			path(3, "no", "it goes round in a loop", "h3", "h1")
			m.exec("r2", "ip route replace blackhole 10.0.1.0/24")
			path(3, "no", "a route that drops", "h3", "h1")
			contains(t, m.ok("routes", "r2", "10.0.1.0/24"), "drop", "static")
			m.exec("r2", "ip route add 10.77.0.0/16 via 172.16.0.1 proto bgp")
			contains(t, strings.Join(strings.Fields(m.ok("routes")), " "),
				"r2 10.77.0.0/16 172.16.0.1 r1 r2-eth0 – 0 bgp", "r3-eth1")
			contains(t, m.want(1, "routes", "r2", "--add", "10.9.0.0/16 via 172.16.0.1").err, "trivet exec r2 -- ip route add")
			m.exec("r2", "ip route add 10.88.0.0/16 dev lo")
			path(0, "unknown", "it leaves by lo, which is no link of the lab", "r2", "10.88.0.1")

			pings := m.stream("h3", "0.01", "10.0.2.2")
			patiently(t, "top sees the stream on the link of 10 Mbit/s, in both directions", func() bool {
				for _, l := range jsonOf[trafficJSON](m, "top", "--once").Links {
					if there, back := l.Directions[0], l.Directions[1]; there.From.Interface == "h3-eth0" {
						return there.Bandwidth == 10e6 && there.Rate != nil && *there.Rate > 10_000 && *back.Rate > 10_000
					}
				}
				return false
			})
			pings.end()
		})
	}
}

// TestPathThroughAllRouters proves that path goes on where routing nodes hand a packet to a Linux
// router, and that to another routing node.
func TestPathThroughAllRouters(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("lab.yaml", `
nodes: {"h[1-3]": host, r1: router, r2: {router: {datapath: kernel}}, r3: router}
links: [h1 -- r1 -- r2 -- r3 -- h3, h2 -- r2]
`))
	contains(t, m.ok("path", "h1", "h3"), "h1 → r1 → r2 → r3 → h3   3 hops", "r2       r2-eth0   r2-eth1",
		"10.0.2.0/24 via 172.16.0.6 dev r2-eth1 proto static")
	contains(t, m.ok("path", "r3", "h1"), "r3 → r2 → r1 → h1   3 hops", "r2       r2-eth1   r2-eth0")
	contains(t, m.ok("path", "h2", "10.0.1.1"), "h2 → r2 → r1   2 hops")
	contains(t, m.ok("routes"), "fallback", "r2       10.0.2.0/24")
}
