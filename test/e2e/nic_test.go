package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// withUplink gives the machine two interfaces to a world, with all that one may have: eth0 with the
// default routes, static ones of all kinds, in several tables, some by eth1 as well.
func (m *machine) withUplink() {
	m.t.Helper()
	m.sh(`ip netns add world
		for i in 0 1; do
			ip link add eth$i type veth peer name far$i netns world
			ip -n world link set far$i up
		done
		ip link set eth0 mtu 1400 txqueuelen 77 alias 'to the world' promisc on
		ip link property add dev eth0 altname uplink altname enp1s0
		echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter; echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_ra
		echo 1 >/proc/sys/net/ipv4/conf/eth0/forwarding; echo 33 >/proc/sys/net/ipv4/neigh/eth0/gc_stale_time
		ip link set eth0 up; ip link set eth1 up
		for d in eth0 eth1; do while ! ip -br link show $d | grep -q ' UP '; do sleep 0.02; done; done
		ip addr add 192.0.2.9/24 brd + dev eth0
		ip addr add 192.0.2.10/24 dev eth0
		ip addr add 198.51.100.1 peer 198.51.100.2 dev eth0
		ip addr add 203.0.113.5/28 dev eth0 scope link noprefixroute label eth0:more
		ip addr add 2001:db8::9/64 dev eth0 nodad
		ip addr add 2001:db8:1::9/64 dev eth0 preferred_lft 0
		ip addr add 2001:db8:2::9/128 dev eth0 noprefixroute
		ip addr add 2001:db8:3::9/64 dev eth0 valid_lft 4000 preferred_lft 3000
		ip addr add 192.0.3.9/24 dev eth1; ip addr add 2001:db8:9::9/64 dev eth1
		while ip -6 addr | grep -q tentative; do sleep 0.02; done
		ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
		ip neigh add 2001:db8::1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
		ip route add default via 192.0.2.1 dev eth0 proto static metric 100 src 192.0.2.9 mtu 1300
		ip route add 10.0.0.0/8 via 192.0.2.1 dev eth0
		ip route add 10.5.0.0/16 dev eth0 scope link
		ip route add 10.6.0.0/16 via 172.31.0.1 dev eth0 onlink proto 77
		ip route add 10.7.0.0/16 nexthop via 192.0.2.1 dev eth0 weight 2 nexthop via 192.0.3.1 dev eth1
		ip route add 10.8.0.0/16 via 10.5.0.1 tos 0x10 table 99
		ip route add 10.5.0.1 dev eth0 table 99
		ip route add 10.9.0.0/16 via 192.0.3.1 dev eth1
		ip -6 route add default via 2001:db8::1 dev eth0 metric 50
		ip -6 route add 2001:db8:aa::/48 via fe80::1 dev eth0 proto static
		ip -6 route add 2001:db8:ab::/48 nexthop via 2001:db8::1 dev eth0 nexthop via 2001:db8:9::1 dev eth1
		ip -6 route add 2001:db8:ac::/48 via 2001:db8::1 src 2001:db8:2::9 table 99
		ip -6 route del fe80::/64 dev eth0
		ip rule add iif eth0 lookup 99 pref 1000; ip rule add oif eth0 lookup 99 pref 1001`)
	if m.do(m.command("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "pfifo", "limit", "55")).code != 0 {
		m.t.Log("this kernel has no pfifo")
	}
}

// network is all that ip(8) says of the machine's network, but for lifetimes, which go by, and the
// order of what the kernel itself adds for each interface to a table of IPv6; once the kernel knows
// its own addresses of IPv6 to be nobody else's.
func (m *machine) network() string {
	m.t.Helper()
	return m.sh(`while ip -6 addr | grep -q tentative; do sleep 0.02; done
		for family in -4 -6; do
			ip -d $family addr; ip -d $family rule; ip -d $family neigh show nud permanent
			case $family in -4) ip -d -4 route show table all;; -6) ip -d -6 route show table all | sort;; esac
		done | sed 's/valid_lft [0-9]*sec preferred_lft [0-9]*sec/for a time/; s/expires [0-9]*sec/expires/'
		ip -d link; tc qdisc show dev eth0
		cd /proc/sys/net; grep -r . ipv?/conf/eth0 ipv?/neigh/eth0 2>/dev/null | sort`)
}

// TestUplink proves that an interface of the machine that has addresses of every kind, the default
// routes and others is what it was after down, byte for byte as ip says it; also where the daemon
// was killed, the link went by apply, an apply failed, or a lab did not come up.
func TestUplink(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withUplink()
			before, was := m.snapshot(), m.network()
			text := "datapath: " + datapath + "\nnodes: {\"h[1-2]\": host, s1: switch}\nlinks: [\"s1 -- h[1-2]\", s1 -- interface:eth0: {bandwidth: 10mbit, to: {take: true}}]\n"
			file := m.file("uplink.yaml", text)
			same := func(when string) {
				t.Helper()
				if now := m.network(); now != was {
					t.Fatalf("%s:\n%s", when, lineDiff(was, now))
				}
			}
			m.up(file)
			m.exec("s1", "ip link show eth0")
			contains(t, m.ok("down"), "nothing left")
			same("after down")

			m.up(file)
			m.killDaemon()
			contains(t, m.ok("down"), "nothing left")
			same("after down without a daemon")

			m.up(file)
			without := strings.Replace(text, ", s1 -- interface:eth0: {bandwidth: 10mbit, to: {take: true}}", "", 1)
			m.ok("apply", m.file("uplink.yaml", without))
			same("when the link is gone by apply")
			bad := strings.Replace(text, "s1: switch", "s1: switch, h3: {host: {start: exit 7, address: 10.0.0.9/24}}", 1)
			m.want(1, "apply", m.file("uplink.yaml", bad))
			same("after an apply that failed")
			m.ok("apply", m.file("uplink.yaml", text))
			m.ok("down")
			same("after down of what apply took")

			m.want(1, "up", "--name", m.name, m.file("uplink.yaml", bad))
			same("after an up that failed")
			m.unchanged(before)
		})
	}
}

