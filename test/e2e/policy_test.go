package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestPolicy proves that rules of policy routing, routes in tables of their own and permanent
// neighbours are in the kernels as the file says, of IPv4 and IPv6, and decide where packets go;
// that apply changes only what differs and takes away what is gone, also when it fails and is
// undone; that they outlive a link that was down or is made anew, and the daemon; and that save
// finds nothing to write, and verify tells what was taken away by hand.
func TestPolicy(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	text, err := os.ReadFile(example("policy.yaml"))
	must(t, err)
	first := strings.NewReplacer("routes: as-written\n", "name: policy\nroutes: as-written\nipv6: assigned\n",
		"to 198.51.100.0/24 prohibit priority 500]", "to 198.51.100.0/24 prohibit priority 500, not from all fwmark 0x7/0xff iif lo ipproto tcp dport 80-443 table 1000 suppress_prefixlength 0 priority 600]",
		"10.3.0.0/24 via 172.16.0.6 table 100]", "10.3.0.0/24 via 172.16.0.6 table 100, 10.9.0.0/16 via 192.0.2.9 dev r1-eth2 onlink src 10.1.0.1 table 1000, 'fd09::/64 dev r1-eth2 table 1000']",
		`mac: "02:00:00:00:00:03"`, `mac: "02:00:00:00:00:03", neighbors: fd03::7 lladdr 02:00:00:00:00:07 dev h3-eth0`, "neighbors: 10.3.0.2 lladdr 02:00:00:00:00:03", "neighbors: [10.3.0.2 lladdr 02:00:00:00:00:03, fd03::2 lladdr 02:00:00:00:00:03 dev r2-eth2]").Replace(string(text))
	file := m.file("policy.yaml", first)
	m.up(file)
	way := func(when, host, table, gateway string) {
		t.Helper()
		if r := m.run("exec", host, "--", "ping", "-c", "2", "-W", "5", "-i", "0.2", "10.3.0.2"); r.code != 0 {
			t.Fatalf("%s: %s does not reach h3: %s", when, host, r.out)
		}
		address := map[string]string{"h1": "10.1.0.2 iif r1-eth0", "h2": "10.2.0.2 iif r1-eth1"}[host]
		contains(t, m.exec("r1", "ip route get 10.3.0.2 from "+address), "via "+gateway, table)
	}
	all := func(when string) {
		t.Helper()
		way(when, "h1", "table 100", "172.16.0.6")
		way(when, "h2", "", "172.16.0.2")
		contains(t, m.exec("r1", "ip rule"), "500:\tfrom all to 198.51.100.0/24 prohibit", "10000:\tfrom 10.1.0.0/24 lookup 100",
			"600:\tnot from all fwmark 0x7/0xff iif lo ipproto tcp dport 80-443 lookup 1000 suppress_prefixlength 0")
		contains(t, m.exec("r1", "ip -6 rule"), "600:\tnot from all fwmark 0x7/0xff iif lo ipproto tcp dport 80-443 lookup 1000 suppress_prefixlength 0")
		contains(t, m.exec("r1", "ip route show table 1000"), "10.9.0.0/16 via 192.0.2.9 dev r1-eth2 proto static src 10.1.0.1 onlink")
		contains(t, m.exec("r1", "ip -6 route show table 1000"), "fd09::/64 dev r1-eth2 proto static")
		contains(t, m.exec("r2", "ip neigh show nud permanent"), "10.3.0.2 dev r2-eth2 lladdr 02:00:00:00:00:03")
		contains(t, m.exec("r2", "ip -6 neigh show nud permanent"), "fd03::2 dev r2-eth2 lladdr 02:00:00:00:00:03")
		contains(t, m.exec("h3", "ip -6 neigh show nud permanent"), "fd03::7 dev h3-eth0 lladdr 02:00:00:00:00:07")
		m.quiet(when)
	}
	all("up")
	contains(t, m.ok("inspect"), "3 rules", "2 permanent neighbours")
	contains(t, m.ok("save", "--dry-run"), "nothing to save")
	m.exec("r1", "ip rule add from 203.0.113.7 table 7 priority 77 && ip neigh add 10.1.0.9 lladdr 02:00:00:00:00:77 dev r1-eth0 nud permanent")

	// Another rule and another neighbour in place of one; what somebody has added stays.
	second := strings.NewReplacer("from 10.1.0.0/24 table 100,", "from 10.2.0.0/24 table 100,", "[10.3.0.2 lladdr 02:00:00:00:00:03, ", "[10.3.0.77 lladdr 02:00:00:00:00:03, ",
		"10.3.0.0/24 via 172.16.0.6 table 100, ", "10.3.0.0/24 via 172.16.0.6 table 100 metric 5, ").Replace(first)
	contains(t, m.ok("apply", m.file("second.yaml", second), "--dry-run"), "rules", "from 10.2.0.0/24 table 100", "neighbors", "10.3.0.77 lladdr")
	m.ok("apply", m.file("second.yaml", second))
	if rules := m.exec("r1", "ip rule"); strings.Contains(rules, "from 10.1.0.0/24") || !strings.Contains(rules, "from 10.2.0.0/24 lookup 100") || !strings.Contains(rules, "77:\tfrom 203.0.113.7 lookup 7") {
		t.Errorf("rules after apply: %s", rules)
	}
	if is := m.exec("r2", "ip neigh show nud permanent"); strings.Contains(is, "10.3.0.2 ") || !strings.Contains(is, "10.3.0.77 ") {
		t.Errorf("neighbours after apply: %s", is)
	}
	if is := m.exec("r1", "ip route show table 100"); !strings.Contains(is, "metric 5") || strings.Count(is, "10.3.0.0/24") != 1 {
		t.Errorf("table 100 after apply: %s", is)
	}
	// A change that fails is undone: a node cannot take a device that is not there.
	m.exec("r2", "ip link add theirs type bridge")
	r := m.want(1, "apply", m.file("broken.yaml", strings.Replace(first, "  r2:\n    router:\n", "  r2:\n    router:\n      interfaces: {theirs: {vxlan: 5, local: 172.16.0.2}}\n", 1)))
	contains(t, r.err, "the lab is as it was")
	contains(t, m.exec("r1", "ip rule"), "from 10.2.0.0/24 lookup 100")
	m.exec("r2", "ip link del theirs")
	m.exec("r1", "ip rule del priority 77; ip neigh del 10.1.0.9 dev r1-eth0")
	m.ok("apply", file)
	all("apply and back")

	m.ok("link", "set", "h1-r1", "delay=1ms") // another kind of device, where the kernel has no netem
	m.ok("link", "set", "r2-h3", "delay=1ms")
	for _, host := range []string{"h1", "h2"} {
		way("a delay", host, "", "172.16.0")
	}
	m.ok("link", "set", "h1-r1", "delay=none")
	m.ok("link", "set", "r2-h3", "delay=none")
	all("no delay")
	m.ok("link", "set", "r2-h3", "down")
	m.ok("link", "set", "r1-r2", "down")
	m.ok("link", "set", "r1-r2", "up")
	m.ok("apply", m.file("while.yaml", strings.Replace(strings.Replace(first, "fd03::7 lladdr", "fd03::8 lladdr", 1), "  - r2 -- h3: {", "  - r2 -- h3: {down: true, ", 1)))
	m.ok("link", "set", "r2-h3", "up")
	if is := m.exec("h3", "ip -6 neigh show nud permanent"); !strings.Contains(is, "fd03::8 ") || strings.Contains(is, "fd03::7 ") {
		t.Errorf("neighbours that changed while their link was down: %s", is)
	}
	m.ok("apply", file)
	all("links that were down")
	m.ok("apply", m.file("down.yaml", strings.Replace(first, "  - r2 -- h3: {", "  - r2 -- h3: {down: true, delay: 1ms, ", 1)))
	m.ok("link", "set", "r2-h3", "delay=none")
	m.ok("link", "set", "r2-h3", "up")
	all("a link that was made anew while it was down")
	m.killDaemon()
	m.ok("resume")
	all("resume")

	m.exec("r1", "ip route add 10.77.0.0/16 via 172.16.0.6 table 100; ip route add 10.78.0.0/16 via 172.16.0.6 table 101")
	if said := m.ok("save", "--dry-run"); !strings.Contains(said, "10.77.0.0/16 via 172.16.0.6 table 100") || strings.Contains(said, "10.78") {
		t.Errorf("routes by hand in tables that the file names, and in others: %s", said)
	}
	m.exec("r1", "ip rule del priority 500 && ip route del 10.3.0.0/24 table 100")
	m.exec("r2", "ip neigh del 10.3.0.2 dev r2-eth2")
	contains(t, strings.Join(m.looked().State.Wrong, "\n"), "r1 no longer has the rule ipv4 500:", "r1 no longer has the route 10.3.0.0/24", "r2 no longer has the permanent neighbour 10.3.0.2")
	m.ok("down")
	m.unchanged(before)
}
