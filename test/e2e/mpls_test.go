package e2e

import (
	"os"
	"strings"
	"testing"
)

// mplsLab is examples/mpls.yaml with IPv6 beside IPv4.
func mplsLab(t *testing.T) string {
	text, err := os.ReadFile(example("mpls.yaml"))
	must(t, err)
	return strings.NewReplacer("routes: as-written\n", "name: mpls\nroutes: as-written\nipv6: assigned\n",
		"{address: 10.1.0.2/24, gateway: 10.1.0.1}", "{address: [10.1.0.2/24, 'fd01::2/64'], gateway: [10.1.0.1, 'fd01::1']}",
		"{address: 10.2.0.2/24, gateway: 10.2.0.1}", "{address: [10.2.0.2/24, 'fd02::2/64'], gateway: [10.2.0.1, 'fd02::1']}",
		"{address: 10.1.0.1/24}", "{address: [10.1.0.1/24, 'fd01::1/64']}", "{address: 10.2.0.1/24}", "{address: [10.2.0.1/24, 'fd02::1/64']}",
		"{address: 172.16.0.1/30}", "{address: [172.16.0.1/30, 'fd12::1/64']}", "{address: 172.16.0.2/30}", "{address: [172.16.0.2/30, 'fd12::2/64']}",
		"{address: 172.16.0.9/30}", "{address: [172.16.0.9/30, 'fd34::1/64']}", "{address: 172.16.0.10/30}", "{address: [172.16.0.10/30, 'fd34::2/64']}",
		"routes: 10.2.0.0/24 via 172.16.0.2 labels 100", "routes: [10.2.0.0/24 via 172.16.0.2 labels 100, 'fd02::/64 via fd12::2 labels 110']",
		"routes: 10.1.0.0/24 via 172.16.0.9 labels 201", "routes: [10.1.0.0/24 via 172.16.0.9 labels 201, 'fd01::/64 via fd34::1 labels 211']",
		"101 pop via 172.16.0.1]", "101 pop via 172.16.0.1, 110 swap 210 via 172.16.0.6, '111 pop via fd12::1']",
		"201 swap 101 via 172.16.0.5]", "201 swap 101 via 172.16.0.5, '210 pop via fd34::2', 211 swap 111 via 172.16.0.5]",
	).Replace(string(text))
}

// TestMPLSLacking proves that a lab with MPLS is refused, with what is missing, before anything is
// made, where the kernel has none.
func TestMPLSLacking(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/mpls"); err == nil {
		t.Skip("this kernel has MPLS")
	}
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	r := m.want(1, "up", m.file("mpls.yaml", mplsLab(t)))
	contains(t, r.err, "router pe1: this kernel has no MPLS (CONFIG_MPLS_ROUTING)", "modprobe -a mpls_router mpls_iptunnel")
	m.unchanged(before)
}

