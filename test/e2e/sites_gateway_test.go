package e2e

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestSitesGateway proves that a device that takes hosts for a lab does not get out through the
// head while the lab is up, not even by a connection or translation that it had before; that a
// device without a part in the lab does, and that the first one is reached from outside, all the
// time; and that nothing is left of that when the lab goes down, also after its daemon was killed.
func TestSitesGateway(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, device, other, world := s.head, s.others[0], s.others[1], newMachine(t)
	link := exec.Command("ip", "link", "add", "out", "netns", strconv.Itoa(h.init.Process.Pid), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(world.init.Process.Pid))
	if out, err := link.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.sh("ip addr add 10.9.0.1/24 dev out && ip link set out up && sysctl -qw net.ipv4.ip_forward=1 && nft add table ip provisioning && " +
		"nft 'add chain ip provisioning out { type nat hook postrouting priority srcnat; }' && nft 'add rule ip provisioning out oifname \"out\" masquerade'")
	world.sh("ip addr add 10.9.0.2/24 dev eth0 && ip link set eth0 up && ip route add 10.5.0.0/24 via 10.9.0.1")
	for _, m := range s.others {
		m.sh("ip route add 10.9.0.0/24 via 10.5.0.1")
	}
	h.file("rack.yaml", "machines:\n  m1: {ssh: root@10.5.0.2, hosts: 2}\n  m2: {ssh: root@10.5.0.3, hosts: 2}\n")
	h.file("lab.yaml", "nodes: {s1: switch, h1: {host: {on: m1}}, h2: {host: {on: m1}}}\nlinks: [s1 -- h1, s1 -- h2]\n")
	rules := func() string { return h.sh("nft list ruleset") }
	before := rules()
	pings := func(m *machine, options string, want bool) (is bool) {
		for range 60 { // a busy machine answers late
			if is = strings.Contains(m.sh(fmt.Sprintf("ping -c 1 -W 1 %s || :", options)), " 1 received"); is || !want {
				break
			}
		}
		return is
	}
	check := func(when string, out bool) {
		t.Helper()
		for what, c := range map[string]struct{ is, want bool }{
			"m1 gets out":                           {pings(device, "-e 77 10.9.0.2", out), out}, // always the same connection
			"m1 reaches the gateway":                {pings(device, "10.5.0.1", true), true},
			"m2, which has no part in it, gets out": {pings(other, "10.9.0.2", true), true},
			"m1 is reached from outside":            {pings(world, "10.5.0.2", true), true},
		} {
			if c.is != c.want {
				t.Errorf("%s: %s: %t", when, what, c.is)
			}
		}
	}
	check("without a lab", true)
	for _, killed := range []bool{false, true} {
		h.up("lab.yaml", "--on", "rack.yaml", "--name", h.name)
		contains(t, h.ok("ping", "--all", "--lab", h.name), "2 sent, 2 received")
		check("with a lab", false)
		if killed {
			h.killDaemon()
			check("with a lab whose daemon is dead", false)
		}
		h.ok("down", h.name)
		check("after the lab", true)
		if after := rules(); after != before {
			t.Errorf("the firewall has\n%s\nand had\n%s", after, before)
		}
	}
}
