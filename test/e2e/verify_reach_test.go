package e2e

import (
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// reachLab has two switches, a Linux router between them, and hosts with addresses of both
// families.
const reachLab = `
datapath: %s
ipv6: assigned
nodes:
  r1: {router: {datapath: kernel}}
  s[1-2]: switch
  h[1-4]: host
links:
  - s1 -- h[1-2]
  - s2 -- h[3-4]
  - [s1 -- r1, s2 -- r1]
`

// reachRules makes chains of nftables in a node, for a rule that follows.
const reachRules = `nft add table inet t; nft add chain inet t in '{type filter hook input priority 0;}'
nft add chain inet t f '{type filter hook forward priority 0;}'; nft add rule inet t `

// reachFaults are planted one after another, by hand: at a node, and undone there. Of each, verify
// says a line that has all words.
var reachFaults = []struct {
	name, node, do, undo string
	words                []string
}{
	{"no forwarding", "r1", "sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1", []string{"h1, h2 → h3, h4  reach: no answer over IPv4"}},
	{"no forwarding of IPv6", "r1", "sysctl -qw net.ipv6.conf.all.forwarding=0", "sysctl -qw net.ipv6.conf.all.forwarding=1", []string{"h3, h4 → h1, h2  reach: no answer over IPv6"}},
	{"a blackhole", "r1", "ip route add blackhole 10.0.2.0/25", "ip route del blackhole 10.0.2.0/25", []string{"r1 → h3, h4  reach: no answer over IPv4", "r1 has a route that drops it"}},
	{"a rule", "r1", "ip rule add to 10.0.2.0/24 prio 50 blackhole", "ip rule del prio 50", []string{"h1, h2 → h3, h4  reach: no answer over IPv4"}},
	{"another default route", "h1", "ip route replace default via 10.0.1.3", "ip route replace default via 10.0.1.1", []string{"h1 → h3, h4", "no answer over IPv4"}},
	{"a more specific default route", "h1", "ip route add 0.0.0.0/1 via 10.0.1.3", "ip route del 0.0.0.0/1", []string{"h1 → h3, h4", "no answer over IPv4"}},
	{"a wrong neighbour", "h1", "ip neigh replace 10.0.1.3 lladdr 02:00:00:00:00:99 dev h1-eth0 nud permanent", "ip neigh del 10.0.1.3 dev h1-eth0",
		[]string{"h1 → h2  reach: no answer over IPv4", "h1 sends what is for 10.0.1.3 to the MAC address 02:00:00:00:00:99"}},
	{"an address at two nodes", "h4", "ip addr add 10.0.2.2/32 dev lo", "ip addr del 10.0.2.2/32 dev lo", []string{"h4 → h3", "h4 answers at 10.0.2.2, which is h3's"}},
	{"one pair", "r1", reachRules + "f ip saddr 10.0.1.2 ip daddr 10.0.2.3 drop", "nft delete table inet t", []string{"h1 → h4  reach: no answer over IPv4"}},
	{"no TCP", "r1", reachRules + "f meta l4proto tcp drop", "nft delete table inet t", []string{"h1, h2 → h3, h4  reach: no answer by TCP in"}},
	{"no ICMP", "r1", reachRules + "f ip protocol icmp drop", "nft delete table inet t", []string{"h1, h2 → h3, h4  reach: no answer by ICMP over IPv4"}},
	{"no IPv6", "r1", reachRules + "f meta nfproto ipv6 drop", "nft delete table inet t", []string{"h1, h2 → h3, h4  reach: no answer over IPv6"}},
	{"no large packets", "h3", reachRules + "in ip length > 1000 drop", "nft delete table inet t", []string{"→ h3  reach: no answer by TCP over IPv4", "the stream stops after"}},
	{"a refusal", "r1", reachRules + "f ip daddr 10.0.2.2 reject", "nft delete table inet t", []string{"h1, h2 → h3  reach: no answer over IPv4", "r1 answers: port unreachable"}},
}

// reachOf each datapath: what its switches can be made to do, besides.
var reachOf = map[string][]string{ // node, do, undo, words
	"ovs": {"s1", "ovs-ofctl -O OpenFlow13 add-flow s1 'priority=40000,ip,nw_src=10.0.1.2,nw_dst=10.0.1.3,actions=drop'",
		"ovs-ofctl -O OpenFlow13 --strict del-flows s1 'priority=40000,ip,nw_src=10.0.1.2,nw_dst=10.0.1.3'", "reach: no answer over IPv4"},
	"bridge": {"s1", "nft add table bridge t; nft add chain bridge t f '{type filter hook forward priority 0;}'; nft add rule bridge t f ip saddr 10.0.1.2 ip daddr 10.0.1.3 drop",
		"nft delete table bridge t", "reach: no answer over IPv4"},
}

// TestVerifyReach proves that verify finds that nodes do not reach each other as the file promises,
// whatever is why, says whom it concerns and what fails, and finds nothing wrong before and after.
func TestVerifyReach(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			if datapath != "bridge" {
				needFaults(t)
			}
			m := newMachine(t)
			controller := ""
			if datapath == "bridge" {
				controller = "controller: none\n"
			}
			m.up(m.file("reach.yaml", controller+fmt.Sprintf(reachLab, datapath)))
			sound := func() {
				t.Helper()
				eventually(t, "nothing is wrong", func() bool {
					r := m.verified()
					t.Log(r.Says(verify.Wrong))
					return r.Holds() && r.Reach.OK == 20 && r.Reach.Of == 20
				})
			}
			finds := func(name, node, do, undo string, words ...string) {
				t.Helper()
				m.exec(node, do)
				r := m.verified()
				m.exec(node, undo)
				said := r.Says(verify.Wrong)
				found := false
				for _, line := range said {
					all := strings.Contains(line, "reach: ")
					for _, w := range words {
						all = all && strings.Contains(line, w)
					}
					found = found || all
				}
				if !found {
					t.Errorf("%s is not found:\n%s\nwant a line with %q", name, strings.Join(said, "\n"), words)
				}
				if len(r.Reach.Fails) == 0 || r.Reach.OK == r.Reach.Of {
					t.Errorf("%s: %+v", name, r.Reach)
				}
			}
			sound()
			if own := reachOf[datapath]; own != nil {
				finds("one pair at a switch", own[0], own[1], own[2], "h1 → h2", own[3])
			} else {
				for _, f := range reachFaults {
					finds(f.name, f.node, f.do, f.undo, f.words...)
				}
			}
			sound()
			m.ok("down")
		})
	}
}