// lineDiff lists the lines that are in one text only, or the first that stands elsewhere.
func lineDiff(before, now string) string {
	a, b := strings.Split(before, "\n"), strings.Split(now, "\n")
	if d := snapshot(b).differs(a); d != "" {
		return d
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d was\n%s\nand is\n%s", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines were there, now %d", len(a), len(b))
}

// TestUplinkOfRouter proves that an interface of the machine can be a host's or a Linux router's
// own, also with FRR: it has the addresses and the rate that the file gives and its own name,
// traffic leaves by it, it stays down where the link is, and after down it is what it was.
func TestUplinkOfRouter(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"host", "{router: {datapath: kernel}}", "{router: {datapath: frr, ospf: area 0}}"} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withUplink()
			m.sh("ip -n world addr add 192.0.2.1/24 dev far0")
			before, was := m.snapshot(), m.network()
			text := "nodes: {n1: " + node + ", h2: host}\nlinks:\n  - n1 -- interface:eth0: {bandwidth: 10mbit, from: {address: 192.0.2.7/24}, to: {take: true}}\n  - n1 -- h2\n"
			file := m.file("router.yaml", text)
			m.up(file)
			contains(t, m.exec("n1", "ip -4 addr show eth0"), "192.0.2.7/24")
			m.exec("n1", "ping -c 1 -W 5 192.0.2.1")
			m.ok("link", "set", "n1-eth0", "down")
			if now := m.exec("n1", "ip link show eth0"); strings.Contains(now, ",UP") {
				t.Errorf("link set did not set it down:\n%s", now)
			}
			m.ok("link", "set", "n1-eth0", "up")
			m.exec("n1", "ping -c 1 -W 5 192.0.2.1")
			m.ok("apply", m.file("router.yaml", strings.Replace(text, "take: true}", "take: true}, down: true", 1)))
			m.ok("apply", m.file("router.yaml", strings.NewReplacer("take: true}", "take: true}, down: true", "h2: host", "h2: host, h3: host").Replace(text)+"  - n1 -- h3\n"))
			if now := m.exec("n1", "ip link show eth0"); strings.Contains(now, ",UP") {
				t.Errorf("the file says that it is down:\n%s", now)
			}
			contains(t, m.ok("down"), "nothing left")
			if now := m.network(); now != was {
				t.Errorf("after down:\n%s", lineDiff(was, now))
			}
			m.want(1, "up", m.file("named.yaml", strings.Replace(text, "from: {", "from: {interface: wan0, ", 1)))
			m.unchanged(before)
		})
	}
}

