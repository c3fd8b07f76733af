package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSave proves that what somebody has configured by hand in a running lab is in its file after
// save, and in the lab that this file gives: links, addresses and routes of both families, flow
// entries of embedded and of Open vSwitch's switches, with and without a controller, rules of
// iptables, ip6tables and nft, settings of Open vSwitch; also after the daemon has died and been
// resumed. Comments of the file stay, and a second save writes nothing. An edited configuration
// changes its node alone; one that would do more than configure it changes nothing.
func TestSave(t *testing.T) {
	for _, program := range []string{"ovs-ofctl", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	t.Parallel()
	m := newMachine(t)
	file := m.file("lab.yaml", `# by hand
ipv6: assigned
nodes:
  h[1-3]: host  # three
  s1: switch
  s2: {switch: {datapath: ovs}}
  s3: {switch: {datapath: ovs, controller: none}}
  s4: {switch: {datapath: embedded, controller: none}}
  r1: {router: {datapath: kernel}}
links:
  - s1 -- h[1-3]: {delay: 1ms}  # slow
  - s1 -- s2
  - s2 -- s3
  - r1 -- s1
  - s4 -- s1
`)
	dir := filepath.Dir(file)
	m.up(file)
	contains(t, m.ok("save", "--dry-run"), "nothing to save")

	m.ok("link", "set", "s1-h2", "delay=2ms", "loss=1%", "duplicate=2%", "loss_correlation=10%")
	m.ok("link", "set", "s2-s3", "down")
	m.exec("h1", "ip addr add 192.168.7.1/24 dev h1-eth0; ip addr add fd77::1/64 dev h1-eth0 nodad")
	m.exec("h1", "ip route add 172.16.0.0/12 via 192.168.7.254; ip -6 route add fd88::/32 via fd77::9")
	m.exec("s1", "ovs-ofctl add-flow s1 priority=900,ip,nw_dst=10.66.0.1,actions=drop")
	m.ok("flows", "s1", "--add", "priority=901,ip,nw_dst=10.66.0.2,actions=drop")
	m.exec("s2", "ovs-ofctl add-flow s2 priority=902,ip,nw_dst=10.66.0.3,actions=drop; ovs-vsctl set interface s2-eth2 ingress_policing_rate=5000")
	m.exec("s3", "ovs-ofctl del-flows s3; ovs-ofctl add-flow s3 priority=5,in_port=1,actions=drop; ovs-vsctl set port s3-eth1 tag=10")
	m.exec("s4", "ovs-ofctl add-flow s4 priority=903,ip,nw_dst=10.66.0.4,actions=drop")
	m.exec("r1", "nft 'add table inet mine; add chain inet mine c { type filter hook input priority 0; policy accept; }; add rule inet mine c iif r1-eth0 tcp dport 80 drop'")
	_, err := exec.LookPath("iptables-restore")
	xtables := err == nil
	if xtables {
		m.exec("h1", "iptables -A INPUT -p tcp --dport 22 -j DROP; ip6tables -A OUTPUT -p udp --dport 9 -j DROP")
	}
	before, _ := os.ReadFile(file)
	m.ok("save", "--dry-run")
	if now, _ := os.ReadFile(file); string(now) != string(before) {
		t.Error("a dry run changes the file")
	}
	m.ok("save")
	contains(t, m.ok("save"), "nothing to save")
	text, _ := os.ReadFile(file)
	for _, comment := range []string{"# by hand", "# three", "# slow"} {
		contains(t, string(text), comment)
	}

	holds := func() {
		t.Helper()
		contains(t, m.ok("save", "--dry-run"), "nothing to save")
		contains(t, m.ok("inspect"), "duplicate 2%")
		contains(t, m.exec("h1", "ip addr; ip route; ip -6 route"), "192.168.7.1/24")
		contains(t, m.exec("h1", "ip addr; ip route; ip -6 route"), "172.16.0.0/12 via 192.168.7.254")
		contains(t, m.exec("h1", "ip addr; ip route; ip -6 route"), "fd88::/32 via fd77::9")
		contains(t, m.exec("s1", "ovs-ofctl dump-flows s1"), "nw_dst=10.66.0.1")
		contains(t, m.exec("s1", "ovs-ofctl dump-flows s1"), "nw_dst=10.66.0.2")
		contains(t, m.exec("s2", "ovs-ofctl dump-flows s2"), "nw_dst=10.66.0.3")
		contains(t, m.exec("s2", "ovs-vsctl get interface s2-eth2 ingress_policing_rate"), "5000")
		contains(t, m.exec("s3", "ovs-vsctl get port s3-eth1 tag"), "10")
		if flows := m.exec("s3", "ovs-ofctl --no-stats dump-flows s3"); strings.Contains(flows, "NORMAL") || !strings.Contains(flows, "priority=5") {
			t.Errorf("a switch without a controller has other entries than its file:\n%s", flows)
		}
		for _, entry := range []string{"nw_dst=10.66.0.4", "NORMAL"} { // it goes on learning
			contains(t, m.exec("s4", "ovs-ofctl dump-flows s4"), entry)
		}
		contains(t, m.exec("r1", "nft list ruleset"), "table inet mine")
		if xtables {
			contains(t, m.exec("h1", "iptables-save"), "--dport 22")
			contains(t, m.exec("h1", "ip6tables-save"), "--dport 9")
		}
	}
	m.ok("down")
	m.up(file)
	holds()
	m.kill("*_[_]daemon*")
	m.ok("resume")
	holds()

	flows := filepath.Join(dir, "lab.d", "s1.flows")
	good, err := os.ReadFile(flows)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(flows, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.ReplaceAll(string(good), "10.66.0.1", "10.66.0.9"))
	contains(t, m.ok("apply", file), "1 change made")
	if has := m.exec("s1", "ovs-ofctl dump-flows s1"); !strings.Contains(has, "10.66.0.9") || strings.Contains(has, "nw_dst=10.66.0.1 ") {
		t.Errorf("after an edit of its file the switch has\n%s", has)
	}

	wrong := func(what, says string) {
		t.Helper()
		for _, command := range []string{"validate", "apply"} {
			if r := m.run(command, file); r.code != 1 || !strings.Contains(r.out+r.err, says) {
				t.Errorf("%s: %s says %v", what, command, r)
			}
		}
	}
	write(string(good) + "priority=1,actions=nonsense\n")
	wrong("a syntax error", "s1.flows:3")
	write(strings.Repeat("#\n", 1<<20))
	wrong("a huge file", "larger than 1 MiB")
	_ = os.Remove(flows)
	if err := os.Symlink("/etc/hostname", flows); err != nil {
		t.Fatal(err)
	}
	wrong("a link out of the directory", "escapes")
	_ = os.Remove(flows)
	if err := syscall.Mkfifo(flows, 0o644); err != nil {
		t.Fatal(err)
	}
	wrong("a pipe", "not a regular file")
	_ = os.Remove(flows)
	write(strings.ReplaceAll(string(good), "10.66.0.1", "10.66.0.9"))
	nft := filepath.Join(dir, "lab.d", "r1.nft")
	if err := os.WriteFile(nft, []byte("table inet mine {\n\tinclude \"/etc/passwd\"\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong("an include", "r1.nft:2")
}