// TestVerifyRouters proves that nothing is wrong with healthy labs of each kind of router, over
// both families and several ways, and that all pairs are tried.
func TestVerifyRouters(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"embedded", "ovs", "kernel", "frr", "bird"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind != "kernel" && kind != "embedded" {
				needFaults(t)
			}
			m := newMachine(t)
			if kind == "frr" || kind == "bird" {
				m.withDaemons()
			}
			m.up("ring,4", "--nodes", "router", "--datapath", kind, "--ipv6", "assigned")
			eventually(t, "nothing is wrong", func() bool {
				r := m.verified()
				t.Log(r.Says(verify.Wrong), r.Reach)
				return r.Holds() && r.Reach.OK >= 12 && r.Reach.NotPromised == 0
			})
			m.ok("down")
		})
	}
}

// TestSilent proves that a lab whose process is stopped is told to be, by all that ask it
// something, instead of waiting for ever; that it goes on as if nothing had been; and that of a
// node that is frozen verify says that nothing can be tried there, while the others go on.
func TestSilent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("single,3")
	signal := func(name string) {
		m.sh("kill -" + name + " $(grep -o '\"pid\": *[0-9]*' /run/trivet/" + m.name + "/state.json | head -1 | grep -o '[0-9]*')")
	}
	signal("STOP")
	for _, args := range [][]string{{"verify"}, {"inspect"}, {"exec", "h1", "--", "true"}, {"ping", "--all"}, {"link", "set", "h1-s1", "delay=1ms"}} {
		contains(t, m.want(1, args...).err, "does not answer: its process (pid ", "is stopped; kill -CONT ")
	}
	signal("CONT")
	contains(t, m.exec("h1", "echo it goes on"), "it goes on")

	freeze := m.exec("h2", "sed -n 's/^0:://p' /proc/self/cgroup") + "/cgroup.freeze"
	set := func(to string) {
		m.sh("for d in /sys/fs/cgroup/unified /sys/fs/cgroup; do if [ -e $d" + freeze + " ]; then echo " + to + " > $d" + freeze + "; exit; fi; done; exit 1")
	}
	set("1")
	r := m.verified()
	contains(t, strings.Join(r.Says(verify.Wrong), "\n"), "nothing can be tried in h2: h2 is frozen")
	if r.Reach.OK != 2 || r.Reach.Of != 2 {
		t.Errorf("h1 and h3 reach each other all the same: %+v", r.Reach)
	}
	contains(t, m.want(1, "exec", "h2", "--", "true").err, "h2 is frozen")
	set("0")
	contains(t, m.exec("h2", "echo it goes on"), "it goes on")
	m.ok("down")
}