// TestUplinkNotMeant proves that an interface which the machine uses is not taken by a file that
// does not say that this is meant, at up or by apply; that the error says what it is used for and
// what to write; and that one which is part of something else there never is.
func TestUplinkNotMeant(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withUplink()
	m.sh("ip link add bare type veth peer name bare1; ip link set bare up; ip link set bare1 up; ip link add eth1.0 link eth1 type macvlan; ip link add br0 type bridge; ip link set bare1 master br0")
	before, was := m.snapshot(), m.network()
	text := "controller: none\nnodes: {\"h[1-2]\": host, s1: switch}\nlinks:\n  - s1 -- h[1-2]\n"
	m.up(m.file("uplink.yaml", text))
	for device, says := range map[string]string{
		"eth0":                      "it has the default route and the addresses",
		"eth1":                      "it has the address 192.0.3.9/24 and 2001:db8:9::9/64",
		"eth1: {to: {take: true}}":  "carries eth1.0; remove eth1.0 first",
		"bare1: {to: {take: true}}": "is part of br0; take it out first:  sudo ip link set bare1 nomaster",
	} {
		file := m.file("uplink.yaml", text+"  - s1 -- interface:"+device+"\n")
		r := m.want(1, "apply", file)
		contains(t, r.err, says)
		r = m.want(1, "up", "--name", m.name+"b", file)
		contains(t, r.err, says, "uplink.yaml:5:")
		if !strings.Contains(device, "take") {
			contains(t, r.err, "to: {take: true}")
		}
		if now := m.network(); now != was {
			t.Errorf("%s:\n%s", device, lineDiff(was, now))
		}
	}
	m.ok("apply", m.file("uplink.yaml", text+"  - s1 -- interface:bare\n")) // nobody uses it
	m.ok("down")
	m.unchanged(before)
}

// TestUplinkLost proves that what cannot be restored is said, instead of that nothing is left: a
// route whose gateway nobody knows any more, and an address whose time is over.
func TestUplinkLost(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"daemon", "command"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withUplink()
			m.sh("ip addr add 192.0.2.77/32 dev eth0 valid_lft 30 preferred_lft 30; ip route add 10.99.0.0/16 via 192.0.3.77 dev eth1; ip route add 10.98.0.0/16 nexthop via 192.0.2.1 dev eth0 nexthop via 192.0.3.1 dev eth1")
			m.up(m.file("uplink.yaml", "controller: none\nnodes: {h1: host, s1: switch}\nlinks: [s1 -- h1, s1 -- interface:eth0: {to: {take: true}}]\n"))
			m.sh("ip link del eth1; sleep 30.1")
			if by == "command" {
				m.killDaemon()
			}
			said := m.ok("down")
			contains(t, said, "the machine is not as it was", "eth0: the route 10.98.0.0/16 could not be restored", "eth0: the address 192.0.2.77/32 could not be restored: it has expired")
			if strings.Contains(said, "nothing left") {
				t.Error(said)
			}
			contains(t, m.sh("ip route"), "default via 192.0.2.1 dev eth0")
		})
	}
}