// TestMPLSFullKernel proves that labels that the file gives are in the kernels: packets of IPv4 and
// IPv6 go through routers without routes for them, with the labels that the file says on each link,
// in Ethernet frames for MPLS, and none on the last; that apply changes them in place, to a stack
// and to a label that the last router pops itself, and back, also when it fails; that they outlive
// a link that was down or is made anew, and the daemon; that save finds nothing to write, or what
// somebody has changed; that verify tells what was changed by hand; and that nothing is left.
func TestMPLSFullKernel(t *testing.T) {
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel without MPLS; make slow PARTS=vm-interfaces runs the test in one that has it")
	}
	m := newMachine(t)
	before := m.snapshot()
	first := mplsLab(t)
	file := m.file("mpls.yaml", first)
	m.up(file)
	all := func(when string) {
		t.Helper()
		for _, to := range []string{"10.2.0.2", "fd02::2"} {
			if r := m.run("exec", "h1", "--", "ping", "-c", "2", "-W", "5", "-i", "0.2", to); r.code != 0 {
				t.Fatalf("%s: h1 does not reach %s: %s", when, to, r.out)
			}
		}
	}
	// sees has a node tell the first packet of a kind at a device while h1 sends to h2.
	sees := func(node, device, kind string, want ...string) {
		t.Helper()
		m.exec(node, "timeout 60 tcpdump -l -e -n -c 1 -i "+device+" '"+kind+"' > "+m.dir+"/seen 2> "+m.dir+"/err & until grep -q listening "+m.dir+"/err; do sleep 0.1; done")
		m.exec("h1", "ping -c 3 -W 5 -i 0.2 10.2.0.2; ping -c 3 -W 5 -i 0.2 fd02::2")
		eventually(t, "a packet is seen at "+device, func() bool { return strings.Contains(m.sh("cat "+m.dir+"/seen"), "ICMP") })
		contains(t, m.sh("cat "+m.dir+"/seen"), want...)
	}
	all("up")
	m.quiet("up")
	contains(t, m.ok("inspect"), "takes labels", "4 labels")
	contains(t, m.exec("p1", "ip -f mpls route"), "100 as to 200 via inet 172.16.0.6 dev p1-eth1 proto static", "111 via inet6 fd12::1 dev p1-eth0 proto static")
	if out := m.exec("p1", "ip route; ip -6 route"); strings.Contains(out, "10.2.0") || strings.Contains(out, "fd02:") {
		t.Error("p1 has a route to h2: ", out)
	}
	sees("p1", "p1-eth1", "mpls 200", "ethertype MPLS unicast (0x8847)", "MPLS (label 200,", "[S], ttl 62) 10.1.0.2 > 10.2.0.2: ICMP echo request")
	sees("p1", "p1-eth1", "mpls 210", "ethertype MPLS unicast (0x8847)", "MPLS (label 210,", "fd01::2 > fd02::2: ICMP6, echo request")
	sees("pe2", "pe2-eth0", "dst 10.2.0.2", "ethertype IPv4 (0x0800)", "10.1.0.2 > 10.2.0.2: ICMP echo request")
	contains(t, m.ok("save", "--dry-run"), "nothing to save")

	// In place: another label, with one below it, which the last router pops itself. Frames that
	// are under way are not lost.
	m.exec("p1", "ip link set p1-eth1 alias same")
	same := func() bool { return strings.Contains(m.exec("p1", "ip link show p1-eth1"), "alias same") }
	second := strings.NewReplacer("100 swap 200 via 172.16.0.6", "100 swap 300/301 via 172.16.0.6", "200 pop via 172.16.0.10", "300 pop via 172.16.0.10",
		"pe2: {router: {", "pe2: {router: {mpls: true, labels: 301 pop dev lo, ").Replace(first)
	contains(t, m.ok("apply", m.file("second.yaml", second), "--dry-run"), "labels", "100 swap 300/301", "mpls")
	m.ok("apply", m.file("second.yaml", second))
	all("apply")
	m.quiet("apply")
	if !same() {
		t.Error("a link is made anew for other labels")
	}
	sees("p1", "p1-eth1", "mpls 300", "MPLS (label 300,", "label 301,", "[S]")
	sees("pe2", "pe2-eth0", "mpls 301", "MPLS (label 301,", "10.1.0.2 > 10.2.0.2: ICMP echo request")
	if out := m.exec("p2", "ip -f mpls route"); strings.Contains(out, "200 ") {
		t.Error("p2 still knows label 200: ", out)
	}
	m.exec("p2", "ip link add theirs type bridge")
	r := m.want(1, "apply", m.file("broken.yaml", strings.Replace(first, "p2: {router: {", "p2: {router: {interfaces: {theirs: {vxlan: 5, local: 172.16.0.6}}, ", 1)))
	contains(t, r.err, "the lab is as it was")
	all("an apply that was undone")
	m.exec("p2", "ip link del theirs")
	m.ok("apply", file)
	all("apply and back")
	if out := m.exec("pe2", "ip -f mpls route; cat /proc/sys/net/mpls/conf/pe2-eth0/input"); strings.Contains(out, "301") || !strings.HasSuffix(strings.TrimSpace(out), "0") {
		t.Error("pe2 still takes labels: ", out)
	}

	m.ok("link", "set", "p1-p2", "down")
	m.ok("link", "set", "pe1-p1", "down")
	m.ok("link", "set", "pe1-p1", "up")
	m.ok("link", "set", "p1-p2", "up")
	all("links that were down")
	m.ok("apply", m.file("anew.yaml", strings.Replace(first, "address: 172.16.0.5/30", "mac: '02:00:00:00:00:99', address: 172.16.0.5/30", 1)))
	if same() {
		t.Error("a link with another MAC address is not made anew")
	}
	all("a link that was made anew")
	m.ok("apply", file)
	m.killDaemon()
	m.ok("resume")
	all("resume")
	m.quiet("resume")

	m.exec("pe1", "ip route replace 10.2.0.0/24 via 172.16.0.2 encap mpls 100/17 proto static")
	contains(t, m.ok("save", "--dry-run"), "10.2.0.0/24 via 172.16.0.2", "labels 100/17")
	m.exec("p1", "ip -f mpls route del 101; ip -f mpls route add 1000 via inet 172.16.0.1")
	looked := m.looked()
	contains(t, strings.Join(looked.State.Wrong, "\n"), "pe1 has another route than when it came up: 10.2.0.0/24 via 172.16.0.2 dev pe1-eth1 encap mpls 100/17, was",
		"p1 no longer has the label 101 was via 172.16.0.1 dev p1-eth0")
	contains(t, strings.Join(looked.Notes, "\n"), "p1 has a label nobody asked for: 1000 via 172.16.0.1 dev p1-eth0")
	m.ok("down")
	m.unchanged(before)
}

// TestLDPFullKernel proves that routers with FRR as their owner has configured it agree upon labels
// by LDP over OSPF, where the topology lets their devices take labels, and that packets go by them.
func TestLDPFullKernel(t *testing.T) {
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel without MPLS; make slow PARTS=vm-interfaces runs the test in one that has it")
	}
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	m.up(example("ldp/ldp.yaml"))
	m.reaches("h1", "h3")
	eventually(t, "r1 gives packets for h3 the label that r2 has told it", func() bool {
		return strings.Contains(m.exec("r1", "ip route show 10.1.3.0/24"), "encap mpls")
	})
	eventually(t, "r2 knows the labels that it has told", func() bool {
		return strings.Contains(m.exec("r2", "ip -f mpls route"), "dev r2-eth1")
	})
	contains(t, m.exec("r2", "vtysh -c 'show mpls ldp neighbor'"), "192.0.2.1", "192.0.2.3", "OPERATIONAL")
	m.exec("r2", "timeout 60 tcpdump -l -e -n -c 1 -i r2-eth0 'mpls' > "+m.dir+"/seen 2> "+m.dir+"/err & until grep -q listening "+m.dir+"/err; do sleep 0.1; done")
	m.reaches("h1", "h3")
	eventually(t, "a packet with a label is seen", func() bool { return strings.Contains(m.sh("cat "+m.dir+"/seen"), "MPLS (label") })
	m.ok("down")
	m.unchanged(before)
}
